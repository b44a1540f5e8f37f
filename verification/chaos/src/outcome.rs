//! The outcome of a campaign, as JSON, and as YAML for people.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{id::Rank, units::Bytes};
use tierfeed_dataset::Index;
use tierfeed_workload_analyzer::Job;

use crate::{
    checks::{DRAWN_MIN, Growth, given_back},
    interference::Interference,
    metrics::Traffic,
    pace::Costs,
    record::{self, Comparison},
    role::Role,
    supervisor::Seen,
    testbed::Testbed,
};

#[derive(Debug, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) time_s: f64,
    /// Faults that took place, by kind.
    pub(crate) faults: BTreeMap<&'static str, u64>,
    pub(crate) fault_count: u64,
    /// Faults that could not be injected here, with the reason.
    pub(crate) left_out: Vec<String>,
    /// The batches that trainers used.
    #[serde(flatten)]
    pub(crate) records: Comparison,
    #[serde(flatten)]
    pub(crate) seen: Seen,
    /// Of each role.
    pub(crate) starts: BTreeMap<String, u32>,
    /// The longest time until every rank was served again after all faults ended, in seconds.
    pub(crate) recovery_s_max: f64,
    /// On several nodes: the cost of faults that were injected alone, by kind.
    pub(crate) costs: BTreeMap<&'static str, Costs>,
    /// On several nodes: the sources of the bytes of their batches before the first fault.
    pub(crate) undisturbed: Traffic,
    /// The same in the second half of the phase without faults, after all.
    pub(crate) quiet: Traffic,
    /// The waits of trainers while one client was hostile and no fault was active.
    #[serde(rename = "sieges")]
    pub(crate) interference: Interference,
    /// The growth of the longest-lived process of each role: of the agent with faults, of the others without.
    /// Chunks of tiers are compared with the metrics of the agent instead.
    pub(crate) growth: Vec<Growth>,
    /// The number of times that the last agent gave memory back because too little was free.
    pub(crate) memory_given_back: usize,
    /// Sentences about promises that were not kept; empty if all were.
    pub(crate) violations: Vec<String>,
}

impl Outcome {
    /// Compares the batches that trainers used with those of the order.
    pub(crate) fn check_records(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let folder = &testbed.folder;
        let index = Index::open(&folder.run_dir(Role::Manager).join("dataset.index"))?;
        let order = Job::load(&folder.job())?.order(index.len())?;
        let records = testbed.world.ranks().map(|rank| (Rank(rank), folder.record(rank)));
        let compared = record::compare(&order, &records.collect::<Vec<_>>())?;
        self.violations.extend(compared.differing.iter().take(10).cloned());
        if compared.digest != compared.digest_expected {
            let what = "the samples that were used are not those of the order";
            self.violations.push(what.to_owned());
        }
        self.records = compared;
        Ok(())
    }

    /// Checks the reaction of the agent to memory that was short `pressures` times.
    pub(crate) fn check_memory(&mut self, testbed: &Testbed, pressures: u64) {
        if let Ok(group) = &testbed.group {
            if group.has_killed() {
                self.violations.push("a process was killed under pressure".to_owned());
            }
            let swapped = group.swapped();
            if swapped > Bytes(0) {
                self.violations.push(format!("under pressure {swapped} were swapped"));
            }
        }
        let report = testbed.folder.run_dir(Role::Agent(0)).join("report.json");
        self.memory_given_back = given_back(&report);
        if pressures >= DRAWN_MIN && self.memory_given_back == 0 {
            let what = format!("memory was short {pressures} times, and the agent gave none back");
            self.violations.push(what);
        }
    }
}

pub(crate) fn text(outcome: &Outcome) -> String {
    serde_yaml::to_string(outcome).expect("an outcome has keys that are texts")
}
