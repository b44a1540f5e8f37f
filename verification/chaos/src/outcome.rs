//! The outcome of a campaign, as JSON, and as YAML for people.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    checks::Growth, interference::Interference, metrics::Traffic, pace::Costs, record::Comparison,
    supervisor::Seen,
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

pub(crate) fn text(outcome: &Outcome) -> String {
    serde_yaml::to_string(outcome).expect("an outcome has keys that are texts")
}
