//! Controls a campaign: injects faults in rounds, ends them, waits until every rank is served again, and
//! measures the resources of all processes.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use tierfeed_harness::clock::pause;

use crate::{
    checks::{Measurement, seconds},
    clock::Clock,
    fault::{Fault, Kind, Schedule, Selection},
    footprint,
    injector::Injector,
    interference::{self, Interference, RecordLengths},
    pace::{Cost, Costs, Pace},
    record,
    recovery::{Effect, Recovery},
    role::Role,
    settings::Settings,
    silent_connections::SilentConnections,
    supervisor::{Exits, Supervisor, tail},
    testbed::Testbed,
    tier_usage::{TierUsage, metrics},
    traffic::Traffic,
};

const POLL_EVERY: Duration = Duration::from_millis(10);

/// Faults of a round; after it all faults end, and every rank must be served again.
const FAULTS_PER_ROUND: u32 = 10;

/// The time without faults before the resources of the agent are measured.
const SETTLE: Duration = Duration::from_millis(1500);

/// The phases of a campaign in twelfths of its time: all faults, those that the agent survives, none.
const TWELFTHS: [u32; 3] = [5, 5, 2];

/// The time between two measurements in the phase without faults.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// On several nodes, the traffic before the first fault is measured over this time.
const UNDISTURBED: Duration = Duration::from_secs(5);

/// The rate before a fault is measured over this time.
const RATE_OVER: Duration = Duration::from_secs(2);

/// After this time without faults all nodes read from each other again: a node that failed again and again is
/// not asked for that long.
const PLACES_FOUND_WITHIN: Duration = Duration::from_secs(30);

/// The largest increase, over the share before all faults, of the share of the read bytes that comes from the
/// cold store, in percent of all: a busy machine makes reads from other nodes late.
const COLD_GROWTH_MAX_PERCENT: f64 = 20.0;

/// After a fault alone, the training is at the full rate within this time.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// Time between two looks at the rate after a fault.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Every rank gets batches from the agent again within this time after all faults ended.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Active {
    kind: Kind,
    until: Duration,
    recovery: Recovery,
}

pub(crate) struct Controller<'a> {
    settings: &'a Settings,
    pub(crate) testbed: &'a Testbed,
    clock: Clock,
    active: Vec<Active>,
    possible: Vec<Kind>,
    pub(crate) drawn: BTreeMap<&'static str, u64>,
    pub(crate) injected: BTreeMap<&'static str, u64>,
    pub(crate) measurements: Vec<Measurement>,
    /// The number of times that memory was short in the second phase, for the last agent.
    pub(crate) pressures: u64,
    /// The longest time until every rank was served again after all faults ended.
    pub(crate) recovery_max: Duration,
    pub(crate) interference: Interference,
    /// The cost of faults that were injected alone, by kind.
    pub(crate) costs: BTreeMap<&'static str, Costs>,
    /// The sources of the bytes of batches of all nodes before the first fault.
    pub(crate) undisturbed: Traffic,
    /// The same in the second half of the phase without faults, after all.
    pub(crate) quiet: Traffic,
    pub(crate) violations: Vec<String>,
}

impl<'a> Controller<'a> {
    pub(crate) fn new(settings: &'a Settings, testbed: &'a Testbed, clock: Clock) -> Self {
        let possible = Kind::ALL.into_iter().filter(|kind| kind.obstacle(testbed).is_none());
        Self {
            settings,
            testbed,
            clock,
            active: Vec::new(),
            possible: possible.collect(),
            drawn: BTreeMap::new(),
            injected: Kind::ALL.into_iter().map(|kind| (kind.name(), 0)).collect(),
            measurements: Vec::new(),
            pressures: 0,
            recovery_max: Duration::ZERO,
            interference: Interference::default(),
            costs: BTreeMap::new(),
            undisturbed: Traffic::default(),
            quiet: Traffic::default(),
            violations: Vec::new(),
        }
    }

    /// Runs the campaign, from the start of the first process to the end of the last.
    pub(crate) fn run(
        &mut self,
        supervisor: &mut Supervisor,
        say: &mut dyn FnMut(&str),
    ) -> anyhow::Result<()> {
        supervisor.start_all(self.testbed)?;
        self.recover(supervisor)?;
        if self.testbed.world.nodes > 1 {
            let before = self.traffic()?;
            self.pass(UNDISTURBED, supervisor)?;
            self.undisturbed = self.traffic()?.since(before);
        }
        let [all, survived, none] = TWELFTHS.map(|twelfths| self.settings.time * twelfths / 12);
        for (selection, time) in [(Selection::All, all), (Selection::AgentSurvives, survived)] {
            let mut schedule = Schedule::new(self.settings.seed, selection, &self.possible);
            let mut alone = Schedule::alone(self.settings.seed, selection, &self.possible);
            let begin = self.clock.now();
            self.pressures = 0;
            while self.clock.since(begin) < time {
                for _ in 0..FAULTS_PER_ROUND {
                    self.inject(&mut schedule, supervisor)?;
                }
                self.end_faults(supervisor)?;
                self.recover(supervisor)?;
                match self.testbed.world.nodes {
                    1 => self.measure_interference(supervisor)?,
                    _ => self.measure_cost(alone.draw(), supervisor)?,
                }
                say(&format!("{} faults so far", self.injected.values().sum::<u64>()));
            }
        }
        self.measure_all(none, supervisor)?;
        self.stop(supervisor)
    }

    /// Lets the ranks train without faults, and measures the resources of all processes.
    fn measure_all(&mut self, time: Duration, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        let begin = self.clock.now();
        let mut before = self.traffic()?;
        while self.clock.since(begin) < time {
            self.pass(MEASURE_EVERY, supervisor)?;
            if self.clock.since(begin) < time / 2 {
                before = self.traffic()?;
            }
            self.testbed.world.roles().try_for_each(|role| self.measure(role, supervisor))?;
        }
        self.quiet = self.traffic()?.since(before);
        if self.testbed.world.nodes > 1 && time / 2 >= PLACES_FOUND_WITHIN {
            let cold = |traffic: Traffic| 1e2 * traffic.share(traffic.cold);
            let (before, after) = (cold(self.undisturbed), cold(self.quiet));
            if after > before + COLD_GROWTH_MAX_PERCENT {
                self.violations.push(format!(
                    "nodes read {after:.0} % cold {:?} after the last fault, and {before:.0} % before \
                     the first: not every node found its place",
                    time / 2
                ));
            }
        }
        Ok(())
    }

    fn traffic(&self) -> anyhow::Result<Traffic> {
        let of_node = |node| Ok(Traffic::parse(&metrics(&self.observe_socket(node))?));
        self.testbed
            .world
            .nodes()
            .map(of_node)
            .try_fold(Traffic::default(), |sum, it| it.map(|it: Traffic| sum.and(it)))
    }

    fn observe_socket(&self, node: u32) -> PathBuf {
        self.testbed.agent_dir(node).join("observe.sock")
    }

    /// Injects a fault alone, and measures the time until the training is at the full rate again.
    fn measure_cost(&mut self, fault: Fault, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        let mut pace = Pace::watch(self.testbed)?;
        self.pass(RATE_OVER, supervisor)?;
        pace.look(self.clock.now())?;
        #[expect(clippy::cast_precision_loss, reason = "a few batches")]
        let rate = pace.batches() as f64 / seconds(RATE_OVER);
        let mut pace = Pace::watch(self.testbed)?;
        let begin = self.clock.now();
        *self.drawn.entry(fault.kind.name()).or_default() += 1;
        if !self.begin(fault, supervisor)? {
            return Ok(());
        }
        let mut end = None;
        let back_at = loop {
            self.pass(LOOK_EVERY, supervisor)?;
            let now = self.clock.now();
            pace.look(now)?;
            if self.active.is_empty() {
                let end = *end.get_or_insert(now);
                match pace.full_since(rate).filter(|since| *since >= end) {
                    Some(since) => break since,
                    None if now > end + BACK_WITHIN => {
                        let kind = fault.kind.name();
                        bail!("{kind}: not at the full rate {BACK_WITHIN:?} after its end");
                    }
                    None => {}
                }
            }
        };
        let (end, now) = (end.unwrap_or(back_at), self.clock.now());
        #[expect(clippy::cast_precision_loss, reason = "a few batches")]
        let used = Duration::from_secs_f64(pace.batches() as f64 / rate);
        self.costs.entry(fault.kind.name()).or_default().add(Cost {
            lasted: end.saturating_sub(begin),
            back: back_at.saturating_sub(end),
            lost: now.saturating_sub(begin).saturating_sub(used),
            alone: pace.alone(),
        });
        Ok(())
    }

    fn measure(&mut self, role: Role, supervisor: &Supervisor) -> anyhow::Result<()> {
        let before = self.tier_usage(role)?;
        let is_gone = || format!("{} runs while no fault is active", role.name());
        let held = supervisor.pid(role).and_then(footprint::of).with_context(is_gone)?;
        // Chunks are taken and given back meanwhile: the larger figures bound what the kernel shows.
        let tier_usage = before.max(self.tier_usage(role)?);
        let (at_s, incarnation) = (seconds(self.clock.now()), supervisor.starts(role));
        self.measurements.push(Measurement {
            role: role.name(),
            at_s,
            incarnation,
            held,
            tier_usage,
        });
        Ok(())
    }

    fn tier_usage(&self, role: Role) -> anyhow::Result<Option<TierUsage>> {
        let Role::Agent(node) = role else { return Ok(None) };
        TierUsage::read(&self.observe_socket(node)).map(Some)
    }

    /// Runs a hostile client and silent connections beside the trainers, and compares their waits with those
    /// just before.
    fn measure_interference(&mut self, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        let undisturbed = RecordLengths::now(self.testbed)?;
        self.pass(interference::TIME, supervisor)?;
        let before = undisturbed.wait_max(self.testbed)?;
        let lengths = RecordLengths::now(self.testbed)?;
        let seed = self.settings.seed.wrapping_add(self.interference.count);
        let address = supervisor.address();
        let silent = SilentConnections::open(self.testbed, address.as_deref());
        let hostile = self.injector(address.as_deref()).hostile(seed, interference::TIME)?;
        self.pass(interference::TIME, supervisor)?;
        let unanswered = self.interference.request_metrics(self.testbed, self.clock, &silent);
        self.violations.extend(unanswered);
        let violations = self.interference.add(self.testbed, &lengths, before, hostile)?;
        self.violations.extend(violations);
        Ok(())
    }

    fn injector<'b>(&'b self, manager: Option<&'b str>) -> Injector<'b> {
        Injector {
            testbed: self.testbed,
            programs: &self.settings.programs,
            manager,
            pressure: self.settings.pressure,
        }
    }

    /// Injects the next fault of the schedule, and waits until the one after it is due.
    fn inject(
        &mut self,
        schedule: &mut Schedule,
        supervisor: &mut Supervisor,
    ) -> anyhow::Result<()> {
        let fault = schedule.draw();
        *self.drawn.entry(fault.kind.name()).or_default() += 1;
        if fault.kind.ends_agent() && self.active.iter().any(|it| it.recovery.needs_agent()) {
            return self.pass(fault.pause, supervisor);
        }
        self.begin(fault, supervisor)?;
        self.pass(fault.pause, supervisor)
    }

    fn begin(&mut self, fault: Fault, supervisor: &mut Supervisor) -> anyhow::Result<bool> {
        let address = supervisor.address();
        let recovery = self.injector(address.as_deref()).inject(fault, supervisor)?;
        let Some(recovery) = recovery else { return Ok(false) };
        self.pressures += u64::from(fault.kind == Kind::MemoryShort);
        let until = self.clock.now() + fault.duration;
        self.active.push(Active { kind: fault.kind, until, recovery });
        Ok(true)
    }

    /// Lets time pass: ends faults that are over, and restarts processes that were killed.
    fn pass(&mut self, time: Duration, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            let now = self.clock.now();
            let is_over = |it: &mut Active| {
                it.until <= now && it.recovery.is_ready(now.saturating_sub(it.until))
            };
            let over: Vec<Active> = self.active.extract_if(.., is_over).collect();
            for Active { kind, recovery, .. } in over {
                let effect = recovery.apply(supervisor, self.testbed)?;
                let count = self.injected.entry(kind.name()).or_default();
                *count += u64::from(effect == Effect::Injected);
            }
            self.restart_killed(supervisor)?;
            pause(POLL_EVERY);
        }
        Ok(())
    }

    fn restart_killed(&self, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        let may_fail = self.active.iter().any(|it| it.recovery.lets_agent_fail());
        let exits = if may_fail { Exits::AgentMayFail } else { Exits::Unexpected };
        supervisor.restart_killed(self.testbed, exits)
    }

    fn end_faults(&mut self, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        while !self.active.is_empty() {
            self.pass(POLL_EVERY, supervisor)?;
        }
        Ok(())
    }

    /// Waits until the agent serves every rank again, within a limit, and measures the agent.
    fn recover(&mut self, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        let begin = self.clock.now();
        let served = |testbed: &Testbed| -> Vec<u64> {
            let ranks = testbed.world.ranks();
            ranks.map(|rank| record::served(&testbed.record(rank))).collect()
        };
        let before = served(self.testbed);
        while served(self.testbed).iter().zip(&before).any(|(now, before)| now <= before) {
            let took = self.clock.since(begin);
            if took > RECOVERY_MAX {
                bail!("not every rank gets batches from the agent {took:?} after the last fault");
            }
            self.pass(POLL_EVERY * 5, supervisor)?;
        }
        self.recovery_max = self.recovery_max.max(self.clock.since(begin));
        // Until here they kept the sockets of killed trainers open, and the agent had to cope with that.
        supervisor.kill_orphans();
        self.pass(SETTLE, supervisor)?;
        let agents = self.testbed.world.nodes().map(Role::Agent);
        agents.into_iter().try_for_each(|agent| self.measure(agent, supervisor))
    }

    /// Ends trainers, agent and manager in this order, which must all succeed.
    fn stop(&mut self, supervisor: &mut Supervisor) -> anyhow::Result<()> {
        fs::write(self.testbed.stop(), "")?;
        let world = self.testbed.world;
        let (trainers, agents) = (world.ranks().map(Role::Trainer), world.nodes().map(Role::Agent));
        for role in trainers.chain(agents).chain([Role::Manager]) {
            if !matches!(role, Role::Trainer(_)) {
                supervisor.signal(role, Signal::SIGTERM)?;
            }
            let status = supervisor.wait_for_exit(role)?;
            if !status.success() {
                let log = tail(self.testbed, role);
                bail!("{} was asked to end and ended with {status}:\n{log}", role.name());
            }
        }
        Ok(())
    }
}
