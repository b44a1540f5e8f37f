//! A campaign: makes a testbed, trains on it, injects faults in rounds, ends them, waits until every rank is
//! served again, measures the resources of all processes, and checks the result.

mod measurements;

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::bail;
use nix::sys::signal::Signal;
use tierfeed_harness::{
    clock::{now, pause},
    files,
    programs::Programs,
};

use crate::{
    arguments::ChaosArguments,
    checks::{DRAWN_MIN, Growth, Measurement, leftovers, shared_memory},
    fault::{Ended, Fault, KINDS, Kind, Recovery, Schedule, Selection},
    outcome::Outcome,
    record::{Origin, Tail},
    role::{Role, World},
    supervisor::{Exits, Supervisor, tail},
    testbed::{Setup, Testbed},
};

const FILES: u64 = 300;

const STEP: Duration = Duration::from_millis(20);

const POLL_EVERY: Duration = Duration::from_millis(10);

/// Faults of a round; after it all faults end, and every rank must be served again.
const FAULTS_PER_ROUND: u32 = 10;

/// The time without faults before the resources of the agent are measured.
const SETTLE: Duration = Duration::from_millis(1500);

/// The phases of a campaign in twelfths of its time: all faults, those that the agent survives, none.
const TWELFTHS: [u32; 3] = [5, 5, 2];

/// On several nodes, the traffic before the first fault is measured over this time.
const UNDISTURBED: Duration = Duration::from_secs(5);

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
            pressure: Some(arguments.pressure),
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
        outcome.check_records(&testbed)?;
        outcome.violations.extend(leftovers(&testbed, &shared_before));
        outcome.check_memory(&testbed, pressures);
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
