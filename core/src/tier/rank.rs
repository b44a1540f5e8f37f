//! Puts tiers into one total order: by cost, by kind where costs tie.
//!
//! 1. The cost of a tier is the time to bring one chunk from it into main memory: latency plus 512 MiB at the
//!    rate of the copy. Storage is on the same scale.
//! 2. Costs of at most [`RATIO_MAX`] times the cheapest of them are a tie, because a RAM disk is the same
//!    DRAM as main memory and noise must not swap them. A tie is resolved by kind; within a kind the
//!    cost decides, then the latency. It is anchored at the cheapest of the tiers that are left, not chained
//!    from neighbour to neighbour, so that no tier stands before one that is clearly cheaper.
//! 3. A tier without figures stands where its kind would; if it is memory, before every tier that is slower
//!    than [`MEMORY_RATE_MIN`].

use alloc::vec::Vec;
use core::cmp::Ordering;

use tierfeed_units::{Bytes, BytesPerSecond, Nanoseconds, float};

use super::Kind;

/// The largest ratio of two figures that count as the same.
pub const RATIO_MAX: f64 = 1.30;

/// A tier is ranked by the time to bring a chunk of this size into main memory.
const CHUNK: Bytes = Bytes::mib(512);

/// The rate, in bytes per second, that any memory exceeds, so that memory without figures stands before a
/// place that is known to be slower.
///
/// # Source
///
/// Published devices behind CXL have 17 GB/s and more; one thread on a busy virtual machine reads DRAM at 3
/// GB/s.
const MEMORY_RATE_MIN: f64 = 1e9;

/// A tier with the figures by which it is ranked, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rated {
    pub kind: Kind,
    /// From request to first byte.
    pub latency_ns: Option<f64>,
    /// The rate at which a chunk comes into main memory.
    pub bytes_per_s: Option<f64>,
}

impl Rated {
    #[must_use]
    pub fn of(kind: Kind, latency: Option<Nanoseconds>, bandwidth: Option<BytesPerSecond>) -> Self {
        Self {
            kind,
            latency_ns: latency.map(|latency| float(latency.0)),
            bytes_per_s: bandwidth.map(|rate| float(rate.0)),
        }
    }

    /// The time to bring one chunk into main memory; `None` without figures.
    #[must_use]
    pub fn chunk_cost_ns(&self) -> Option<f64> {
        Some(self.latency_ns? + float(CHUNK.0) * 1e9 / self.bytes_per_s?)
    }

    /// Whether any memory is faster; false without figures.
    #[must_use]
    pub fn is_slower_than_memory(&self) -> bool {
        self.chunk_cost_ns().is_some_and(|cost| cost > float(CHUNK.0) * 1e9 / MEMORY_RATE_MIN)
    }
}

/// The indices of `tiers`, fastest first.
///
/// Both the probe and the schedule of a job call it, so that a job has the order that the report shows.
#[must_use]
pub fn rank(tiers: &[Rated]) -> Vec<usize> {
    let (known, mut unknown): (Vec<_>, Vec<_>) =
        (0..tiers.len()).partition(|index| tiers[*index].chunk_cost_ns().is_some());
    let mut ranked = rank_known(tiers, &known);
    unknown.sort_by(|a, b| compare_unknown(&tiers[*a], &tiers[*b]).then_with(|| a.cmp(b)));
    for index in unknown {
        let tier = tiers[index];
        let is_out = |other: &usize| {
            let other = tiers[*other];
            // Main memory is as slow on a busy processor in software; nothing behind CXL is faster there.
            other.kind != Kind::MainMemory && other.is_slower_than_memory()
        };
        let slow = ranked.iter().position(is_out).filter(|_| tier.kind != Kind::Storage);
        let faster = &ranked[..slow.unwrap_or(ranked.len())];
        let after = faster.iter().rposition(|other| tiers[*other].kind <= tier.kind);
        ranked.insert(after.map_or(0, |place| place + 1), index);
    }
    ranked
}

fn rank_known(tiers: &[Rated], known: &[usize]) -> Vec<usize> {
    let with_cost = |index: &usize| Some((tiers[*index].chunk_cost_ns()?, *index));
    let mut by_cost: Vec<(f64, usize)> = known.iter().filter_map(with_cost).collect();
    by_cost.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let mut ranked = Vec::with_capacity(by_cost.len());
    let mut left = &mut by_cost[..];
    while let Some((cheapest, _)) = left.first() {
        let limit = cheapest * RATIO_MAX;
        let count = left.partition_point(|(cost, _)| *cost <= limit);
        let (equals, rest) = left.split_at_mut(count);
        equals.sort_by(|a, b| compare_tied(tiers, *a, *b));
        ranked.extend(equals.iter().map(|(_, index)| *index));
        left = rest;
    }
    ranked
}

fn compare_tied(tiers: &[Rated], a: (f64, usize), b: (f64, usize)) -> Ordering {
    let (first, second) = (&tiers[a.1], &tiers[b.1]);
    first
        .kind
        .cmp(&second.kind)
        .then_with(|| a.0.total_cmp(&b.0))
        .then_with(|| latency(first).total_cmp(&latency(second)))
        .then_with(|| a.1.cmp(&b.1))
}

fn compare_unknown(a: &Rated, b: &Rated) -> Ordering {
    a.kind.cmp(&b.kind).then_with(|| latency(a).total_cmp(&latency(b)))
}

fn latency(tier: &Rated) -> f64 {
    tier.latency_ns.unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*};

    use super::*;

    fn rated(kind: Kind, latency_ns: f64, gb_per_s: f64) -> Rated {
        Rated { kind, latency_ns: Some(latency_ns), bytes_per_s: Some(gb_per_s * 1e9) }
    }

    fn unmeasured(kind: Kind) -> Rated {
        Rated::of(kind, None, None)
    }

    fn tiers() -> impl Strategy<Value = Vec<Rated>> {
        let tier = (0_usize..4, 50.0_f64..100_000.0, 0.5_f64..100.0);
        collection::vec(tier.prop_map(|(kind, ns, rate)| rated(Kind::ALL[kind], ns, rate)), 1..10)
    }

    proptest! {
        #[test]
        fn every_tier_has_exactly_one_rank(tiers in tiers()) {
            let mut seen = rank(&tiers);
            seen.sort_unstable();
            prop_assert!(seen.into_iter().eq(0..tiers.len()));
        }

        #[test]
        fn no_tier_stands_before_one_that_is_clearly_cheaper(tiers in tiers()) {
            let costs: Vec<f64> =
                rank(&tiers).iter().map(|it| tiers[*it].chunk_cost_ns().unwrap()).collect();
            for (index, cost) in costs.iter().enumerate() {
                for later in &costs[index + 1..] {
                    prop_assert!(*cost <= later * RATIO_MAX);
                }
            }
        }

        #[test]
        fn within_a_kind_the_measured_cost_decides(tiers in tiers()) {
            for kind in Kind::ALL {
                let ranked = rank(&tiers).into_iter().map(|index| tiers[index]);
                let costs = ranked.filter(|it| it.kind == kind).map(|it| it.chunk_cost_ns());
                prop_assert!(costs.is_sorted());
            }
        }

        #[test]
        fn a_tier_that_gets_slower_overtakes_none(before in tiers(), slower in 1.0_f64..4.0) {
            let mut after = before.clone();
            after[0].bytes_per_s = after[0].bytes_per_s.map(|rate| rate / slower);
            let behind = |tiers: &[Rated]| -> Vec<usize> {
                let ranked = rank(tiers);
                let place = ranked.iter().position(|index| *index == 0).unwrap();
                ranked[..place].to_vec()
            };
            let now = behind(&after);
            prop_assert!(behind(&before).iter().all(|other| now.contains(other)));
        }
    }

    #[test]
    fn a_faster_ram_disk_stands_before_a_slower_one_whatever_comes_first() {
        let (slow, fast) =
            (rated(Kind::Scratch, 1_500.0, 9.0), rated(Kind::Scratch, 2_000.0, 10.0));
        assert_eq!(rank(&[slow, fast]), [1, 0]);
        assert_eq!(rank(&[fast, slow]), [0, 1]);
    }

    #[test]
    fn a_chain_of_ties_lifts_none_over_what_is_clearly_cheaper() {
        let tiers = [
            rated(Kind::Storage, 0.0, 10.0),
            rated(Kind::Scratch, 0.0, 8.0),
            rated(Kind::CxlMemory, 0.0, 6.4),
        ];
        assert_eq!(rank(&tiers), [1, 0, 2]);
    }

    #[test]
    fn a_ram_disk_that_seems_a_little_faster_stays_behind_main_memory() {
        let tiers = [rated(Kind::Scratch, 1_000.0, 7.0), rated(Kind::MainMemory, 100.0, 6.0)];
        assert!(tiers[0].chunk_cost_ns() < tiers[1].chunk_cost_ns());
        assert_eq!(rank(&tiers), [1, 0]);
    }

    #[test]
    fn memory_without_figures_stands_before_what_is_slower_than_any_memory() {
        let order = |cxl: f64, tier| {
            rank(&[unmeasured(Kind::MainMemory), rated(Kind::CxlMemory, 0.0, cxl), tier])
        };
        let ram_disk = unmeasured(Kind::Scratch);
        assert_eq!(order(0.05, ram_disk), [0, 2, 1]);
        assert_eq!(order(0.9, ram_disk), [0, 2, 1]);
        assert_eq!(order(1.1, ram_disk), [0, 1, 2], "memory may be as slow");
        assert_eq!(order(0.05, unmeasured(Kind::Storage)), [0, 1, 2], "no memory");
    }

    #[test]
    fn memory_without_figures_stands_behind_main_memory_however_slow_that_is() {
        let slow = rated(Kind::MainMemory, 100.0, 0.5);
        assert_eq!(rank(&[unmeasured(Kind::CxlMemory), slow]), [1, 0]);
    }
}
