//! `tierfeed-bench dlcache`: the eviction experiment of DLCache, with its policy, its baselines and ours.
//!
//! Jobs run one after the other on a node that cannot store all their datasets; a chunk that is not
//! stored has to be downloaded and extracted first, and what counts is the time for that. Nothing is
//! moved: the published simulation is replayed, with its chunks, its patterns and its order of jobs. Its
//! clock is the time that the simulation itself takes; here time is the number of jobs, so that a run
//! can be repeated.
//!
//! # Source
//!
//! Kang et al., Dataset Placement and Data Loading Optimizations for Cloud-Native Deep Learning
//! Workloads (ISORC 2023), section IV, and its repository, `experiments/exp3`.

mod chunks;
mod policies;
mod replay;
mod workload;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use tierfeed_harness::{
    bench::Bench,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
};

pub use self::{chunks::Chunks, workload::Patterns};
use self::{chunks::number, policies::Kind, workload::GB};

/// The promise: less time than the policy of the paper.
const TIME_MAX: f64 = 1.0;

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The authors' table: dataset, size in bytes and 8 x seconds of each chunk [default: generated, of
    /// about its sizes and costs].
    #[arg(long, value_name = "FILE")]
    pub chunks: Option<PathBuf>,
    /// Which orders of jobs.
    #[arg(long, value_name = "NAME", default_value = "full")]
    pub patterns: Patterns,
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let chunks = match &self.chunks {
            Some(path) => Chunks::read(path).map_err(Failure::Input)?,
            None => Chunks::generated(),
        };
        Ok(replayed(&chunks, self.patterns))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// Orders of jobs, each counted once for each size of storage.
    pub patterns: usize,
    pub chunks: usize,
    pub chunk_bytes: u64,
    /// The time to prepare every chunk once, which every policy needs.
    pub floor_s: f64,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub policy: &'static str,
    /// Its knowledge beside the past.
    pub knows: &'static str,
    /// The mean time of preparing chunks in a pattern, in seconds.
    pub mean_s: f64,
    /// The mean by that of `dlcache`: below 1 it takes less.
    pub ratio: f64,
    /// The share of the patterns in which it takes no longer than `dlcache`.
    pub no_worse: f64,
    /// The mean by the time that every policy needs.
    pub over_floor: f64,
}

impl Judged for Outcome {
    /// The promise: our policy with the knowledge that a job brings takes less time than `dlcache`.
    fn judged(&self) -> Judgement {
        let ours = self.rows.iter().filter(|row| row.policy == Kind::Tierfeed.name());
        let best = ours.map(|row| row.ratio).fold(f64::INFINITY, f64::min);
        Judgement::default().at_most("preparation time over that of dlcache", best, TIME_MAX)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    spent_ns: u128,
    no_worse: usize,
}

pub(crate) fn replayed(chunks: &Chunks, which: Patterns) -> Outcome {
    let mut tallies = [Tally::default(); Kind::ALL.len()];
    let mut capacity = None;
    for pattern in workload::patterns(chunks, which) {
        if capacity.replace(pattern.capacity) != Some(pattern.capacity) {
            step(&format!("patterns with {} GB of storage", pattern.capacity.0 / GB));
        }
        let spent = Kind::ALL
            .map(|kind| replay::preparation(chunks, &pattern, &mut *kind.policy(chunks, &pattern)));
        let theirs = spent[Kind::DLCACHE];
        for (tally, spent) in tallies.iter_mut().zip(spent) {
            tally.spent_ns += u128::from(spent.0);
            tally.no_worse += usize::from(spent <= theirs);
        }
    }
    let patterns = workload::count(which);
    let floor_s = seconds(chunks.cost().0.into());
    let rows = rows(&tallies, patterns, floor_s);
    Outcome { patterns, chunks: chunks.len(), chunk_bytes: chunks.bytes().0, floor_s, rows }
}

fn rows(tallies: &[Tally; Kind::ALL.len()], patterns: usize, floor_s: f64) -> Vec<Row> {
    let theirs = seconds(tallies[Kind::DLCACHE].spent_ns);
    let row = |(kind, tally): (Kind, &Tally)| Row {
        policy: kind.name(),
        knows: kind.knows(),
        mean_s: seconds(tally.spent_ns) / number(patterns),
        ratio: seconds(tally.spent_ns) / theirs,
        no_worse: number(tally.no_worse) / number(patterns),
        over_floor: seconds(tally.spent_ns) / number(patterns) / floor_s,
    };
    Kind::ALL.into_iter().zip(tallies).map(row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "for people: 2^53 ns are three months to the ns")]
fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
