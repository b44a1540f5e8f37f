//! What is known of a machine: links with a rate by threads and a spread of latencies, and a training
//! whose steps do not all take the same time.

use alloc::{sync::Arc, vec::Vec};
use core::num::NonZeroU32;

use super::Model;
use crate::{
    latency_quantiles::{Draws, LatencyQuantiles},
    retention::{form::SampleTime, partition::Member},
    session::Form,
    throughput::Throughput,
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkModel {
    /// The rate of all operations together, by how many run at the same time.
    pub throughput: Throughput,
    /// The time of each operation beside the transfer of its bytes.
    pub latency: LatencyQuantiles,
    /// Operations that run at the same time; `None` for all that were given out.
    pub threads: Option<NonZeroU32>,
    /// The time by which it may be ahead of its throughput after it was idle, as disks with a limit and
    /// volumes with credits are.
    pub burst: Nanoseconds,
}

impl From<Speed> for LinkModel {
    fn from(speed: Speed) -> Self {
        Self {
            throughput: Throughput::constant(speed.bandwidth),
            latency: LatencyQuantiles::constant(speed.latency),
            threads: None,
            burst: Nanoseconds(0),
        }
    }
}

impl LinkModel {
    pub(super) fn time_for(&self, bytes: Bytes) -> Nanoseconds {
        Nanoseconds(self.peak().time_for(bytes).0.saturating_sub(self.burst.0))
    }

    fn peak(&self) -> BytesPerSecond {
        match self.threads {
            Some(threads) => self.throughput.peak_up_to(threads.get()),
            None => self.throughput.peak_up_to(u32::MAX),
        }
    }
}

/// An idle phase of a training, such as an evaluation or a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// The number of steps from one pause to the next.
    pub every: NonZeroU32,
    pub time: Nanoseconds,
}

/// The time of a thread for a part of a transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCost {
    /// The fixed part for a sample, which is added to the part for its bytes.
    pub each: LatencyQuantiles,
    /// For each KiB of the stored sample.
    pub kib: Nanoseconds,
}

impl StepCost {
    #[must_use]
    pub fn mean(&self, stored: Bytes) -> Nanoseconds {
        Nanoseconds(self.each.mean().0.saturating_add(self.of_bytes(stored)))
    }

    fn of_bytes(&self, stored: Bytes) -> u64 {
        let time = u128::from(self.kib.0) * u128::from(stored.0) / 1024;
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

/// The time of a thread to transform a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformCosts {
    /// From the stored form to the prepared one.
    pub prepare: StepCost,
    /// From the prepared form to the row; it does not depend on a length.
    pub rest: LatencyQuantiles,
}

impl TransformCosts {
    /// Costs of which the means are known. The time to prepare a sample is proportional to its length;
    /// `stored` is the mean length.
    #[must_use]
    pub fn of_mean(each: SampleTime, stored: Bytes) -> Self {
        let kib = u128::from(each.prepare.0) * 1024 / u128::from(stored.0.max(1));
        let kib = Nanoseconds(u64::try_from(kib).unwrap_or(u64::MAX));
        let prepare = StepCost { each: LatencyQuantiles::constant(Nanoseconds(0)), kib };
        Self { prepare, rest: LatencyQuantiles::constant(each.rest) }
    }

    /// `read` is the length of the sample in the form in which it arrived.
    #[must_use]
    pub fn mean(&self, form: Form, read: Bytes) -> Nanoseconds {
        let prepare = match form {
            Form::Stored => self.prepare.mean(read).0,
            Form::Prepared => 0,
        };
        Nanoseconds(prepare.saturating_add(self.rest.mean().0))
    }

    /// `read` is the length of the sample in the form in which it arrived.
    pub(super) fn draw(&self, form: Form, read: Bytes, draws: &mut Draws) -> Nanoseconds {
        let prepare = match form {
            Form::Stored => {
                self.prepare.each.draw(draws).0.saturating_add(self.prepare.of_bytes(read))
            }
            Form::Prepared => 0,
        };
        Nanoseconds(prepare.saturating_add(self.rest.draw(draws).0))
    }
}

/// The other nodes of a job that share the samples that they hold. They answer at once, as nodes do that
/// keep step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    pub link: LinkModel,
    /// By node number.
    pub members: Arc<[Member]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub cold: LinkModel,
    /// As in [`crate::session::Settings::tiers`].
    pub tiers: Vec<LinkModel>,
    /// `None` if nothing is read from other nodes.
    pub peers: Option<Peers>,
    /// `None` if transforms take no time.
    pub transforms: Option<TransformCosts>,
    /// The time that a rank computes in a training step, without loading. A step takes as long as its
    /// slowest rank of the node.
    pub step_time: LatencyQuantiles,
    /// The pauses of the training between steps, in which it reads nothing.
    pub pause: Option<Pause>,
    /// The time that the agent reads before the training begins.
    pub head_start: Nanoseconds,
    pub seed: u64,
}

impl Peers {
    /// The part of a demand that all nodes together cannot hold.
    pub(super) fn part_of(&self, demand: Bytes, dataset: u64) -> Bytes {
        let room = self.members.iter().fold(0_u64, |sum, it| sum.saturating_add(it.room.0));
        let missing = dataset.saturating_sub(room);
        let part = u128::from(demand.0) * u128::from(missing) / u128::from(dataset.max(1));
        Bytes(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

impl From<&Model> for Machine {
    fn from(model: &Model) -> Self {
        Self {
            cold: LinkModel {
                threads: model.cold_threads,
                burst: model.cold_burst,
                ..model.cold.into()
            },
            tiers: model.tiers.iter().map(|speed| LinkModel::from(*speed)).collect(),
            peers: None,
            transforms: model.transforms.clone(),
            step_time: LatencyQuantiles::constant(model.step_time),
            pause: model.pause,
            head_start: model.head_start,
            seed: 0,
        }
    }
}
