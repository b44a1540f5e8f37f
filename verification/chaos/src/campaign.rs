//! A campaign: makes a testbed, trains on it, injects faults in rounds, ends them, waits until every rank is
//! served again, measures the resources of all processes, and checks the result.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::sys::signal::Signal;
use tierfeed_core::{id::Rank, units::Bytes};
use tierfeed_dataset::Index;
use tierfeed_harness::{
    clock::{now, pause},
    files,
    programs::Programs,
};
use tierfeed_workload_analyzer::Job;

use crate::{
    arguments::ChaosArguments,
    checks::{Growth, Measurement, given_back, leftovers, shared_memory},
    fault::{Ended, Fault, KINDS, Kind, Recovery, Schedule, Selection},
    footprint, hostile_client,
    interference::{self, longest_wait, used},
    metrics::{self, TierUsage, Traffic},
    outcome::Outcome,
    pace::{Cost, Pace},
    record::{self, Origin, Tail},
    role::{Role, World},
    silent_connections::SilentConnections,
    supervisor::{Exits, Supervisor, tail},
    testbed::{Setup, Testbed},
};

const FILES: u64 = 300;

const STEP: Duration = Duration::from_millis(20);

const POLL_EVERY: Duration = Duration::from_millis(10);

/// Faults of a round; after it all faults end, and every rank must be served again.
const FAULTS_PER_ROUND: u32 = 10;

/// A fault that was drawn this often should have taken place at least once.
const DRAWN_MIN: u64 = 3;

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

/// # Errors
///
/// If the folder cannot be written or a process cannot be started. What goes wrong in the campaign itself is
/// in [`Outcome::violations`].
pub(crate) fn run(
    arguments: &ChaosArguments,
    seed: u64,
    server: Option<PathBuf>,
    programs: &Programs,
) -> anyhow::Result<Outcome> {
    files::in_folder(&arguments.output.folder(), |folder| {
        let setup = Setup {
            world: World::of(arguments.nodes),
            files: FILES,
            server,
            pressure: arguments.pressure,
            samples: arguments.samples,
        };
        let testbed = Testbed::make(folder, setup)?;
        let shared_before = shared_memory();
        let time = Duration::from_secs(60 * arguments.minutes);
        let mut campaign = Campaign::new(&testbed, programs, seed, time);
        if let Err(error) = campaign.train() {
            campaign.outcome.violations.push(format!("{error:#}"));
            for role in testbed.world.roles() {
                tracing::info!("end of the log of {role}:\n{}", tail(&testbed, role));
            }
        } else {
            campaign.check_drawn();
        }
        campaign.check_growth();
        let (mut outcome, pressures) = campaign.end();
        check_records(&mut outcome, &testbed)?;
        outcome.violations.extend(leftovers(&testbed, &shared_before));
        check_memory(&mut outcome, &testbed, pressures);
        Ok(outcome)
    })
}

struct Active<'a> {
    kind: &'static Kind,
    until: Instant,
    recovery: Recovery<'a>,
}

struct Campaign<'a> {
    testbed: &'a Testbed,
    supervisor: Supervisor<'a>,
    seed: u64,
    time: Duration,
    begin: Instant,
    possible: Vec<&'static Kind>,
    drawn: BTreeMap<&'static str, u64>,
    active: Vec<Active<'a>>,
    measurements: Vec<Measurement>,
    /// The number of times that memory was short in the second phase, for the last agent.
    pressures: u64,
    outcome: Outcome,
}

impl<'a> Campaign<'a> {
    fn new(testbed: &'a Testbed, programs: &'a Programs, seed: u64, time: Duration) -> Self {
        let obstacle =
            |kind: &Kind| kind.obstacle(testbed).map(|why| format!("{}: {why}", kind.name));
        let outcome = Outcome {
            seed,
            time_s: time.as_secs_f64(),
            faults: KINDS.iter().map(|kind| (kind.name, 0)).collect(),
            left_out: KINDS.iter().filter_map(obstacle).collect(),
            ..Outcome::default()
        };
        Self {
            testbed,
            supervisor: Supervisor::new(testbed, programs, STEP),
            seed,
            time,
            begin: now(),
            possible: KINDS.iter().filter(|kind| kind.obstacle(testbed).is_none()).collect(),
            drawn: BTreeMap::new(),
            active: Vec::new(),
            measurements: Vec::new(),
            pressures: 0,
            outcome,
        }
    }

    /// From the start of the first process to the end of the last.
    fn train(&mut self) -> anyhow::Result<()> {
        self.supervisor.start_all()?;
        self.recover()?;
        if self.testbed.world.nodes > 1 {
            let before = self.traffic()?;
            self.pass(UNDISTURBED)?;
            self.outcome.undisturbed = self.traffic()?.since(before);
        }
        let [all, survived, none] = TWELFTHS.map(|twelfths| self.time * twelfths / 12);
        for (selection, time) in [(Selection::All, all), (Selection::AgentSurvives, survived)] {
            self.inject_for(time, selection)?;
        }
        self.measure_quiet(none)?;
        self.stop()
    }

    /// Injects faults in rounds; after each round trainers run beside a hostile client alone, or with several
    /// nodes beside one fault.
    fn inject_for(&mut self, time: Duration, selection: Selection) -> anyhow::Result<()> {
        let mut schedule = Schedule::new(self.seed, selection, &self.possible);
        let mut alone = Schedule::alone(self.seed, selection, &self.possible);
        let begin = now();
        self.pressures = 0;
        while begin.elapsed() < time {
            for _ in 0..FAULTS_PER_ROUND {
                let fault = schedule.draw();
                let is_in_the_way =
                    fault.kind.ends_agent && self.active.iter().any(|it| it.kind.needs_agent);
                self.count_draw(fault);
                if !is_in_the_way {
                    self.inject(fault)?;
                }
                self.pass(fault.pause)?;
            }
            while !self.active.is_empty() {
                self.pass(POLL_EVERY)?;
            }
            self.recover()?;
            match self.testbed.world.nodes {
                1 => self.measure_interference()?,
                _ => self.measure_cost(alone.draw())?,
            }
            tracing::info!("{} faults so far", self.outcome.faults.values().sum::<u64>());
        }
        Ok(())
    }

    fn count_draw(&mut self, fault: Fault) {
        *self.drawn.entry(fault.kind.name).or_default() += 1;
    }

    /// Returns whether the fault could be injected.
    fn inject(&mut self, fault: Fault) -> anyhow::Result<bool> {
        let kind = fault.kind;
        let Some(recovery) = fault.inject(&mut self.supervisor)? else { return Ok(false) };
        self.pressures += u64::from(kind.name == "memory short");
        self.active.push(Active { kind, until: now() + fault.duration, recovery });
        Ok(true)
    }

    /// Lets time pass: ends faults that are over, and restarts processes that were killed.
    fn pass(&mut self, time: Duration) -> anyhow::Result<()> {
        let begin = now();
        while begin.elapsed() < time {
            for mut fault in std::mem::take(&mut self.active) {
                let late = now().checked_duration_since(fault.until);
                let ended = match late {
                    None => Ended::NotYet,
                    Some(late) => (fault.recovery)(&mut self.supervisor, late)?,
                };
                match ended {
                    Ended::NotYet => self.active.push(fault),
                    Ended::Injected => {
                        *self.outcome.faults.entry(fault.kind.name).or_default() += 1;
                    }
                    Ended::WithoutEffect => (),
                }
            }
            let may_fail = self.active.iter().any(|it| it.kind.lets_agent_fail);
            let exits = if may_fail { Exits::AgentMayFail } else { Exits::Unexpected };
            self.supervisor.restart_killed(exits)?;
            pause(POLL_EVERY);
        }
        Ok(())
    }

    /// Waits until the agent serves every rank again, within a limit, and measures the agent.
    fn recover(&mut self) -> anyhow::Result<()> {
        let begin = now();
        let mut unserved = Tail::of_all(self.testbed);
        while !unserved.is_empty() {
            let took = begin.elapsed();
            if took > RECOVERY_MAX {
                bail!("not every rank gets batches from the agent {took:?} after the last fault");
            }
            self.pass(POLL_EVERY * 5)?;
            let mut left = Vec::new();
            for mut record in unserved {
                if !record.read()?.iter().any(|it| it.origin == Origin::Agent) {
                    left.push(record);
                }
            }
            unserved = left;
        }
        let took = begin.elapsed().as_secs_f64();
        self.outcome.recovery_s_max = self.outcome.recovery_s_max.max(took);
        // Until here they kept the sockets of killed trainers open, and the agent had to cope with that.
        self.supervisor.kill_orphans();
        self.pass(SETTLE)?;
        self.testbed.world.agents().try_for_each(|agent| self.measure(agent))
    }

    fn measure(&mut self, role: Role) -> anyhow::Result<()> {
        let before = self.tier_usage(role)?;
        let is_gone = || format!("{role} runs while no fault is active");
        let held = self.supervisor.pid(role).and_then(footprint::of).with_context(is_gone)?;
        // Chunks are taken and given back meanwhile: the larger figures bound what the kernel shows.
        let tier_usage = before.max(self.tier_usage(role)?);
        let (at_s, incarnation) =
            (self.begin.elapsed().as_secs_f64(), self.supervisor.starts(role));
        self.measurements.push(Measurement { role, at_s, incarnation, held, tier_usage });
        Ok(())
    }

    fn tier_usage(&self, role: Role) -> anyhow::Result<Option<TierUsage>> {
        let Role::Agent(_) = role else { return Ok(None) };
        let metrics = metrics::of_agent(&self.testbed.folder.run_dir(role))?;
        TierUsage::parse(&metrics).context("the metrics have no bytes of tiers").map(Some)
    }

    fn traffic(&self) -> anyhow::Result<Traffic> {
        let agents = self.testbed.world.agents();
        let metrics = agents.map(|it| metrics::of_agent(&self.testbed.folder.run_dir(it)));
        Ok(Traffic::parse(&metrics.collect::<anyhow::Result<String>>()?))
    }

    /// Lets the ranks train without faults, and measures the resources of all processes.
    fn measure_quiet(&mut self, time: Duration) -> anyhow::Result<()> {
        let begin = now();
        let mut before = self.traffic()?;
        while begin.elapsed() < time {
            self.pass(MEASURE_EVERY)?;
            if begin.elapsed() < time / 2 {
                before = self.traffic()?;
            }
            self.testbed.world.roles().try_for_each(|role| self.measure(role))?;
        }
        self.outcome.quiet = self.traffic()?.since(before);
        if self.testbed.world.nodes > 1 && time / 2 >= PLACES_FOUND_WITHIN {
            let before = self.outcome.undisturbed.cold_percent();
            let after = self.outcome.quiet.cold_percent();
            if after > before + COLD_GROWTH_MAX_PERCENT {
                self.outcome.violations.push(format!(
                    "nodes read {after:.0} % cold {:?} after the last fault, and {before:.0} % before \
                     the first: not every node found its place",
                    time / 2
                ));
            }
        }
        Ok(())
    }

    /// Injects a fault alone, and measures the time until the training is at the full rate again.
    fn measure_cost(&mut self, fault: Fault) -> anyhow::Result<()> {
        let mut pace = Pace::watch(self.testbed);
        self.pass(RATE_OVER)?;
        pace.look(now())?;
        let rate = pace.batches() / RATE_OVER.as_secs_f64();
        let mut pace = Pace::watch(self.testbed);
        let begin = now();
        let name = fault.kind.name;
        self.count_draw(fault);
        if !self.inject(fault)? {
            return Ok(());
        }
        let mut ended_at = None;
        let (end, back_at) = loop {
            self.pass(LOOK_EVERY)?;
            let now = now();
            pace.look(now)?;
            if !self.active.is_empty() {
                continue;
            }
            let end = *ended_at.get_or_insert(now);
            match pace.full_since(rate).filter(|since| *since >= end) {
                Some(since) => break (end, since),
                None if now > end + BACK_WITHIN => {
                    bail!("{name}: not at the full rate {BACK_WITHIN:?} after its end");
                }
                None => {}
            }
        };
        let used = Duration::from_secs_f64(pace.batches() / rate);
        self.outcome.costs.entry(name).or_default().add(Cost {
            lasted: end - begin,
            back: back_at - end,
            lost: begin.elapsed().saturating_sub(used),
            alone: pace.alone(),
        });
        Ok(())
    }

    /// Runs a hostile client and silent connections beside the trainers, and compares their waits with those
    /// just before.
    fn measure_interference(&mut self) -> anyhow::Result<()> {
        let mut records = Tail::of_all(self.testbed);
        self.pass(interference::TIME)?;
        let before = longest_wait(&used(&mut records)?);
        let seed = self.seed.wrapping_add(self.outcome.interference.count);
        let silent = SilentConnections::open(self.testbed, self.supervisor.address.as_deref());
        let hostile = hostile_client::start(&self.supervisor, seed, interference::TIME)?;
        self.pass(interference::TIME)?;
        let Outcome { interference, violations, .. } = &mut self.outcome;
        violations.extend(interference.request_metrics(self.testbed, &silent));
        violations.extend(interference.add(&used(&mut records)?, before, hostile)?);
        Ok(())
    }

    /// Ends trainers, agent and manager in this order, which must all succeed.
    fn stop(&mut self) -> anyhow::Result<()> {
        fs::write(self.testbed.folder.stop(), "")?;
        let world = self.testbed.world;
        for role in world.trainers().chain(world.servers()) {
            if !matches!(role, Role::Trainer(_)) {
                self.supervisor.signal(role, Signal::SIGTERM)?;
            }
            let status = self.supervisor.wait_for_exit(role)?;
            if !status.success() {
                let log = tail(self.testbed, role);
                bail!("{role} was asked to end and ended with {status}:\n{log}");
            }
        }
        Ok(())
    }

    /// Faults that were drawn and never took place were not tested.
    fn check_drawn(&mut self) {
        for (name, count) in &self.drawn {
            if *count >= DRAWN_MIN && self.outcome.faults.get(name) == Some(&0) {
                let what = format!("{name}: drawn {count} times, and never injected");
                self.outcome.violations.push(what);
            }
        }
    }

    fn check_growth(&mut self) {
        let peers = self.testbed.world.nodes - 1;
        self.outcome.growth = Growth::of_all(&self.measurements);
        let Outcome { growth, violations, .. } = &mut self.outcome;
        violations.extend(growth.iter().flat_map(|it| it.excess(peers)));
        violations.extend(self.measurements.iter().filter_map(Measurement::leak).take(10));
    }

    /// The outcome so far, and how often memory was short for the last agent. All processes are gone then.
    fn end(self) -> (Outcome, u64) {
        let Self { testbed, mut supervisor, mut outcome, pressures, .. } = self;
        let starts = |role: Role| (role.to_string(), supervisor.starts(role));
        outcome.starts = testbed.world.roles().map(starts).collect();
        outcome.seen = std::mem::take(&mut supervisor.seen);
        outcome.fault_count = outcome.faults.values().sum();
        (outcome, pressures)
    }
}

/// Compares the batches that trainers used with those of the order.
fn check_records(outcome: &mut Outcome, testbed: &Testbed) -> anyhow::Result<()> {
    let folder = &testbed.folder;
    let index = Index::open(&folder.run_dir(Role::Manager).join("dataset.index"))?;
    let order = Job::load(&folder.job())?.order(index.len())?;
    let records = testbed.world.ranks().map(|rank| (Rank(rank), folder.record(rank)));
    let compared = record::compare(&order, &records.collect::<Vec<_>>())?;
    outcome.violations.extend(compared.differing.iter().take(10).cloned());
    if compared.digest != compared.digest_expected {
        let what = "the samples that were used are not those of the order";
        outcome.violations.push(what.to_owned());
    }
    outcome.records = compared;
    Ok(())
}

/// Checks the reaction of the agent to memory that was short `pressures` times.
fn check_memory(outcome: &mut Outcome, testbed: &Testbed, pressures: u64) {
    if let Ok(group) = &testbed.group {
        if group.has_killed() {
            outcome.violations.push("a process was killed under pressure".to_owned());
        }
        let swapped = group.swapped();
        if swapped > Bytes(0) {
            outcome.violations.push(format!("under pressure {swapped} were swapped"));
        }
    }
    let report = testbed.folder.run_dir(Role::Agent(0)).join("report.json");
    outcome.memory_given_back = given_back(&report);
    if pressures >= DRAWN_MIN && outcome.memory_given_back == 0 {
        let what = format!("memory was short {pressures} times, and the agent gave none back");
        outcome.violations.push(what);
    }
}
