//! How evenly cold bytes are spread over ranks and steps.

use serde::Serialize;
use tierfeed_core::{
    id::NodeId,
    order::{FurtherDatasets, Position, Shuffle, Spec, World},
    retention::{
        policy::{Aim, Kind, Setting},
        replay::Replay,
    },
    units::Bytes,
};

use super::{forms, retention::share};
use crate::sizes::{Lognormal, part_of};

const RANKS: u32 = 8;
const BATCH: u32 = 32;
const CACHED: f64 = 0.296;
const EPOCHS: u32 = 6;
const SEED: u64 = 7;

/// Multiples of the grain in which tiers are filled come nearest to [`Sizes::Photographs`].
const EQUAL: Bytes = Bytes(110_016);

const PHOTOGRAPHS: Lognormal = Lognormal { mean_bytes: 110_000.0, sigma: 0.5, seed: 3 };

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub policy: &'static str,
    /// Nodes that share an epoch.
    pub nodes: u32,
    pub sizes: Sizes,
    /// Mean of a rank and step, in the epochs that count.
    pub mean_bytes: f64,
    /// The largest deviation of a rank and step from the mean of its epoch.
    pub deviation_bytes: f64,
    pub largest_bytes: u64,
    /// Whether it is within the promise; absent without one.
    pub is_met: Option<bool>,
}

impl Row {
    /// The deviation in units of the largest sample.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.deviation_bytes / in_bytes(self.largest_bytes)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sizes {
    Equal,
    /// A lognormal law with sigma 0.5, about as in ImageNet.
    Photographs,
}

impl Sizes {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Photographs => "photographs",
        }
    }
}

const POLICIES: [&str; 5] = ["gap", "belady", "nopfs", "lobster", "pinned"];

#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    kind: Kind,
    nodes: u32,
    sizes: Sizes,
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for nodes in [3, 1] {
        for sizes in [Sizes::Equal, Sizes::Photographs] {
            let kinds = Kind::ALL.into_iter().filter(|kind| POLICIES.contains(&kind.name()));
            cases.extend(kinds.map(|kind| Case { kind, nodes, sizes }));
        }
    }
    cases
}

/// Replays some epochs of `accesses` reads, less the remainder that does not fill a step.
pub(super) fn measure(case: Case, accesses: u32) -> Row {
    let Case { kind, nodes, sizes } = case;
    let setting = setting(case, accesses);
    let largest_bytes = setting.sizes.iter().map(|len| len.0).max().unwrap_or(1);
    let mut replay = Replay::new(kind, &setting);
    let first = forms::steady(nodes, CACHED).gap;
    let cells = (setting.order.steps_per_epoch() * RANKS) as usize;
    let (mut sum, mut deviation) = (Mean::default(), 0.0_f64);
    for epoch in 0..EPOCHS {
        let mut cold = vec![0_u64; cells];
        _ = replay.epoch_seen(&mut |batch, sample, tier| {
            let cell = (batch.step.0 * RANKS + batch.rank.0) as usize;
            let len = setting.sizes[sample.0 as usize];
            cold[cell] += if tier.is_none() { len.0 } else { 0 };
        });
        if epoch >= first {
            deviation = deviation.max(farthest_from_mean(&cold));
            cold.iter().for_each(|cold| sum.add(*cold));
        }
    }
    let policy = kind.name();
    let is_promised = kind == Kind::Gap && nodes == 1;
    Row {
        policy,
        nodes,
        sizes,
        mean_bytes: sum.get(),
        deviation_bytes: deviation,
        largest_bytes,
        is_met: is_promised.then(|| deviation < in_bytes(largest_bytes)),
    }
}

fn setting(case: Case, accesses: u32) -> Setting {
    let Case { nodes, sizes, .. } = case;
    let samples = (accesses / (RANKS * BATCH)).max(2) * RANKS * BATCH * nodes;
    let order = Spec {
        samples,
        shuffle: Shuffle::TORCH_DISTRIBUTED,
        seed: SEED,
        epochs: EPOCHS,
        drop_last: false,
        batch_size: BATCH,
        world: World { nodes, ranks_per_node: RANKS },
        start: Position::START,
        further: FurtherDatasets::NONE,
    };
    let sizes = match sizes {
        Sizes::Equal => vec![EQUAL; samples as usize].into(),
        Sizes::Photographs => PHOTOGRAPHS.sizes(samples),
    };
    let dataset: u64 = sizes.iter().map(|len: &Bytes| len.0).sum();
    let capacities = vec![part_of(dataset, CACHED)];
    Setting { order, node: NodeId(0), sizes, capacities, aim: Aim::default() }
}

fn farthest_from_mean(values: &[u64]) -> f64 {
    let mut mean = Mean::default();
    values.iter().for_each(|value| mean.add(*value));
    let mean = mean.get();
    values.iter().map(|value| (in_bytes(*value) - mean).abs()).fold(0.0, f64::max)
}

#[derive(Debug, Default)]
struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, value: u64) {
        self.sum += value;
        self.count += 1;
    }

    fn get(&self) -> f64 {
        share(self.sum, self.count)
    }
}

#[expect(clippy::cast_precision_loss, reason = "15 digits of a byte count are enough")]
fn in_bytes(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_from_the_mean_of_all_ranks_and_steps() {
        assert!((farthest_from_mean(&[10, 10, 10, 30]) - 15.0).abs() < 1e-9);
        assert!((farthest_from_mean(&[0, 20, 20, 20]) - 15.0).abs() < 1e-9);
        assert!(farthest_from_mean(&[]).abs() < 1e-9);
    }

    #[test]
    fn what_hits_by_chance_is_not_flat() {
        let fifo = Case { kind: Kind::Fifo, nodes: 1, sizes: Sizes::Equal };
        let row = measure(fifo, 4096);
        assert!(row.deviation() > 1.0, "{row:?}");
        assert_eq!(row.is_met, None);
        // A step without a cache reads all of its 32 samples, so there is nothing to deviate from.
        let row = measure(Case { kind: Kind::None, ..fifo }, 4096);
        assert!((row.mean_bytes - 32.0 * in_bytes(EQUAL.0)).abs() < 1e-3, "{row:?}");
        assert!(row.deviation() < 1e-9);
    }

    #[test]
    fn gap_is_flat_on_one_node() {
        for sizes in [Sizes::Equal, Sizes::Photographs] {
            let row = measure(Case { kind: Kind::Gap, nodes: 1, sizes }, 4096);
            assert_eq!(row.is_met, Some(true), "{} of the largest: {row:?}", row.deviation());
        }
    }
}
