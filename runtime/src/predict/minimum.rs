//! The least cache with which the trainers of a job never wait after its first epoch.
//!
//! Found by the closed forms and not by simulations: a simulated run always stalls at its first batches and
//! at random later, so that "does not stall" has no sharp threshold; and closed forms cost nothing. The
//! first epoch reads everything cold with any cache.
//!
//! With the result the trainer is the bottleneck; with one chunk less it is not.

use tierfeed_core::{
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_workload_analyzer::demand::{Bound, Demand, Rule, Verdict, verdict};

use super::node_model::NodeModel;

/// Why no cache is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MinimumError {
    /// The step time is not known.
    #[error(
        "how much a job needs follows from how long its steps compute; \
         give step_time in the job file, or --step-time"
    )]
    NoStepTime,
    /// The job has one epoch only.
    #[error("a cache saves nothing in a job of one epoch: every sample is read once")]
    OneEpoch,
    /// The node has no such tier.
    #[error("the job has no tier {kind}; it has {}", names(*.present))]
    NoTier {
        /// The kind of the missing tier.
        kind: Kind,
        /// Whether it has main memory, CXL memory, scratch and storage.
        present: [bool; 4],
    },
    /// Another resource is the bottleneck.
    #[error(
        "no cache in {kind} keeps the trainers from waiting: with {most} of it an epoch takes \
         {longest}, by {}, while they compute for {compute}; `tierfeed analyze` says what would help",
        .by.name()
    )]
    Insufficient {
        /// The tier that was varied.
        kind: Kind,
        /// The largest cache that was tried.
        most: Bytes,
        /// The bottleneck with that cache.
        by: Bound,
        /// Its time in an epoch.
        longest: Nanoseconds,
        /// The time that the trainers compute in an epoch.
        compute: Nanoseconds,
    },
}

fn names(present: [bool; 4]) -> String {
    let kinds = Kind::ALL.into_iter().zip(present).filter(|(_, is_there)| *is_there);
    kinds.map(|(kind, _)| kind.name()).collect::<Vec<_>>().join(", ")
}

/// The least cache in the tiers of `kind`, with all other tiers as in `site`.
///
/// # Errors
///
/// [`MinimumError`]
pub fn minimum(
    demand: &Demand,
    site: &NodeModel,
    rule: Rule,
    kind: Kind,
) -> Result<Bytes, MinimumError> {
    let compute = demand.compute_per_epoch().ok_or(MinimumError::NoStepTime)?;
    if demand.epochs < 2 {
        return Err(MinimumError::OneEpoch);
    }
    if site.cache(kind).is_none() {
        let present = Kind::ALL.map(|kind| site.cache(kind).is_some());
        return Err(MinimumError::NoTier { kind, present });
    }
    let judge = |chunks: u64| {
        let cache = Bytes(chunks.saturating_mul(site.chunk.0));
        verdict(demand, &site.with_cache(kind, cache).supply(rule))
    };
    // A larger cache moves reads from lower tiers and the cold store to this tier.
    let relieves = |chunks: u64| others(&judge(chunks), kind) <= compute;
    let most = demand.epoch.0.div_ceil(site.chunk.0.max(1));
    let least = bisect(most, relieves);
    let found = judge(least);
    if found.stall == Some(Nanoseconds(0)) {
        return Ok(Bytes(least.saturating_mul(site.chunk.0)));
    }
    let longest = Nanoseconds(compute.0.saturating_add(found.stall.unwrap_or_default().0));
    let most = Bytes(least.saturating_mul(site.chunk.0));
    Err(MinimumError::Insufficient { kind, most, by: found.bound_by, longest, compute })
}

/// The longest time of all resources, except for the trainer, its loader and the tiers of `kind`.
fn others(verdict: &Verdict, kind: Kind) -> Nanoseconds {
    let tiers = verdict.tiers.iter().filter(|tier| tier.kind != kind).map(|tier| tier.time);
    tiers.fold(verdict.cold_time.max(verdict.pipeline), Nanoseconds::max)
}

/// The least number below `most` from which on `is_enough` holds, else `most`.
fn bisect(most: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_enough(middle) { high = middle } else { low = middle + 1 }
    }
    high
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierfeed_core::units::BytesPerSecond;

    use super::*;
    use crate::predict::node_model::tests::{demand, job, site};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A hundred MB and half a second of computing: from 200 MB/s on no cache is needed.
        #[test]
        fn with_the_least_cache_no_trainer_waits_and_with_a_chunk_less_one_does(
            rate in 1_u64..250, nodes in 1_u32..4, scratch in 0_u64..40,
        ) {
            let job = job(nodes, "");
            let demand = demand(&job);
            let mut site = site(&job, [0, 8, scratch]);
            site.cold.bandwidth = BytesPerSecond(rate * 1_000_000);
            let least = minimum(&demand, &site, Rule::Gap, Kind::CxlMemory).unwrap();
            let stall = |cache: u64| {
                let site = site.with_cache(Kind::CxlMemory, Bytes(cache));
                verdict(&demand, &site.supply(Rule::Gap)).stall.unwrap()
            };
            prop_assert_eq!(stall(least.0), Nanoseconds(0));
            if let Some(less) = least.0.checked_sub(site.chunk.0) {
                prop_assert!(stall(less) > Nanoseconds(0), "{} would do", Bytes(less));
            }
        }
    }

    #[test]
    fn on_one_node_the_least_is_what_the_cold_store_cannot_give() {
        let job = job(1, "");
        let mut site = site(&job, [0, 8, 0]);
        // Half of the 100 MB in the half second that an epoch computes.
        site.cold.bandwidth = BytesPerSecond(100_000_000);
        let least = minimum(&demand(&job), &site, Rule::Gap, Kind::CxlMemory).unwrap();
        assert_eq!(least, Bytes(50_000_000_u64.next_multiple_of(1 << 20)));
    }

    #[test]
    fn what_no_cache_helps_is_said() {
        let job = job(1, "");
        let demand = demand(&job);
        let mut slow = site(&job, [0, 8, 0]);
        slow.cold.bandwidth = BytesPerSecond(10_000_000);
        slow.tiers[1].speed.bandwidth = BytesPerSecond(20_000_000);
        let of = |demand: &Demand, site: &NodeModel, kind| {
            minimum(demand, site, Rule::Gap, kind).map_err(|error| error.to_string())
        };
        let said = of(&demand, &slow, Kind::CxlMemory).unwrap_err();
        assert!(said.contains("no cache in cxl-memory") && said.contains("500 ms"), "{said}");
        assert!(of(&demand, &slow, Kind::MainMemory).is_ok(), "main memory is fast");
        let said = of(&demand, &slow, Kind::Storage).unwrap_err();
        assert!(said.contains("it has main-memory, cxl-memory, scratch"), "{said}");
        let said = of(&Demand { step_time: None, ..demand.clone() }, &slow, Kind::CxlMemory);
        assert!(said.unwrap_err().contains("--step-time"));
        let said = of(&Demand { epochs: 1, ..demand.clone() }, &slow, Kind::CxlMemory);
        assert!(said.unwrap_err().contains("one epoch"));
    }
}
