//! The duration of one epoch on a node: that of the slowest of trainer, loader, tiers and cold store.

use serde::{Serialize, Serializer};
use tierfeed_core::{
    tier,
    units::{Bytes, Nanoseconds},
};

use super::{
    Demand, Supply,
    limit::{part_of, share_of},
    seconds,
};

/// The load of a tier in an epoch after the first, on each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TierLoad {
    pub kind: tier::Kind,
    #[serde(rename = "cached_bytes")]
    pub cached: Bytes,
    #[serde(rename = "read_bytes")]
    pub read: Bytes,
    pub requests: u64,
    /// The duration of these reads.
    #[serde(rename = "read_s", serialize_with = "seconds::plain")]
    pub time: Nanoseconds,
}

/// The part that determines the duration of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The trainer: the tiers are fast enough.
    Compute,
    /// The loader, which decodes and transforms samples.
    Preprocessing,
    /// The rate of the cold store.
    ColdStore,
    /// The latency of the cold store, with too few batches in flight.
    Latency,
    /// The read speed of this tier.
    Tier(tier::Kind),
}

impl Bound {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Preprocessing => "preprocessing",
            Self::ColdStore => "cold-store",
            Self::Latency => "latency",
            Self::Tier(kind) => kind.name(),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

#[derive(Debug)]
pub(super) struct Epoch {
    /// The size of the caches of the node as a share of the bytes of an epoch.
    pub(super) cached: f64,
    /// The share of reads that hit them.
    pub(super) hits: f64,
    pub(super) loads: Vec<TierLoad>,
    /// Bytes that all nodes together read cold.
    pub(super) cold: Bytes,
    /// The time in which this node reads its part of these bytes.
    pub(super) cold_time: Nanoseconds,
    /// The time in which all batches arrive with the given number in flight.
    pub(super) pipeline: Nanoseconds,
}

impl Epoch {
    /// Any epoch after the first.
    pub(super) fn later(demand: &Demand, supply: &Supply) -> Self {
        let loads = tier_loads(demand, supply);
        let cached = loads.iter().fold(0, |sum: u64, load| sum.saturating_add(load.cached.0));
        let cached = share_of(Bytes(cached), demand.epoch);
        let hits = supply.rule.hit_share(cached, demand.nodes);
        Self::with(demand, supply, loads, (cached, hits))
    }

    /// The first epoch, in which every byte is read cold.
    pub(super) fn first(demand: &Demand, supply: &Supply) -> Self {
        Self::with(demand, supply, Vec::new(), (0.0, 0.0))
    }

    fn with(
        demand: &Demand,
        supply: &Supply,
        loads: Vec<TierLoad>,
        (cached, hits): (f64, f64),
    ) -> Self {
        let cold = part_of(demand.epoch, 1.0 - hits);
        let cold_time = supply.cold.bandwidth.time_for(per_node(cold, demand));
        let pipeline = demand.steps_of(pipeline_step(demand, supply, hits));
        Self { cached, hits, loads, cold, cold_time, pipeline }
    }

    /// The part that takes longest; of equal ones the first, because tiers as fast as the trainer are no
    /// bottleneck.
    pub(super) fn longest(&self, demand: &Demand) -> (Bound, Nanoseconds) {
        let tiers = self.loads.iter().map(|load| (Bound::Tier(load.kind), load.time));
        let others = [
            (Bound::Preprocessing, preprocessing(demand).unwrap_or_default()),
            (Bound::ColdStore, self.cold_time),
            (Bound::Latency, self.pipeline),
        ];
        let mut longest = (Bound::Compute, demand.compute_per_epoch().unwrap_or_default());
        for candidate in others.into_iter().chain(tiers) {
            if candidate.1 > longest.1 {
                longest = candidate;
            }
        }
        longest
    }

    pub(super) fn tier_time(&self, index: usize) -> Nanoseconds {
        self.loads[index].time
    }
}

/// The time of the cold samples of a batch from the request to the last byte.
pub(super) fn arrival(demand: &Demand, supply: &Supply, hits: f64) -> Nanoseconds {
    let misses = 1.0 - hits;
    if misses <= 0.0 {
        return Nanoseconds(0);
    }
    let node_batch = demand.batch_mean.0.saturating_mul(demand.ranks_per_node.into());
    let transfer = supply.cold.bandwidth.time_for(part_of(Bytes(node_batch), misses));
    Nanoseconds(supply.cold.latency.0.saturating_add(transfer.0))
}

/// The time per batch if latency is the limit: a staged batch occupies one of `batches_ahead` places while it
/// arrives and while the trainer computes on it.
fn pipeline_step(demand: &Demand, supply: &Supply, hits: f64) -> Nanoseconds {
    let arrival = arrival(demand, supply, hits);
    if arrival == Nanoseconds(0) {
        return arrival;
    }
    let held = demand.step_time.unwrap_or_default();
    Nanoseconds(arrival.0.saturating_add(held.0).div_ceil(demand.batches_ahead.into()))
}

/// The time that the loaders preprocess in an epoch.
pub(super) fn preprocessing(demand: &Demand) -> Option<Nanoseconds> {
    let step = demand.preprocessing?;
    let beside = match demand.loader_workers {
        0 => demand.step_time.unwrap_or_default(),
        _ => Nanoseconds(0),
    };
    Some(demand.steps_of(Nanoseconds(step.0.saturating_add(beside.0))))
}

fn tier_loads(demand: &Demand, supply: &Supply) -> Vec<TierLoad> {
    let (mut kept, mut read) = (0, 0);
    let requests = u64::from(demand.samples_per_rank) * u64::from(demand.ranks_per_node);
    let node_bytes = per_node(demand.epoch, demand);
    supply
        .tiers
        .iter()
        .map(|tier| {
            let cached = tier.capacity.0.min(demand.epoch.0 - kept);
            kept += cached;
            let hits = supply.rule.hit_share(share_of(Bytes(kept), demand.epoch), demand.nodes);
            let read_so_far = per_node(part_of(demand.epoch, hits), demand).0;
            let read_here = Bytes(read_so_far.saturating_sub(read));
            read = read_so_far;
            let requests = part_of(Bytes(requests), share_of(read_here, node_bytes)).0;
            TierLoad {
                kind: tier.kind,
                cached: Bytes(cached),
                read: read_here,
                requests,
                time: tier.time_for(read_here, requests),
            }
        })
        .collect()
}

/// The part of each node, rounded up.
pub(super) fn per_node(bytes: Bytes, demand: &Demand) -> Bytes {
    Bytes(bytes.0.div_ceil(u64::from(demand.nodes)))
}
