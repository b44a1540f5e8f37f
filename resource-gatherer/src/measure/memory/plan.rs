//! Decides what is measured on a pair, in which order, and what share of the time each part gets.
//!
//! 1. What matters most comes first, so that a short budget cuts off what matters least: the kinds of
//!    traffic that make a tier's figures by one thread and by all, then the numbers of threads between,
//!    then the other kinds.
//! 2. A batch that would not get the time for half of its least samples is left out whole, and named,
//!    except the first, which gets what there is.

use tierfeed_core::units::Nanoseconds;
use tierfeed_numa_memory::kernels::has_non_temporal_stores;

use crate::figures::Traffic;

/// Cells that are taken in turns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Batch {
    /// Names the batch where it is left out.
    pub(super) name: &'static str,
    /// Every kind of traffic with a number of threads.
    pub(super) cells: Vec<(Traffic, usize)>,
    /// Its share of the time beside the others.
    pub(super) weight: u64,
    /// Whether a tier has no figures without it.
    pub(super) is_needed: bool,
}

/// The traffic that the figures of a tier, and the choice of stores, are made of.
pub(super) const FIRST: [Traffic; 6] = [
    Traffic::Read,
    Traffic::Write,
    Traffic::Copy,
    Traffic::Triad,
    Traffic::WriteNonTemporal,
    Traffic::CopyNonTemporal,
];

pub(super) const REST: [Traffic; 2] = [Traffic::Scale, Traffic::Add];

/// The bandwidth of a node with `cores`, in order of importance.
pub(super) fn batches(cores: usize) -> Vec<Batch> {
    let sweep = thread_counts(cores);
    let ends: Vec<usize> =
        sweep.iter().copied().filter(|count| *count == 1 || *count == cores).collect();
    let between: Vec<usize> = sweep.iter().copied().filter(|count| !ends.contains(count)).collect();
    let batch = |name, kinds: &[Traffic], counts: &[usize], weight| Batch {
        name,
        cells: cross(kinds, counts),
        weight,
        is_needed: false,
    };
    let first = batch("bandwidth by one thread and by all", &FIRST, &ends, 8);
    let all = [
        Batch { is_needed: true, ..first },
        batch("bandwidth by the numbers of threads between", &FIRST, &between, 3),
        batch("scale and add by one thread and by all", &REST, &ends, 3),
        batch("scale and add by the numbers of threads between", &REST, &between, 2),
    ];
    all.into_iter().filter(|batch| !batch.cells.is_empty()).collect()
}

/// 1, 2, 4 and so on, and all.
pub(super) fn thread_counts(cores: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|count| *count < cores);
    powers.chain([cores]).collect()
}

fn cross(kinds: &[Traffic], counts: &[usize]) -> Vec<(Traffic, usize)> {
    let kinds = kinds.iter().filter(|kind| has_non_temporal_stores() || !kind.is_non_temporal());
    kinds.flat_map(|kind| counts.iter().map(|count| (*kind, *count))).collect()
}

/// Whether `cells` cells in `left` get enough for half the least samples: rule 2.
pub(super) fn is_worth_starting(cells: usize, left: Nanoseconds, sample: Nanoseconds) -> bool {
    const SAMPLES: u64 = 6;
    left.0 / (cells as u64).max(1) >= SAMPLES * sample.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn threads_double_up_to_all_cores() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(6), [1, 2, 4, 6]);
        assert_eq!(thread_counts(64), [1, 2, 4, 8, 16, 32, 64]);
    }

    #[test]
    fn the_batches_hold_every_kind_at_every_number_of_threads_once() {
        for cores in [1, 2, 3, 64] {
            let cells: Vec<_> = batches(cores).into_iter().flat_map(|batch| batch.cells).collect();
            let distinct: BTreeSet<_> = cells.iter().copied().collect();
            assert_eq!(cells.len(), distinct.len());
            let kinds = FIRST.iter().chain(&REST);
            let expected = kinds.filter(|it| has_non_temporal_stores() || !it.is_non_temporal());
            assert_eq!(cells.len(), expected.count() * thread_counts(cores).len());
        }
    }

    #[test]
    fn what_makes_a_tier_is_measured_first() {
        let first = &batches(64)[0].cells;
        for traffic in [Traffic::Read, Traffic::Write, Traffic::Copy, Traffic::Triad] {
            assert!(first.contains(&(traffic, 1)) && first.contains(&(traffic, 64)));
        }
    }

    #[test]
    fn a_batch_without_time_is_left_out() {
        let sample = Nanoseconds(10);
        assert!(is_worth_starting(4, Nanoseconds(240), sample));
        assert!(!is_worth_starting(4, Nanoseconds(239), sample));
    }
}
