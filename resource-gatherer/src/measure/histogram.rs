//! Counts times in buckets that are at most 1/64 wide, so that percentiles of millions cost a few KiB.
//!
//! 1. A value that a percentile names differs from the true one by at most 1/128 (0.8 %) of it.
//! 2. The least and the greatest are exact.
//! 3. A percentile is published only if at least ten samples lie beyond it: fewer would make it a
//!    statement about the few worst.
//!
//! # Source
//!
//! The buckets are those of fio (`stat.h`, `FIO_IO_U_PLAT_BITS` 6), so that both programs round alike.

use tierfeed_core::units::Nanoseconds;

use crate::figures::{
    Percentiles,
    estimate::{Estimate, interval_ranks, relative_half_width, to_f64},
};

/// Buckets per doubling.
const SUB: u64 = 64;
/// Below this each value has a bucket of its own.
const EXACT: u64 = 2 * SUB;

/// How often each time was seen, to within a bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct Histogram {
    /// As long as the greatest value needs.
    counts: Vec<u64>,
    samples: u64,
    max: u64,
}

impl Histogram {
    pub(super) fn record(&mut self, value: Nanoseconds) {
        let index = index(value.0);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.samples += 1;
        self.max = self.max.max(value.0);
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        let len = self.counts.len().max(other.counts.len());
        self.counts.resize(len, 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.samples += other.samples;
        self.max = self.max.max(other.max);
    }

    pub(super) fn samples(&self) -> u64 {
        self.samples
    }

    /// Only the percentiles that may be published (invariant 3).
    pub(super) fn percentiles(&self) -> Percentiles {
        Percentiles {
            samples: self.samples,
            p50_ns: self.published(500),
            p90_ns: self.published(900),
            p99_ns: self.published(990),
            p999_ns: self.published(999),
            max_ns: (self.samples > 0).then(|| to_f64(self.max)),
        }
    }

    /// The median with its interval, converged if that is at most `half_width` of it wide to each side;
    /// `None` without samples.
    pub(super) fn median(&self, half_width: f64) -> Option<Estimate> {
        let samples = usize::try_from(self.samples).ok()?;
        let (first, last) = interval_ranks(samples)?;
        let value = |rank: usize| self.value_of_rank(rank as u64 + 1).map(to_f64);
        let estimate = Estimate {
            low: value(first)?,
            high: value(last)?,
            samples,
            ..Estimate::stated(value((samples - 1) / 2)?)
        };
        Some(Estimate { converged: relative_half_width(&estimate) <= half_width, ..estimate })
    }

    fn published(&self, per_mille: u64) -> Option<f64> {
        let is_supported = self.samples * (1000 - per_mille) >= 10 * 1000;
        let rank = (self.samples * per_mille).div_ceil(1000);
        self.value_of_rank(rank).filter(|_| is_supported).map(to_f64)
    }

    /// The value of a rank that counts from 1.
    fn value_of_rank(&self, rank: u64) -> Option<u64> {
        let mut seen = 0;
        let index = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle(index as u64).min(self.max))
    }
}

fn index(value: u64) -> usize {
    let index = if value < EXACT {
        value
    } else {
        let octave = u64::from(value.ilog2());
        let sub = (value >> (octave - 6)) % SUB;
        EXACT + (octave - 7) * SUB + sub
    };
    usize::try_from(index).expect("there are fewer than 4000 buckets")
}

fn middle(index: u64) -> u64 {
    if index < EXACT {
        return index;
    }
    let (octave, sub) = ((index - EXACT) / SUB + 7, (index - EXACT) % SUB);
    let width = 1 << (octave - 6);
    (SUB + sub) * width + width / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        values.into_iter().for_each(|value| histogram.record(Nanoseconds(value)));
        histogram
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let published = |count: u64| {
            let found = filled(1..=count).percentiles();
            [found.p50_ns, found.p90_ns, found.p99_ns, found.p999_ns].map(|it| it.is_some())
        };
        assert_eq!(published(19), [false; 4]);
        assert_eq!(published(20), [true, false, false, false]);
        assert_eq!(published(99), [true, false, false, false]);
        assert_eq!(published(100), [true, true, false, false]);
        assert_eq!(published(1000), [true, true, true, false]);
        assert_eq!(published(9999), [true, true, true, false]);
        assert_eq!(published(10_000), [true; 4]);
    }

    #[test]
    fn small_values_are_exact() {
        let found = filled(1..=100).percentiles();
        assert_eq!(
            (found.p50_ns, found.p90_ns, found.max_ns),
            (Some(50.0), Some(90.0), Some(100.0))
        );
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        let empty = Histogram::default();
        assert_eq!(empty.percentiles(), Percentiles::default());
        assert!(empty.median(0.1).is_none());
    }

    #[test]
    fn a_median_of_few_samples_has_their_range_as_interval() {
        let estimate = filled([10, 20, 30]).median(0.03).unwrap();
        assert_eq!((estimate.median, estimate.low, estimate.high), (20.0, 10.0, 30.0));
        assert!(!estimate.converged);
        assert!(filled([20; 100]).median(0.03).unwrap().converged);
    }

    proptest! {
        #[test]
        fn a_bucket_is_at_most_a_128th_off(value in any::<u64>()) {
            let named = middle(index(value) as u64);
            prop_assert!(u128::from(named.abs_diff(value)) * 128 <= u128::from(value));
        }

        #[test]
        fn buckets_do_not_overlap(value in 0..u64::MAX) {
            prop_assert!(index(value) <= index(value + 1));
            prop_assert!(index(value + 1) - index(value) <= 1);
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_values_to_a_128th(
            mut values in prop::collection::vec(0_u64..1_000_000_000, 100..1500),
        ) {
            let found = filled(values.iter().copied()).percentiles();
            values.sort_unstable();
            for (per_mille, named) in [(500, found.p50_ns), (900, found.p90_ns), (990, found.p99_ns)] {
                let Some(named) = named else { continue };
                let exact = to_f64(values[(values.len() * per_mille).div_ceil(1000) - 1]);
                prop_assert!((named - exact).abs() * 128.0 <= exact, "{named} for {exact}");
            }
            prop_assert_eq!(found.max_ns, values.last().copied().map(to_f64));
        }

        #[test]
        fn absorbing_counts_as_recording(
            left in prop::collection::vec(any::<u64>(), 0..50),
            right in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut both = filled(left.iter().copied());
            both.absorb(&filled(right.iter().copied()));
            let at_once = filled(left.into_iter().chain(right));
            prop_assert_eq!(both.counts, at_once.counts);
            prop_assert_eq!((both.samples, both.max), (at_once.samples, at_once.max));
        }
    }
}
