//! Puts a demand against the figures of a node: what an epoch takes, and who is the brake.

use serde::{Serialize, Serializer};
use tierfeed_core::{
    tier,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{
    Demand, Rule, RuleOutcome, Supply,
    limit::{part_of, share_of},
    plain,
};

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
    /// Samples that are read from it.
    pub requests: u64,
    /// How long that takes at its speed.
    #[serde(rename = "read_s", serialize_with = "plain::seconds")]
    pub time: Nanoseconds,
}

/// What keeps an epoch from being shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The trainer: the tiers are fast enough.
    Compute,
    /// The loader, which decodes and transforms.
    Preprocessing,
    /// Reading what no cache holds.
    ColdStore,
    /// Waiting for the cold store to answer, with too few batches under way.
    Latency,
    /// Reading what this tier holds.
    Tier(tier::Kind),
}

impl Bound {
    /// The name in reports.
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

/// What an epoch costs on nodes like the one that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The caches of a node together, as a share of the bytes of an epoch; at most 1.
    pub cached_share: f64,
    /// The rule by which samples stay.
    pub policy: Rule,
    /// The share of reads that it saves.
    pub hit_ratio: f64,
    /// The tiers of a node, fastest first.
    pub tiers: Vec<TierLoad>,
    /// Bytes that all nodes together read cold in an epoch after the first.
    #[serde(rename = "cold_bytes", serialize_with = "plain::bytes")]
    pub cold: Bytes,
    /// How long each node reads its part of them.
    #[serde(rename = "cold_s", serialize_with = "plain::seconds")]
    pub cold_time: Nanoseconds,
    /// What the cold store must give to each node in an epoch after the first, so that nobody waits
    /// for it; known if the step time is.
    #[serde(rename = "cold_needed_bytes_per_s", serialize_with = "plain::optional_rate")]
    pub cold_needed: Option<BytesPerSecond>,
    /// The same in the first epoch.
    #[serde(
        rename = "first_epoch_cold_needed_bytes_per_s",
        serialize_with = "plain::optional_rate"
    )]
    pub first_epoch_cold_needed: Option<BytesPerSecond>,
    /// What it gives to each node as far as is known; 0 if unlimited or unknown.
    #[serde(rename = "cold_bytes_per_s", serialize_with = "plain::rate")]
    pub cold_rate: BytesPerSecond,
    /// Bytes that all nodes together must read cold whatever the policy.
    #[serde(rename = "minimal_cold_bytes", serialize_with = "plain::bytes")]
    pub minimal_cold: Bytes,
    /// How long the trainers compute, if the step time is known.
    #[serde(rename = "compute_s", serialize_with = "plain::optional_seconds")]
    pub compute: Option<Nanoseconds>,
    /// How long the loaders preprocess, if the job says it; where the trainer does it between steps,
    /// computing counts too.
    #[serde(rename = "preprocessing_s", serialize_with = "plain::optional_seconds")]
    pub preprocessing: Option<Nanoseconds>,
    /// How long the batches take to come one after the other, as many under way as are staged.
    #[serde(rename = "pipeline_s", serialize_with = "plain::seconds")]
    pub pipeline: Nanoseconds,
    /// What no policy can undercut after the first epoch: the longer of computing and reading cold.
    #[serde(rename = "lower_bound_s", serialize_with = "plain::seconds")]
    pub lower_bound: Nanoseconds,
    /// The same for the first epoch, in which every byte is read cold.
    #[serde(rename = "first_epoch_lower_bound_s", serialize_with = "plain::seconds")]
    pub first_epoch_lower_bound: Nanoseconds,
    /// What takes longest in an epoch after the first.
    pub bound_by: Bound,
    /// What takes longest in the first.
    pub first_epoch_bound_by: Bound,
    /// How long the trainers wait in an epoch after the first; zero if the tiers can meet the demand,
    /// unknown without the step time.
    #[serde(rename = "stall_s", serialize_with = "plain::optional_seconds")]
    pub stall: Option<Nanoseconds>,
    /// The same as a share of the time of such an epoch, in hundredths.
    pub stall_percent: Option<f64>,
    /// How long they wait in the first.
    #[serde(rename = "first_epoch_stall_s", serialize_with = "plain::optional_seconds")]
    pub first_epoch_stall: Option<Nanoseconds>,
    /// How long they wait in the whole job.
    #[serde(rename = "job_stall_s", serialize_with = "plain::optional_seconds")]
    pub job_stall: Option<Nanoseconds>,
    /// What other rules would come to.
    pub policies: Vec<RuleOutcome>,
}

/// Judges whether a node with `supply` can meet `demand`.
///
/// Every node is taken to have these tiers and a link of this speed of its own. Trainer, loader, tiers
/// and cold store work at the same time, so an epoch takes as long as the slowest of them.
///
/// # Source
///
/// `docs/demand.md`. The shares of hits are derived in `demand/limit.rs`; they hold between every two
/// tiers too.
#[must_use]
pub fn verdict(demand: &Demand, supply: &Supply) -> Verdict {
    let later = Epoch::later(demand, supply);
    let first = Epoch::first(demand, supply);
    let (bound_by, longest) = later.longest(demand);
    let (first_epoch_bound_by, first_longest) = first.longest(demand);
    let compute = demand.compute_per_epoch();
    let busy = compute.unwrap_or_default();
    let minimal_cold = part_of(demand.epoch, 1.0 - Rule::Gap.hit_share(later.cached, demand.nodes));
    let minimal_time = supply.cold.bandwidth.time_for(per_node(minimal_cold, demand));
    let waits = |longest: Nanoseconds| {
        compute.map(|compute| Nanoseconds(longest.0.saturating_sub(compute.0)))
    };
    let (stall, first_epoch_stall) = (waits(longest), waits(first_longest));
    Verdict {
        cached_share: later.cached,
        policy: supply.rule,
        hit_ratio: later.hits,
        cold: later.cold,
        cold_time: later.cold_time,
        cold_needed: compute.map(|time| rate_of(per_node(later.cold, demand), time)),
        first_epoch_cold_needed: compute.map(|time| rate_of(per_node(first.cold, demand), time)),
        cold_rate: supply.cold.bandwidth,
        minimal_cold,
        compute,
        preprocessing: preprocessing(demand),
        pipeline: later.pipeline,
        lower_bound: busy.max(minimal_time),
        first_epoch_lower_bound: busy.max(first.cold_time),
        bound_by,
        first_epoch_bound_by,
        stall,
        stall_percent: stall.map(|stall| percent(stall, longest)),
        first_epoch_stall,
        job_stall: stall.zip(first_epoch_stall).map(|(later, first)| {
            let epochs = u64::from(demand.epochs.saturating_sub(1));
            Nanoseconds(first.0.saturating_add(later.0.saturating_mul(epochs)))
        }),
        policies: Rule::ALL.into_iter().map(|rule| outcome(demand, supply, rule)).collect(),
        tiers: later.loads,
    }
}

fn outcome(demand: &Demand, supply: &Supply, rule: Rule) -> RuleOutcome {
    let epoch = Epoch::later(demand, &Supply { rule, ..supply.clone() });
    let (_, longest) = epoch.longest(demand);
    let stall = demand.compute_per_epoch().map(|it| Nanoseconds(longest.0.saturating_sub(it.0)));
    RuleOutcome { policy: rule, hit_ratio: epoch.hits, stall }
}

/// One epoch of one node.
#[derive(Debug)]
pub(super) struct Epoch {
    cached: f64,
    hits: f64,
    loads: Vec<TierLoad>,
    cold: Bytes,
    pub(super) cold_time: Nanoseconds,
    pipeline: Nanoseconds,
}

impl Epoch {
    /// Any epoch but the first.
    pub(super) fn later(demand: &Demand, supply: &Supply) -> Self {
        let loads = tier_loads(demand, supply);
        let cached = loads.iter().fold(0, |sum: u64, load| sum.saturating_add(load.cached.0));
        let cached = share_of(Bytes(cached), demand.epoch);
        let hits = supply.rule.hit_share(cached, demand.nodes);
        Self::with(demand, supply, loads, (cached, hits))
    }

    /// The first: every byte is read cold.
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

    /// What takes longest. The first of equals: tiers that just keep up are not the brake.
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

    /// How long the tier at `place` is read.
    pub(super) fn tier_time(&self, place: usize) -> Nanoseconds {
        self.loads[place].time
    }
}

/// How long a batch takes from the request to the last of its samples, as far as they are cold.
pub(super) fn arrival(demand: &Demand, supply: &Supply, hits: f64) -> Nanoseconds {
    let misses = 1.0 - hits;
    if misses <= 0.0 {
        return Nanoseconds(0);
    }
    let node_batch = demand.batch_mean.0.saturating_mul(demand.ranks_per_node.into());
    let transfer = supply.cold.bandwidth.time_for(part_of(Bytes(node_batch), misses));
    Nanoseconds(supply.cold.latency.0.saturating_add(transfer.0))
}

/// A batch that is staged takes its place for as long as it arrives and is computed on, and there are
/// as many places as batches ahead: one batch comes in that part of the time.
fn pipeline_step(demand: &Demand, supply: &Supply, hits: f64) -> Nanoseconds {
    let arrival = arrival(demand, supply, hits);
    if arrival == Nanoseconds(0) {
        return arrival;
    }
    let held = demand.step_time.unwrap_or_default();
    Nanoseconds(arrival.0.saturating_add(held.0).div_ceil(demand.batches_ahead.into()))
}

fn preprocessing(demand: &Demand) -> Option<Nanoseconds> {
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

fn per_node(bytes: Bytes, demand: &Demand) -> Bytes {
    Bytes(bytes.0.div_ceil(u64::from(demand.nodes)))
}

fn rate_of(bytes: Bytes, time: Nanoseconds) -> BytesPerSecond {
    let rate = (u128::from(bytes.0) * 1_000_000_000).div_ceil(time.0.max(1).into());
    BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "a percentage needs no more than 53 bits")]
fn percent(part: Nanoseconds, whole: Nanoseconds) -> f64 {
    if whole.0 == 0 { 0.0 } else { part.0 as f64 * 100.0 / whole.0 as f64 }
}
