//! How evenly the cold bytes of an epoch fall on its steps and ranks: bursts stall what a mean would not.

use serde::Serialize;
use tierfeed_core::simulator::StepOutcome;

/// Cold bytes of the steps or batches of an epoch. Those that are not full do not count.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Of the one that has the least.
    pub min_bytes: u64,
    /// On average.
    pub mean_bytes: f64,
    /// Of the one that has the most.
    pub max_bytes: u64,
}

/// The spreads of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepSpreads {
    /// Over its steps, the ranks of a node together.
    pub step_cold: Option<Spread>,
    /// Over the batches of each rank.
    pub rank_step_cold: Option<Spread>,
}

/// Both while the epoch goes on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Spreads {
    steps: Extent,
    batches: Extent,
}

#[derive(Debug, Clone, Copy, Default)]
struct Extent {
    min: u64,
    max: u64,
    sum: u128,
    count: u64,
}

impl Spreads {
    pub(super) fn add(&mut self, step: &StepOutcome, batch_size: u32) {
        let mut is_whole = true;
        for rank in &step.ranks {
            if rank.samples == batch_size {
                self.batches.add(rank.cold.0);
            } else {
                is_whole = false;
            }
        }
        if is_whole {
            self.steps.add(step.cold().0);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.steps.merge(&other.steps);
        self.batches.merge(&other.batches);
    }

    pub(super) fn finish(&self) -> StepSpreads {
        StepSpreads { step_cold: self.steps.finish(), rank_step_cold: self.batches.finish() }
    }
}

impl Extent {
    fn add(&mut self, bytes: u64) {
        self.merge(&Self { min: bytes, max: bytes, sum: bytes.into(), count: 1 });
    }

    fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }

    #[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits")]
    fn finish(&self) -> Option<Spread> {
        (self.count > 0).then(|| Spread {
            min_bytes: self.min,
            mean_bytes: self.sum as f64 / self.count as f64,
            max_bytes: self.max,
        })
    }
}
