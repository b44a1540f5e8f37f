//! Changes that reduce the stall: each is applied, and the verdict computed again.
//!
//! 1. A change is advised only if it reduces the stall by at least a hundredth.
//! 2. A size, rate or number is the smallest that removes the bottleneck, in the unit in which it is given;
//!    if another part stalls then, `stall_s_after` shows it.

use serde::{Serialize, Serializer};
use tierfeed_core::{
    tier,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

use super::{
    Bound, Demand, Rule, Supply,
    epoch::{Epoch, arrival},
    seconds,
    verdict::{Verdict, verdict},
};
use crate::job::PREFETCH_BATCHES_MAX;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub change: Change,
    /// The current value, as text.
    pub from: String,
    /// The advised value, as text.
    pub to: String,
    /// The stall of the trainers in the whole job without the change.
    #[serde(rename = "stall_s_before", serialize_with = "seconds::plain")]
    pub before: Nanoseconds,
    /// The stall of the trainers in the whole job with the change.
    #[serde(rename = "stall_s_after", serialize_with = "seconds::plain")]
    pub after: Nanoseconds,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Policy,
    CacheSize(tier::Kind),
    TierSpeed(tier::Kind),
    PrefetchBatches,
    /// The rate of the cold store for each node.
    ColdRate,
    LoaderWorkers,
}

impl Change {
    /// The key of the job file, or a name if there is no key.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Policy => "policy".to_owned(),
            Self::CacheSize(kind) => format!("tiers.{kind} cache"),
            Self::TierSpeed(kind) => format!("tiers.{kind} speed"),
            Self::PrefetchBatches => "prefetch.batches".to_owned(),
            Self::ColdRate => "cold store rate".to_owned(),
            Self::LoaderWorkers => "loader.workers".to_owned(),
        }
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}

/// The changes that help, the most effective first; empty if the trainers never stall or the step time is
/// unknown.
#[must_use]
pub fn advice(demand: &Demand, supply: &Supply) -> Vec<Advice> {
    let verdict = verdict(demand, supply);
    let Some(before) = verdict.job_stall.filter(|stall| stall.0 > 0) else { return Vec::new() };
    let baseline = Baseline { demand, supply, verdict: &verdict, before };
    let mut found: Vec<_> =
        [baseline.policy(), baseline.depth(), baseline.workers(), baseline.cold_rate()]
            .into_iter()
            .flatten()
            .chain((0..supply.tiers.len()).filter_map(|index| baseline.capacity(index)))
            .chain((0..supply.tiers.len()).filter_map(|index| baseline.tier_rate(index)))
            .filter(|advice| before.0 - advice.after.0.min(before.0) >= before.0.div_ceil(100))
            .collect();
    // A stable sort: equal changes stay in the order above, the cheaper first.
    found.sort_by_key(|advice| advice.after);
    found
}

/// The job without any change.
struct Baseline<'a> {
    demand: &'a Demand,
    supply: &'a Supply,
    verdict: &'a Verdict,
    before: Nanoseconds,
}

impl Baseline<'_> {
    fn policy(&self) -> Option<Advice> {
        if self.supply.rule == Rule::Gap {
            return None;
        }
        let changed = verdict(self.demand, &Supply { rule: Rule::Gap, ..self.supply.clone() });
        let reason = format!(
            "gap saves {:.1} % of the cold reads with the same tiers, {} saves {:.1} %",
            changed.hit_ratio * 100.0,
            self.supply.rule.name(),
            self.verdict.hit_ratio * 100.0
        );
        let from = self.supply.rule.name().to_owned();
        Some(self.with(Change::Policy, (from, Rule::Gap.name().to_owned()), &changed, reason))
    }

    /// A staged batch occupies its memory while it arrives and while the trainer computes on it, so the
    /// trainer never stalls with as many batches as steps fit into that time.
    fn depth(&self) -> Option<Advice> {
        let step = self.demand.step_time?;
        let hits = if self.demand.epochs > 1 { self.verdict.hit_ratio } else { 0.0 };
        let arrival = arrival(self.demand, self.supply, hits);
        let needed = 1 + arrival.0.div_ceil(step.0.max(1));
        let needed = u32::try_from(needed).ok()?;
        let now = self.demand.batches_ahead;
        if needed <= now || needed > PREFETCH_BATCHES_MAX {
            return None;
        }
        let demand = Demand { batches_ahead: needed, ..self.demand.clone() };
        let changed = verdict(&demand, self.supply);
        let staged = self.demand.batch_p99.0.saturating_mul(u64::from(needed - now));
        let more = staged.saturating_mul(self.demand.ranks_per_node.into());
        let reason = format!(
            "a batch takes {arrival} to arrive and {step} to compute on; takes {} more of main memory",
            Bytes(more)
        );
        let change = (now.to_string(), needed.to_string());
        Some(self.with(Change::PrefetchBatches, change, &changed, reason))
    }

    fn workers(&self) -> Option<Advice> {
        let (step, each) = (self.demand.step_time?, self.demand.preprocessing?);
        let now = self.demand.loader_workers;
        let all = each.0.saturating_mul(u64::from(now.max(1)));
        let needed = u32::try_from(all.div_ceil(step.0.max(1))).ok()?;
        if needed <= now {
            return None;
        }
        let share = all.div_ceil(u64::from(needed));
        let demand = Demand {
            preprocessing: Some(Nanoseconds(share)),
            loader_workers: needed,
            ..self.demand.clone()
        };
        let changed = verdict(&demand, self.supply);
        let reason =
            format!("a batch takes {} to preprocess and {step} to compute on", Nanoseconds(all));
        let change = (now.to_string(), needed.to_string());
        Some(self.with(Change::LoaderWorkers, change, &changed, reason))
    }

    /// The rate at which a node reads its cold bytes within the compute time.
    fn cold_rate(&self) -> Option<Advice> {
        let bandwidth = self.supply.cold.bandwidth;
        if bandwidth.0 == 0 {
            return None;
        }
        let epoch = self.epoch(self.supply);
        let compute = self.demand.compute_per_epoch()?;
        if epoch.cold_time <= compute {
            return None;
        }
        let needed = ratio_up(bandwidth.0, epoch.cold_time, compute);
        let mut supply = self.supply.clone();
        supply.cold.bandwidth = BytesPerSecond(needed);
        let changed = verdict(self.demand, &supply);
        let reason = format!(
            "each node reads cold for {} while its trainers compute for {}",
            seconds::in_words(epoch.cold_time),
            seconds::in_words(compute)
        );
        let change = (bandwidth.to_string(), BytesPerSecond(needed).to_string());
        Some(self.with(Change::ColdRate, change, &changed, reason))
    }

    /// The smallest cache with which neither the cold store nor a lower tier is the bottleneck.
    ///
    /// A larger tier takes reads from the parts below: their time falls and its own rises, so the point where
    /// both are equal, or equal to the compute time, is found by bisection.
    fn capacity(&self, index: usize) -> Option<Advice> {
        let tier = self.supply.tiers[index];
        let is_last = !self.supply.tiers[index + 1..].iter().any(|it| it.kind == tier.kind);
        if !is_last || self.demand.epochs < 2 {
            return None;
        }
        let chunk = self.supply.chunk.0.max(1);
        let mut enough = self.demand.epoch.0.div_ceil(chunk);
        let mut too_little = 0;
        if self.is_enough(index, 0) || !self.is_enough(index, enough) {
            return None;
        }
        while enough - too_little > 1 {
            let middle = too_little + (enough - too_little) / 2;
            if self.is_enough(index, middle) { enough = middle } else { too_little = middle }
        }
        let supply = self.with_more_cache(index, enough);
        let changed = verdict(self.demand, &supply);
        let to = supply.tiers[index].capacity;
        let reason = format!(
            "{} more keep {:.1} % of the dataset on each node instead of {:.1} %",
            Bytes(to.0 - tier.capacity.0),
            changed.cached_share * 100.0,
            self.verdict.cached_share * 100.0
        );
        let change = (tier.capacity.to_string(), to.to_string());
        Some(self.with(Change::CacheSize(tier.kind), change, &changed, reason))
    }

    /// Whether, with `chunks` more, no part takes longer than the trainer or the tier itself.
    fn is_enough(&self, index: usize, chunks: u64) -> bool {
        let epoch = Epoch::later(self.demand, &self.with_more_cache(index, chunks));
        let own = epoch.tier_time(index);
        let (bound, longest) = epoch.longest(self.demand);
        bound == Bound::Compute || longest <= own || bound == Bound::Preprocessing
    }

    fn with_more_cache(&self, index: usize, chunks: u64) -> Supply {
        let mut supply = self.supply.clone();
        let tier = &mut supply.tiers[index];
        let more = chunks.saturating_mul(self.supply.chunk.0.max(1));
        tier.capacity = Bytes(tier.capacity.0.saturating_add(more));
        supply
    }

    /// The speed with which a tier is not the bottleneck.
    fn tier_rate(&self, index: usize) -> Option<Advice> {
        let compute = self.demand.compute_per_epoch()?;
        let time = Epoch::later(self.demand, self.supply).tier_time(index);
        if self.demand.epochs < 2 || time <= compute {
            return None;
        }
        let mut supply = self.supply.clone();
        let tier = &mut supply.tiers[index];
        let from = speed_of(tier.read, tier.reads_per_s);
        tier.read = BytesPerSecond(ratio_up(tier.read.0, time, compute));
        tier.reads_per_s = tier.reads_per_s.map(|rate| ratio_up(rate, time, compute));
        let to = speed_of(tier.read, tier.reads_per_s);
        let kind = tier.kind;
        let changed = verdict(self.demand, &supply);
        let reason = format!(
            "its samples are read for {} while the trainers compute for {}",
            seconds::in_words(time),
            seconds::in_words(compute)
        );
        Some(self.with(Change::TierSpeed(kind), (from, to), &changed, reason))
    }

    /// The epoch that is optimised: the only one, or any later one.
    fn epoch(&self, supply: &Supply) -> Epoch {
        if self.demand.epochs > 1 {
            Epoch::later(self.demand, supply)
        } else {
            Epoch::first(self.demand, supply)
        }
    }

    fn with(
        &self,
        change: Change,
        (from, to): (String, String),
        changed: &Verdict,
        reason: String,
    ) -> Advice {
        let after = changed.job_stall.unwrap_or(self.before);
        Advice { change, from, to, before: self.before, after, reason }
    }
}

/// `value` times `longer` over `shorter`, rounded up.
fn ratio_up(value: u64, longer: Nanoseconds, shorter: Nanoseconds) -> u64 {
    let product = u128::from(value) * u128::from(longer.0);
    u64::try_from(product.div_ceil(u128::from(shorter.0.max(1)))).unwrap_or(u64::MAX)
}

fn speed_of(rate: BytesPerSecond, reads_per_s: Option<u64>) -> String {
    match (rate.0, reads_per_s) {
        (0, Some(reads)) => format!("{reads} reads/s"),
        (_, Some(reads)) => format!("{rate}, {reads} reads/s"),
        (_, None) => rate.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate that is rounded down would leave a stall.
    #[test]
    fn a_rate_is_rounded_up() {
        let ratio =
            |value, longer, shorter| ratio_up(value, Nanoseconds(longer), Nanoseconds(shorter));
        assert_eq!((ratio(10, 3, 2), ratio(10, 4, 3), ratio(1, 1, 3)), (15, 14, 1));
        assert_eq!(ratio(u64::MAX, 2, 1), u64::MAX);
        assert_eq!(ratio(5, 1, 0), 5);
    }
}
