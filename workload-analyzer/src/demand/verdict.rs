//! Compares a demand with the figures of a node: how long an epoch takes, and which part is the bottleneck.

use serde::Serialize;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds, float};

use super::{
    Demand, Rule, RuleOutcome, Supply,
    epoch::{Bound, Epoch, TierLoad, per_node, preprocessing},
    limit::part_of,
    rate_of, seconds,
};

/// The duration of an epoch on nodes like the one that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// The size of all caches of a node as a share of the bytes of an epoch; at most 1.
    pub cached_share: f64,
    pub policy: Rule,
    /// The share of reads that hit the cache.
    pub hit_ratio: f64,
    /// The tiers of a node, fastest first.
    pub tiers: Vec<TierLoad>,
    /// Bytes that all nodes together read cold in an epoch after the first.
    #[serde(rename = "cold_bytes")]
    pub cold: Bytes,
    /// The time in which each node reads its part of these bytes.
    #[serde(rename = "cold_s", serialize_with = "seconds::plain")]
    pub cold_time: Nanoseconds,
    /// The rate of the cold store for each node with which no trainer stalls for it in an epoch after the
    /// first; known if the step time is.
    #[serde(rename = "cold_needed_bytes_per_s")]
    pub cold_needed: Option<BytesPerSecond>,
    /// The same in the first epoch.
    #[serde(rename = "first_epoch_cold_needed_bytes_per_s")]
    pub first_epoch_cold_needed: Option<BytesPerSecond>,
    /// The rate of the cold store for each node; 0 if unlimited or unknown.
    #[serde(rename = "cold_bytes_per_s")]
    pub cold_rate: BytesPerSecond,
    /// Bytes that all nodes together must read cold with any policy.
    #[serde(rename = "minimal_cold_bytes")]
    pub minimal_cold: Bytes,
    /// The time that the trainers compute in an epoch; `None` if the step time is unknown.
    #[serde(rename = "compute_s", serialize_with = "seconds::optional")]
    pub compute: Option<Nanoseconds>,
    /// The time that the loaders preprocess in an epoch; `None` if the job does not give it. Includes the
    /// compute time if the trainer preprocesses between its steps.
    #[serde(rename = "preprocessing_s", serialize_with = "seconds::optional")]
    pub preprocessing: Option<Nanoseconds>,
    /// The time in which all batches arrive, with as many in flight as are staged.
    #[serde(rename = "pipeline_s", serialize_with = "seconds::plain")]
    pub pipeline: Nanoseconds,
    /// The lower bound for any policy after the first epoch: the longer of computing and reading cold.
    #[serde(rename = "lower_bound_s", serialize_with = "seconds::plain")]
    pub lower_bound: Nanoseconds,
    /// The same for the first epoch, in which every byte is read cold.
    #[serde(rename = "first_epoch_lower_bound_s", serialize_with = "seconds::plain")]
    pub first_epoch_lower_bound: Nanoseconds,
    /// The part that takes longest in an epoch after the first.
    pub bound_by: Bound,
    /// The part that takes longest in the first epoch.
    pub first_epoch_bound_by: Bound,
    /// The stall of the trainers in an epoch after the first: zero if the tiers can meet the demand, `None`
    /// if the step time is unknown.
    #[serde(rename = "stall_s", serialize_with = "seconds::optional")]
    pub stall: Option<Nanoseconds>,
    /// The stall as a percentage of the duration of such an epoch.
    pub stall_percent: Option<f64>,
    #[serde(rename = "first_epoch_stall_s", serialize_with = "seconds::optional")]
    pub first_epoch_stall: Option<Nanoseconds>,
    #[serde(rename = "job_stall_s", serialize_with = "seconds::optional")]
    pub job_stall: Option<Nanoseconds>,
    /// The results of all rules on the same tiers.
    pub policies: Vec<RuleOutcome>,
}

/// Computes whether a node with `supply` can meet `demand`.
///
/// Assumes that every node has these tiers and its own link of this speed. Trainer, loader, tiers and cold
/// store work at the same time, so an epoch takes as long as the slowest of them.
///
/// # Source
///
/// `docs/demand.md`. The hit ratios are derived in `demand/limit.rs`; they also hold between any two tiers.
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
    let stall_of = |longest: Nanoseconds| {
        compute.map(|compute| Nanoseconds(longest.0.saturating_sub(compute.0)))
    };
    let (stall, first_epoch_stall) = (stall_of(longest), stall_of(first_longest));
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

fn percent(part: Nanoseconds, whole: Nanoseconds) -> f64 {
    if whole.0 == 0 { 0.0 } else { float(part.0) * 100.0 / float(whole.0) }
}
