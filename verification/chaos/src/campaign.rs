//! A campaign: makes a testbed, trains on it, injects faults, and checks the result.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tierfeed_core::{id::Rank, units::Bytes};
use tierfeed_dataset::Index;
use tierfeed_harness::files;
use tierfeed_workload_analyzer::Job;

use crate::{
    checks::{Growth, Measurement, given_back, leftovers, seconds, shared_memory},
    clock::Clock,
    controller::Controller,
    fault::Kind,
    interference::Interference,
    outcome::Outcome,
    record,
    settings::Settings,
    supervisor::{Supervisor, tail},
    testbed::{Setup, Testbed},
    traffic::Traffic,
};

const FILES: u64 = 300;

const STEP: Duration = Duration::from_millis(20);

/// A fault that was drawn this often should have taken place at least once.
const DRAWN_MIN: u64 = 3;

/// # Errors
///
/// If the folder cannot be written or a process cannot be started. What goes wrong in the campaign itself is
/// in [`Outcome::violations`].
pub(crate) fn run(settings: &Settings, say: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let testbed = Testbed::make(
            folder,
            Setup {
                world: settings.world,
                files: FILES,
                server: settings.server.as_deref(),
                memory: Some(settings.pressure),
                samples: settings.samples,
            },
        )?;
        let mut outcome = empty_outcome(settings, &testbed);
        let shared_before = shared_memory();
        let clock = Clock::start();
        let mut supervisor =
            Supervisor::new(settings.programs.clone(), settings.world, clock, STEP);
        let mut controller = Controller::new(settings, &testbed, clock);
        match controller.run(&mut supervisor, say) {
            Ok(()) => outcome.violations.extend(untested(&controller)),
            Err(error) => {
                outcome.violations.push(format!("{error:#}"));
                for role in settings.world.roles() {
                    say(&format!("end of the log of {}:\n{}", role.name(), tail(&testbed, role)));
                }
            }
        }
        let roles = settings.world.roles();
        outcome.starts = roles.map(|role| (role.name(), supervisor.starts(role))).collect();
        outcome.excused = std::mem::take(&mut supervisor.excused);
        outcome.panics = std::mem::take(&mut supervisor.panics);
        outcome.failed_calls = std::mem::take(&mut supervisor.failed_calls);
        // All processes have to be gone before the checks.
        drop(supervisor);
        outcome.add_records(&testbed)?;
        outcome.add_measurements(&controller);
        outcome.violations.extend(leftovers(&testbed, &shared_before));
        outcome.add_memory(&testbed, controller.pressures);
        Ok(outcome)
    })
}

fn empty_outcome(settings: &Settings, testbed: &Testbed) -> Outcome {
    let obstacle = |kind: Kind| Some(format!("{}: {}", kind.name(), kind.obstacle(testbed)?));
    Outcome {
        seed: settings.seed,
        time_s: seconds(settings.time),
        faults: Kind::ALL.into_iter().map(|kind| (kind.name(), 0)).collect(),
        fault_count: 0,
        left_out: Kind::ALL.into_iter().filter_map(obstacle).collect(),
        batches: 0,
        samples: 0,
        batches_by_origin: BTreeMap::new(),
        digest: String::new(),
        digest_expected: String::new(),
        panics: BTreeMap::new(),
        failed_calls: BTreeMap::new(),
        starts: BTreeMap::new(),
        recovery_s_max: 0.0,
        costs: BTreeMap::new(),
        undisturbed: Traffic::default(),
        quiet: Traffic::default(),
        interference: Interference::default(),
        excused: Vec::new(),
        growth: Vec::new(),
        memory_given_back: 0,
        violations: Vec::new(),
    }
}

/// Sentences about faults that were drawn and never took place: they were not tested.
fn untested(controller: &Controller<'_>) -> Vec<String> {
    let is_untested = |(name, count): &(&&str, &u64)| {
        **count >= DRAWN_MIN && controller.injected.get(**name) == Some(&0)
    };
    let drawn = controller.drawn.iter().filter(is_untested);
    drawn.map(|(name, count)| format!("{name}: drawn {count} times, and never injected")).collect()
}

impl Outcome {
    fn add_records(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let index = Index::open(&testbed.manager_dir().join("dataset.index"))?;
        let order = Job::load(&testbed.job())?.order(index.len())?;
        let paths: Vec<PathBuf> = testbed.world.ranks().map(|rank| testbed.record(rank)).collect();
        let records: Vec<_> = (0..).map(Rank).zip(paths.iter().map(PathBuf::as_path)).collect();
        let compared = record::compare(&order, &records)?;
        self.batches = compared.batches;
        self.samples = compared.samples;
        self.batches_by_origin = compared.by_origin;
        self.digest = format!("{:016x}", compared.digest);
        self.digest_expected = format!("{:016x}", compared.digest_expected);
        self.violations.extend(compared.differing.into_iter().take(10));
        if self.digest != self.digest_expected {
            self.violations
                .push("the samples that were used are not those of the order".to_owned());
        }
        Ok(())
    }

    fn add_measurements(&mut self, controller: &Controller<'_>) {
        self.faults.clone_from(&controller.injected);
        self.fault_count = self.faults.values().sum();
        self.recovery_s_max = seconds(controller.recovery_max);
        self.costs.clone_from(&controller.costs);
        self.undisturbed = controller.undisturbed;
        self.quiet = controller.quiet;
        self.interference = controller.interference.clone();
        self.violations.extend(controller.violations.iter().cloned());
        let measurements = &controller.measurements;
        self.growth = Growth::of_all(measurements);
        self.violations.extend(
            self.growth.iter().flat_map(|it| it.excess(controller.testbed.world.nodes - 1)),
        );
        self.violations.extend(measurements.iter().filter_map(Measurement::leak).take(10));
    }

    /// Checks the reaction of the agent to memory that was short `pressures` times.
    fn add_memory(&mut self, testbed: &Testbed, pressures: u64) {
        if let Ok(cgroup) = &testbed.cgroup {
            let (killed, swapped) = (cgroup.oom_kills(), Bytes(cgroup.swapped_bytes()));
            if (killed, swapped) != (0, Bytes(0)) {
                let what =
                    format!("under pressure {killed} processes were killed, {swapped} swapped");
                self.violations.push(what);
            }
        }
        self.memory_given_back = given_back(&testbed.agent_dir(0).join("report.json"));
        if pressures >= DRAWN_MIN && self.memory_given_back == 0 {
            let what = format!("memory was short {pressures} times, and the agent gave none back");
            self.violations.push(what);
        }
    }
}
