//! Puts a demand against the figures of a node: what an epoch costs at least, and who is the brake.

use serde::{Serialize, Serializer};
use tierfeed_core::{
    tier::{self, Speed},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{
    Demand,
    limit::{hit_share, part_of, share_of},
    plain,
};

/// A tier of a node as it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierFigure {
    /// What it is.
    pub kind: tier::Kind,
    /// What it can keep for the cache; staging does not count.
    pub capacity: Bytes,
    /// How fast it is read. Zero means unlimited.
    pub read: BytesPerSecond,
}

/// What a tier must give in an epoch after the first, on each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TierLoad {
    /// What it is.
    #[serde(serialize_with = "plain::kind")]
    pub kind: tier::Kind,
    /// Bytes that it keeps.
    #[serde(rename = "cached_bytes", serialize_with = "plain::bytes")]
    pub cached: Bytes,
    /// Bytes that are read from it.
    #[serde(rename = "read_bytes", serialize_with = "plain::bytes")]
    pub read: Bytes,
    /// How long that takes at its speed.
    #[serde(rename = "read_s", serialize_with = "plain::seconds")]
    pub time: Nanoseconds,
}

/// What keeps an epoch from being shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The trainer: the tiers are fast enough.
    Compute,
    /// Reading what no cache can hold.
    ColdStore,
    /// Reading what this tier holds.
    Tier(tier::Kind),
}

impl Bound {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::ColdStore => "cold-store",
            Self::Tier(kind) => kind.name(),
        }
    }
}

impl Serialize for Bound {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// What an epoch costs at least on nodes like the one that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The caches of a node together, as a share of the bytes of an epoch; at most 1.
    pub cached_share: f64,
    /// The tiers of a node, fastest first.
    pub tiers: Vec<TierLoad>,
    /// Bytes that all nodes together must read cold in an epoch after the first.
    #[serde(rename = "minimal_cold_bytes", serialize_with = "plain::bytes")]
    pub minimal_cold: Bytes,
    /// How long each node reads its part of them.
    #[serde(rename = "cold_s", serialize_with = "plain::seconds")]
    pub cold_time: Nanoseconds,
    /// How long the trainers compute, if the step time is known.
    #[serde(rename = "compute_s", serialize_with = "plain::optional_seconds")]
    pub compute: Option<Nanoseconds>,
    /// What no policy can undercut after the first epoch: the longer of computing and reading cold.
    #[serde(rename = "lower_bound_s", serialize_with = "plain::seconds")]
    pub lower_bound: Nanoseconds,
    /// The same for the first epoch, in which every byte is read cold.
    #[serde(rename = "first_epoch_lower_bound_s", serialize_with = "plain::seconds")]
    pub first_epoch_lower_bound: Nanoseconds,
    /// What takes longest in an epoch after the first.
    pub bound_by: Bound,
    /// How long the trainers wait at least in an epoch after the first; zero if the tiers can meet
    /// the demand, unknown without the step time.
    #[serde(rename = "stall_s", serialize_with = "plain::optional_seconds")]
    pub stall: Option<Nanoseconds>,
}

/// Judges whether `tiers`, fastest first, and a cold store of the speed `cold` can meet `demand`.
///
/// Every node is taken to have these tiers and a link of this speed of its own. Latency is left out:
/// reads overlap, so it costs the first batch and not the epoch.
///
/// # Source
///
/// The least that is read cold is derived in `demand/limit.rs`; it holds between every two tiers too,
/// so the samples with the shortest gaps lie in the fastest.
#[must_use]
pub fn verdict(demand: &Demand, tiers: &[TierFigure], cold: Speed) -> Verdict {
    let loads = tier_loads(demand, tiers);
    let cached = loads.iter().fold(0, |sum: u64, load| sum.saturating_add(load.cached.0));
    let cached_share = share_of(Bytes(cached), demand.epoch);
    let minimal_cold = part_of(demand.epoch, 1.0 - hit_share(cached_share, demand.nodes));
    let cold_time = cold.bandwidth.time_for(per_node(minimal_cold, demand));
    let first_cold_time = cold.bandwidth.time_for(per_node(demand.epoch, demand));
    let compute = demand.compute_per_epoch();
    let busy = compute.unwrap_or_default();
    let (bound_by, longest) = longest(compute, cold_time, &loads);
    Verdict {
        cached_share,
        tiers: loads,
        minimal_cold,
        cold_time,
        compute,
        lower_bound: busy.max(cold_time),
        first_epoch_lower_bound: busy.max(first_cold_time),
        bound_by,
        stall: compute.map(|compute| Nanoseconds(longest.0.saturating_sub(compute.0))),
    }
}

fn tier_loads(demand: &Demand, tiers: &[TierFigure]) -> Vec<TierLoad> {
    let (mut kept, mut read) = (0, 0);
    let load = |tier: &TierFigure| {
        let cached = tier.capacity.0.min(demand.epoch.0 - kept);
        kept += cached;
        let hits = hit_share(share_of(Bytes(kept), demand.epoch), demand.nodes);
        let read_so_far = per_node(part_of(demand.epoch, hits), demand).0;
        let read_here = Bytes(read_so_far.saturating_sub(read));
        read = read_so_far;
        TierLoad {
            kind: tier.kind,
            cached: Bytes(cached),
            read: read_here,
            time: tier.read.time_for(read_here),
        }
    };
    tiers.iter().map(load).collect()
}

fn per_node(bytes: Bytes, demand: &Demand) -> Bytes {
    Bytes(bytes.0.div_ceil(u64::from(demand.nodes)))
}

/// The first of equals: tiers that just keep up are not the brake.
fn longest(
    compute: Option<Nanoseconds>,
    cold_time: Nanoseconds,
    loads: &[TierLoad],
) -> (Bound, Nanoseconds) {
    let mut longest = (Bound::Compute, compute.unwrap_or_default());
    let tiers = loads.iter().map(|load| (Bound::Tier(load.kind), load.time));
    for candidate in [(Bound::ColdStore, cold_time)].into_iter().chain(tiers) {
        if candidate.1 > longest.1 {
            longest = candidate;
        }
    }
    longest
}
