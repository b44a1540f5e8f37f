//! How many reads find their sample ready when a share of them can be prefetched: three schedules in slots of
//! one read each.
//!
//! In a slot the prefetcher may begin with `bandwidth` of a cold read, and the trainer reads one sample;
//! a sample that is not ready it reads itself, at once, beyond the bandwidth. Bandwidth that cannot be used is
//! lost. One node; the first epoch is cold.

mod earliest;
mod staged;

use serde::Serialize;
use tierfeed_core::retention::{policy::Kind, replay::Replay};

use self::staged::Staging;
use super::{
    forms::{self, Run},
    reference,
    retention::{self, share},
};

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub schedule: Schedule,
    /// Cache as a share of the dataset.
    pub cached: f64,
    /// Prefetched cold reads for each read of the trainer, at most.
    pub bandwidth: f64,
    /// Share of reads that found their sample ready, from the second epoch on.
    pub ready: f64,
    /// The figure of the other simulation.
    pub table: Option<f64>,
    /// The bound that no schedule can exceed.
    pub bound: f64,
    /// Cold reads for each read, over all epochs.
    pub cold: f64,
    /// The fewest that any schedule needs.
    pub minimal_cold: f64,
    /// Whether it meets its mark; absent without one.
    pub is_met: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// Fetches as early as there is room, evicts the sample that is needed last.
    Earliest,
    /// Keeps by Belady's rule what the cache less the staging holds, fetches just in time.
    BeladyInTime,
    /// Keeps by `gap` what the cache less the staging holds, fetches just in time.
    GapInTime,
    /// As before, with the staging beside the cache, where tierfeed has it.
    GapInTimeBeside,
}

impl Schedule {
    /// All schedules, in the order of the tables; the other simulation has no staging beside the cache.
    pub const ALL: [Self; 4] =
        [Self::Earliest, Self::BeladyInTime, Self::GapInTime, Self::GapInTimeBeside];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Earliest => "earliest, farthest out",
            Self::BeladyInTime => "belady, in time",
            Self::GapInTime => "gap, in time",
            Self::GapInTimeBeside => "gap, staging beside",
        }
    }

    /// The cache less the staging, or all of it.
    fn kept(self, slots: u32, staging: Staging) -> u32 {
        match self {
            Self::Earliest | Self::GapInTimeBeside => slots,
            Self::BeladyInTime | Self::GapInTime => slots.saturating_sub(staging.slots),
        }
    }
}

/// A schedule with one cache; all bandwidths follow from the same misses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    schedule: Schedule,
    cached: f64,
}

/// All schedules, the slow ones first.
pub(super) fn cases() -> Vec<Case> {
    let caches = |schedule| reference::CACHED.map(|cached| Case { schedule, cached });
    Schedule::ALL.into_iter().flat_map(caches).collect()
}

/// Prefetched cold reads for each read: a tenth, a quarter, a half, all misses of c = 0.296, all reads.
const BANDWIDTHS: [Bandwidth; 5] =
    [Bandwidth(100), Bandwidth(250), Bandwidth(500), Bandwidth(704), Bandwidth::WHOLE];

/// Thousandths of a cold read for each slot; also what of it is not used yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Bandwidth(u32);

impl Bandwidth {
    const WHOLE: Self = Self(1000);

    fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE.0)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Reads from the second epoch on.
    steady: u64,
    /// Those of them that found their sample ready.
    ready: u64,
    reads: u64,
    /// Cold reads, by the prefetcher or the trainer.
    cold: u64,
}

impl Tally {
    fn read(&mut self, is_steady: bool, is_ready: bool) {
        self.reads += 1;
        self.steady += u64::from(is_steady);
        self.ready += u64::from(is_steady && is_ready);
    }
}

pub(super) fn measure(case: Case, accesses: u32, epochs: u32) -> Vec<Row> {
    let Case { schedule, cached } = case;
    let run = Run { nodes: 1, cached, epochs };
    let slots = retention::slots(cached, accesses);
    let staging = Staging::of(slots);
    let kept = schedule.kept(slots, staging);
    let orders = || earliest::orders(run, accesses);
    let tallies: Vec<Tally> = match schedule {
        Schedule::Earliest => {
            let orders = orders();
            BANDWIDTHS.map(|bandwidth| earliest::run(&orders, slots, bandwidth)).to_vec()
        }
        Schedule::BeladyInTime => {
            let misses = earliest::misses_of_belady(&orders(), kept);
            BANDWIDTHS.map(|bandwidth| staged::run(&misses, accesses, staging, bandwidth)).to_vec()
        }
        Schedule::GapInTime | Schedule::GapInTimeBeside => {
            let misses = misses_of_gap(run, accesses, kept);
            BANDWIDTHS.map(|bandwidth| staged::run(&misses, accesses, staging, bandwidth)).to_vec()
        }
    };
    let rows = BANDWIDTHS.into_iter().zip(tallies);
    rows.map(|(bandwidth, tally)| row(case, run, bandwidth.ratio(), tally)).collect()
}

fn row(case: Case, run: Run, bandwidth: f64, tally: Tally) -> Row {
    let Case { schedule, cached } = case;
    let mut row = Row {
        schedule,
        cached,
        bandwidth,
        ready: share(tally.ready, tally.steady),
        table: reference::ready(schedule as usize, cached, bandwidth),
        bound: (cached + bandwidth).min(1.0),
        cold: share(tally.cold, tally.reads),
        minimal_cold: 1.0 - forms::best(run),
        is_met: None,
    };
    row.is_met = is_met(&row);
    row
}

/// A hundredth from the bound, and a hundredth more cold reads than the fewest. Staging that is taken
/// out of the cache costs a hundredth of the cache in cold reads under any schedule, which is more
/// than a hundredth of the fewest if the cache is large: with such staging only the bound is checked.
fn is_met(row: &Row) -> Option<bool> {
    let is_near = (row.bound - row.ready).abs() <= 0.01;
    match row.schedule {
        Schedule::Earliest | Schedule::BeladyInTime => None,
        Schedule::GapInTime => Some(is_near),
        Schedule::GapInTimeBeside => Some(is_near && row.cold <= row.minimal_cold * 1.01),
    }
}

/// The reads that `gap` does not keep, in the order in which the node reads.
fn misses_of_gap(run: Run, accesses: u32, slots: u32) -> Vec<bool> {
    let mut setting = retention::setting(run, accesses);
    let sample = setting.sizes[0];
    setting.capacities[0].0 = sample.0 * u64::from(slots);
    let mut replay = Replay::new(Kind::Gap, &setting);
    let mut misses = Vec::with_capacity(accesses as usize * run.epochs as usize);
    while replay.epoch_seen(&mut |_, _, tier| misses.push(tier.is_none())).is_some() {}
    misses
}

#[cfg(test)]
mod tests;
