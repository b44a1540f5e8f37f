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

/// A link as it was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkModel {
    /// What all operations together move in a second, by how many run at the same time.
    pub throughput: Throughput,
    /// What each operation waits for beside its bytes.
    pub latency: LatencyQuantiles,
    /// Operations that run at the same time; without a number, all that were given out.
    pub threads: Option<NonZeroU32>,
    /// How far it may be ahead of its throughput after it was idle, as disks with a limit and volumes with credits are.
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
    /// The least time in which it moves so many bytes.
    pub(super) fn time_for(&self, bytes: Bytes) -> Nanoseconds {
        Nanoseconds(self.peak().time_for(bytes).0.saturating_sub(self.burst.0))
    }

    /// The rate that the link reaches at best.
    fn peak(&self) -> BytesPerSecond {
        match self.threads {
            Some(threads) => self.throughput.peak_up_to(threads.get()),
            None => self.throughput.peak_up_to(u32::MAX),
        }
    }
}

/// An idle phase of a training: an evaluation, a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Steps from one to the next.
    pub every: NonZeroU32,
    /// How long it is.
    pub time: Nanoseconds,
}

/// What a thread needs for a part of a transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepCost {
    /// The fixed part for a sample, which is added to the part for its bytes.
    pub each: LatencyQuantiles,
    /// For each KiB of it, as it is stored.
    pub kib: Nanoseconds,
}

impl StepCost {
    /// The mean time for a sample of this length.
    #[must_use]
    pub fn mean(&self, stored: Bytes) -> Nanoseconds {
        Nanoseconds(self.each.mean().0.saturating_add(self.of_bytes(stored)))
    }

    fn of_bytes(&self, stored: Bytes) -> u64 {
        let time = u128::from(self.kib.0) * u128::from(stored.0) / 1024;
        u64::try_from(time).unwrap_or(u64::MAX)
    }
}

/// What a thread needs to transform a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformCosts {
    /// From the stored form to the prepared one.
    pub prepare: StepCost,
    /// From the prepared form to the row; it depends on the length of none.
    pub rest: LatencyQuantiles,
}

impl TransformCosts {
    /// Costs of which the mean is known: to prepare a sample costs as much as it has bytes, where the mean sample
    /// has `stored`.
    #[must_use]
    pub fn of_mean(each: SampleTime, stored: Bytes) -> Self {
        let kib = u128::from(each.prepare.0) * 1024 / u128::from(stored.0.max(1));
        let kib = Nanoseconds(u64::try_from(kib).unwrap_or(u64::MAX));
        let prepare = StepCost { each: LatencyQuantiles::constant(Nanoseconds(0)), kib };
        Self { prepare, rest: LatencyQuantiles::constant(each.rest) }
    }

    /// The mean time for a sample that arrived in a form, `read` bytes long.
    #[must_use]
    pub fn mean(&self, form: Form, read: Bytes) -> Nanoseconds {
        let prepare = match form {
            Form::Stored => self.prepare.mean(read).0,
            Form::Prepared => 0,
        };
        Nanoseconds(prepare.saturating_add(self.rest.mean().0))
    }

    /// The time for a sample that arrived in a form, `read` bytes long.
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

/// The other nodes of a job that share what they hold. They answer at once, as nodes do that keep step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers {
    /// The network, as one node receives over it.
    pub link: LinkModel,
    /// All nodes of the job by number.
    pub members: Arc<[Member]>,
}

/// The machine and the training that a session is run against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The cold store as it was measured.
    pub cold: LinkModel,
    /// The cache tiers, as in [`crate::session::Settings::tiers`].
    pub tiers: Vec<LinkModel>,
    /// The other nodes, if what they hold is read from them.
    pub peers: Option<Peers>,
    /// What transforms cost, if the job has any; without it they take no time.
    pub transforms: Option<TransformCosts>,
    /// What a rank computes in a training step, loading excluded. A step takes as long as its slowest
    /// rank of the node.
    pub step_time: LatencyQuantiles,
    /// What the training does between steps now and then, reading nothing.
    pub pause: Option<Pause>,
    /// How long the agent reads before the training begins.
    pub head_start: Nanoseconds,
    /// Of everything that is drawn at random.
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
