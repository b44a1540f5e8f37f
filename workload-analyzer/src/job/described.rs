//! A dataset that is not here yet: how many samples it has and how large they are.
//!
//! The sizes are those of a normal distribution, cut off below 1 B, and dealt to the samples by a
//! permutation.
//!
//! 1. A size depends on the description, the seed and the number of the sample alone. It is computed
//!    with integers and with the operations of floating-point numbers that IEEE 754 rounds exactly, so
//!    every machine gives the same.
//! 2. Mean and standard deviation of all sizes are as described: what the cut takes away below, a
//!    wider distribution gives back. Rounding to whole bytes aside, this is exact for up to
//!    [`KNOTS_MAX`] samples and for multiples of it.

mod normal;

use tierfeed_core::{id::SampleId, units::Bytes};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How many different sizes there are at most.
pub const KNOTS_MAX: u32 = 1_024;

/// The longest mean of a described dataset: with the widest spread no sample is longer than an index allows.
pub const MEAN_BYTES_MAX: Bytes = Bytes(64 << 30);

/// The most bytes of a described dataset, 1 EiB: sums over some epochs stay below 64 bits.
pub const DATASET_BYTES_MAX: Bytes = Bytes(1 << 60);

/// Rounds of the permutation. Four make a Feistel network a strong permutation (Luby and Rackoff).
const ROUNDS: u64 = 4;

/// A dataset in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Files, or what a bucket has under a key.
    pub objects: u32,
    /// Samples in each of them; with `objects` at most what 32 bits can number.
    pub samples_per_object: u32,
    /// The mean size of a sample, at least 1.
    pub sample_bytes: Bytes,
    /// The standard deviation of the sizes, at most nine tenths of the mean.
    pub sample_bytes_stdev: Bytes,
}

/// The sizes of all samples, without a list of them.
#[derive(Debug, Clone)]
pub struct DescribedSizes {
    samples: u32,
    seed: u64,
    /// Ascending; each is the size of as many samples as any other, but for one.
    knots: Vec<u64>,
    /// Of each half of a number that the permutation takes apart.
    half_bits: u32,
}

impl Described {
    /// Samples in the dataset.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.objects.saturating_mul(self.samples_per_object)
    }

    /// The sizes that `seed` gives to the samples.
    #[must_use]
    pub fn sizes(&self, seed: u64) -> DescribedSizes {
        let samples = self.samples();
        let count = samples.clamp(1, KNOTS_MAX) as usize;
        let bits = u32::BITS - samples.saturating_sub(1).leading_zeros();
        DescribedSizes {
            samples,
            seed,
            knots: normal::knots(self.sample_bytes.0, self.sample_bytes_stdev.0, count),
            half_bits: bits.div_ceil(2).max(1),
        }
    }
}

impl DescribedSizes {
    /// The bytes of one sample.
    ///
    /// # Panics
    ///
    /// If there is no such sample.
    #[must_use]
    pub fn size(&self, sample: SampleId) -> Bytes {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        let place = u64::from(self.permuted(sample.0)) * self.knots.len() as u64;
        let knot = usize::try_from(place / u64::from(self.samples)).expect("a place of a list");
        Bytes(self.knots[knot])
    }

    /// The bytes of each sample, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.samples).map(|sample| self.size(SampleId(sample)))
    }

    /// Each size with the number of samples that have it: the same as counting [`Self::iter`], without
    /// going through the samples.
    pub fn groups(&self) -> impl Iterator<Item = (Bytes, u64)> + '_ {
        let (samples, count) = (u64::from(self.samples), self.knots.len() as u64);
        let first_of = move |knot: u64| (knot * samples).div_ceil(count);
        (0..)
            .zip(&self.knots)
            .map(move |(knot, size)| (Bytes(*size), first_of(knot + 1) - first_of(knot)))
    }

    /// A Feistel network over the smallest even number of bits that holds all samples; what falls
    /// outside goes through it again.
    fn permuted(&self, sample: u32) -> u32 {
        let mask = (1_u64 << self.half_bits) - 1;
        let mut value = u64::from(sample);
        loop {
            for round in 0..ROUNDS {
                let (left, right) = (value >> self.half_bits, value & mask);
                let hash = xxh3_64_with_seed(&(round << 32 | right).to_le_bytes(), self.seed);
                value = right << self.half_bits | (left ^ hash & mask);
            }
            if let Ok(inside) = u32::try_from(value)
                && inside < self.samples
            {
                return inside;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(samples: u32, mean: u64, deviation: u64) -> Described {
        Described {
            objects: samples,
            samples_per_object: 1,
            sample_bytes: Bytes(mean),
            sample_bytes_stdev: Bytes(deviation),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a test compares shares")]
    fn mean_and_deviation(sizes: &DescribedSizes) -> (f64, f64) {
        let count = f64::from(sizes.samples);
        let mean = sizes.iter().map(|size| size.0 as f64).sum::<f64>() / count;
        let squares = sizes.iter().map(|size| (size.0 as f64 - mean).powi(2));
        (mean, (squares.sum::<f64>() / count).sqrt())
    }

    #[expect(clippy::cast_precision_loss, reason = "a test compares shares")]
    #[track_caller]
    fn check(samples: u32, mean: u64, deviation: u64, tolerance: f64) {
        let sizes = described(samples, mean, deviation).sizes(42);
        let (found_mean, found_deviation) = mean_and_deviation(&sizes);
        assert!((found_mean / mean as f64 - 1.0).abs() < tolerance, "{found_mean}");
        let drift = (found_deviation - deviation as f64).abs() / mean as f64;
        assert!(drift < tolerance, "{found_deviation}");
        assert!(sizes.iter().all(|size| size.0 >= 1));
    }

    #[test]
    fn mean_and_deviation_hold_even_where_the_normal_distribution_is_cut() {
        check(168, 146_600_628, 68_341_808, 1e-7);
        check(2_048, 2_828_486, 71_311, 1e-6);
        check(3_000, 2_828_486, 71_311, 1e-4);
        check(1_000, 1_000_000, 900_000, 1e-5);
        check(7, 1_000_000, 500_000, 1e-5);
        check(500, 2_500, 0, 1e-9);
    }

    #[test]
    fn one_sample_is_as_large_as_the_mean() {
        assert_eq!(described(1, 10, 5).sizes(0).size(SampleId(0)), Bytes(10));
    }

    /// Two thirds of a normal distribution lie within one deviation, 95 % within two.
    #[test]
    fn sizes_spread_as_a_normal_distribution() {
        let sizes = described(1_024, 1_000_000, 100_000).sizes(1);
        let within =
            |distance: u64| sizes.iter().filter(|it| it.0.abs_diff(1_000_000) < distance).count();
        // 68.27 % and 95.45 % of 1,024.
        assert!((697..=701).contains(&within(100_000)), "{}", within(100_000));
        assert!((975..=980).contains(&within(200_000)), "{}", within(200_000));
    }

    #[test]
    fn the_groups_are_what_counting_gives() {
        for samples in [1, 7, 1_023, 1_024, 1_025, 5_000] {
            let sizes = described(samples, 1 << 40, 1 << 38).sizes(3);
            let mut counted = std::collections::BTreeMap::new();
            for size in sizes.iter() {
                *counted.entry(size).or_insert(0) += 1;
            }
            assert_eq!(sizes.groups().collect::<Vec<_>>(), counted.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn every_knot_is_the_size_of_as_many_samples() {
        for samples in [1, 2, 3, 255, 256, 257, 4_096] {
            let sizes = described(samples, 1 << 40, 1 << 38).sizes(9);
            let mut found: Vec<_> = sizes.iter().map(|size| size.0).collect();
            found.sort_unstable();
            let times = samples as usize / sizes.knots.len();
            let expected: Vec<_> =
                sizes.knots.iter().flat_map(|knot| std::iter::repeat_n(*knot, times)).collect();
            assert_eq!(found, expected, "{samples}");
        }
    }

    #[test]
    fn sizes_depend_on_the_seed_and_on_nothing_else() {
        let sizes = |seed| described(100, 1_000, 100).sizes(seed).iter().collect::<Vec<_>>();
        assert_eq!(sizes(1), sizes(1));
        assert_ne!(sizes(1), sizes(2));
        // As printed on the first machine: another one must print the same.
        let first: Vec<_> = sizes(42).into_iter().take(6).map(|size| size.0).collect();
        assert_eq!(first, [949, 978, 1_040, 1_043, 1_079, 963]);
    }
}
