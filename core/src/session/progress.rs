//! What a session has done so far, for reports and for the manager.

use alloc::{collections::BTreeMap, vec, vec::Vec};

use crate::{
    id::{BatchId, Epoch, Rank, SampleId, Step, TierId},
    session::Fault,
    units::{Bytes, Nanoseconds},
};

/// Faults that are kept with the sample they befell; beyond, they are only counted.
pub const FAULTS_KEPT: usize = 1000;

/// A trainer that waits no longer than this found its batch ready.
pub const READY_WITHIN: Nanoseconds = Nanoseconds(100_000);

/// Sums of one epoch on this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EpochProgress {
    /// Batches that trainers took, all ranks of the node together.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes in them.
    pub demand: Bytes,
    /// Bytes read from the cold store.
    pub cold: Bytes,
    /// Bytes read from each tier, by [`TierId`].
    pub from_tier: Vec<Bytes>,
    /// Samples read from each tier.
    pub hits: Vec<u64>,
    /// Bytes of the batches that were [ready](READY_WITHIN) when the trainer asked.
    pub ready: Bytes,
    /// Time for which trainers waited, summed over ranks.
    pub stall: Nanoseconds,
}

/// Consecutive batches that a rank was given in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Of which epoch.
    pub epoch: Epoch,
    /// The first of them.
    pub first: Step,
    /// How many.
    pub count: u32,
}

/// Runs in which a batch is looked for that may continue them: worker processes of a loader take
/// batches a little out of turn.
const RUNS_OPEN: usize = 16;

/// Adds a batch to the run that it continues, before or behind, or starts a new one.
fn record(runs: &mut Vec<Run>, epoch: Epoch, step: Step) {
    let open = runs.len().saturating_sub(RUNS_OPEN);
    let follows = |run: &Run| run.epoch == epoch && run.first.0 + run.count == step.0;
    let precedes = |run: &Run| run.epoch == epoch && run.first.0 == step.0 + 1;
    let before = (open..runs.len()).find(|at| follows(&runs[*at]));
    let behind = (open..runs.len()).find(|at| precedes(&runs[*at]));
    match (before, behind) {
        (Some(before), Some(behind)) => {
            runs[before].count += 1 + runs[behind].count;
            runs.remove(behind);
        }
        (Some(before), None) => runs[before].count += 1,
        (None, Some(behind)) => {
            runs[behind].first = step;
            runs[behind].count += 1;
        }
        (None, None) => runs.push(Run { epoch, first: step, count: 1 }),
    }
}

/// Everything that a session has done.
#[derive(Debug, Clone)]
pub struct Progress {
    /// By epoch number.
    pub epochs: Vec<EpochProgress>,
    /// What each rank took, in the order in which it took it; batches that several holders of a rank
    /// took a little out of turn are put in turn.
    pub handed: BTreeMap<Rank, Vec<Run>>,
    /// The first faults, in the order in which they came.
    pub faults: Vec<(SampleId, Fault)>,
    /// All faults of samples.
    pub fault_count: u64,
    /// Operations of tiers that failed, each of which costs at most cold reads.
    pub tier_faults: u64,
    /// How long trainers waited for each batch.
    pub waits: Waits,
    tiers: usize,
}

impl Progress {
    pub(super) fn new(epochs: u32, tiers: usize) -> Self {
        let epoch = EpochProgress {
            from_tier: vec![Bytes(0); tiers],
            hits: vec![0; tiers],
            ..EpochProgress::default()
        };
        Self {
            epochs: vec![epoch; epochs as usize],
            handed: BTreeMap::new(),
            faults: Vec::new(),
            fault_count: 0,
            tier_faults: 0,
            waits: Waits::default(),
            tiers,
        }
    }

    pub(super) fn delivered(
        &mut self,
        batch: BatchId,
        samples: u64,
        len: Bytes,
        wait: Nanoseconds,
    ) {
        let epoch = &mut self.epochs[batch.epoch.0 as usize];
        epoch.batches += 1;
        epoch.samples += samples;
        epoch.demand.0 += len.0;
        epoch.stall.0 = epoch.stall.0.saturating_add(wait.0);
        if wait <= READY_WITHIN {
            epoch.ready.0 += len.0;
        }
        self.waits.record(wait);
        let runs = self.handed.entry(batch.rank).or_default();
        record(runs, batch.epoch, batch.step);
    }

    /// The last batch, in the order of the job, that a rank took.
    pub(super) fn farthest(&self, rank: Rank) -> Option<BatchId> {
        let runs = self.handed.get(&rank)?.iter();
        let ends = runs.map(|run| (run.epoch, Step(run.first.0 + run.count - 1)));
        ends.max().map(|(epoch, step)| BatchId { epoch, step, rank })
    }

    pub(super) fn read(&mut self, epoch: Epoch, tier: Option<TierId>, len: Bytes) {
        let tiers = self.tiers;
        let epoch = &mut self.epochs[epoch.0 as usize];
        match tier.map(|tier| usize::from(tier.0)).filter(|tier| *tier < tiers) {
            Some(tier) => {
                epoch.from_tier[tier].0 += len.0;
                epoch.hits[tier] += 1;
            }
            None => epoch.cold.0 += len.0,
        }
    }

    pub(super) fn fault(&mut self, sample: SampleId, fault: Fault) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push((sample, fault));
        }
    }
}

/// Buckets in each doubling of the wait: a percentile is at most 1/16 too high.
const BUCKETS_PER_OCTAVE: u64 = 16;

/// How often trainers waited how long, in buckets that grow with the wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waits {
    buckets: BTreeMap<u64, u64>,
    count: u64,
    max: Nanoseconds,
}

impl Waits {
    fn record(&mut self, wait: Nanoseconds) {
        *self.buckets.entry(bucket(wait.0)).or_default() += 1;
        self.count += 1;
        self.max = self.max.max(wait);
    }

    /// Waits recorded.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The longest wait.
    #[must_use]
    pub fn max(&self) -> Nanoseconds {
        self.max
    }

    /// A wait that at least `percent` of all waits do not exceed.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Nanoseconds {
        let rank = (self.count * u64::from(percent)).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return Nanoseconds(upper_end(*bucket)).min(self.max);
            }
        }
        self.max
    }

    /// Adds the waits of another node.
    pub fn merge(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            *self.buckets.entry(*bucket).or_default() += count;
        }
        self.count += other.count;
        self.max = self.max.max(other.max);
    }

    /// The buckets as (longest wait in it, count), for the wire.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanoseconds, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (Nanoseconds(upper_end(*bucket)), *count))
    }

    /// The waits that [`Self::buckets`] and [`Self::max`] describe.
    #[must_use]
    pub fn from_buckets(buckets: &[(Nanoseconds, u64)], max: Nanoseconds) -> Self {
        let mut waits = Self { max, ..Self::default() };
        for (wait, count) in buckets {
            *waits.buckets.entry(bucket(wait.0)).or_default() += count;
            waits.count += count;
        }
        waits
    }
}

fn bucket(value: u64) -> u64 {
    if value < BUCKETS_PER_OCTAVE {
        return value;
    }
    let shift = u64::from(value.ilog2() - BUCKETS_PER_OCTAVE.ilog2());
    (shift << 32) | (value >> shift)
}

fn upper_end(bucket: u64) -> u64 {
    let (shift, mantissa) = (bucket >> 32, bucket & 0xffff_ffff);
    (mantissa << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_at_most_a_sixteenth_too_high(
            mut waits in prop::collection::vec(0_u64..10_000_000_000, 1..200), percent in 1_u8..=100,
        ) {
            let mut recorded = Waits::default();
            waits.iter().for_each(|wait| recorded.record(Nanoseconds(*wait)));
            waits.sort_unstable();
            let rank = (waits.len() * usize::from(percent)).div_ceil(100).max(1);
            let exact = waits[rank - 1];
            let reported = recorded.percentile(percent).0;
            prop_assert!(exact <= reported && reported <= exact + exact / 16, "{exact} {reported}");
            let buckets: Vec<_> = recorded.buckets().collect();
            prop_assert_eq!(Waits::from_buckets(&buckets, recorded.max()), recorded);
        }
    }
}
