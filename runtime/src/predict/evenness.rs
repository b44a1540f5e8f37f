//! How evenly the cold bytes of an epoch are distributed over its steps and ranks: bursts cause stalls that
//! the mean does not show.

use serde::Serialize;
use tierfeed_core::simulator::StepOutcome;

/// Least, mean and most cold bytes of the full steps or batches of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Evenness {
    pub min_bytes: u64,
    pub mean_bytes: f64,
    pub max_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepEvenness {
    /// Over its steps, the ranks of a node together.
    pub step_cold: Option<Evenness>,
    /// Over the batches of each rank.
    pub rank_step_cold: Option<Evenness>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EvennessSums {
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

impl EvennessSums {
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

    pub(super) fn finish(&self) -> StepEvenness {
        StepEvenness { step_cold: self.steps.finish(), rank_step_cold: self.batches.finish() }
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
    fn finish(&self) -> Option<Evenness> {
        (self.count > 0).then(|| Evenness {
            min_bytes: self.min,
            mean_bytes: self.sum as f64 / self.count as f64,
            max_bytes: self.max,
        })
    }
}
