//! A dataset that does not exist yet: the number and the sizes of its samples.
//!
//! The sizes follow a normal distribution, truncated below 1 B, and are assigned to the samples by a
//! permutation.
//!
//! 1. A size depends only on the description, the seed and the number of the sample. It is computed with
//!    integers and with the floating-point operations that IEEE 754 rounds exactly, so every machine gives
//!    the same result.
//! 2. Mean and standard deviation of all sizes are as described: a wider distribution compensates for the
//!    truncation. Apart from rounding to whole bytes, this is exact for up to
//!    [`QUANTILES_MAX`] samples and for multiples of it.

mod normal;

use tierfeed_core::{id::SampleId, units::Bytes};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most different sizes of a dataset.
pub const QUANTILES_MAX: u32 = 1_024;

/// The largest mean of a described dataset: with the largest deviation no sample exceeds the limit of an
/// index.
pub const MEAN_BYTES_MAX: Bytes = Bytes(64 << 30);

/// The most bytes of a described dataset, 1 EiB: sums over some epochs stay below 64 bits.
pub const DATASET_BYTES_MAX: Bytes = Bytes(1 << 60);

/// Rounds of the Feistel network. Four make it a strong permutation (Luby and Rackoff).
const ROUNDS: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Number of files, or of objects of a bucket.
    pub objects: u32,
    /// Samples in each object; the product with `objects` fits in 32 bits.
    pub samples_per_object: u32,
    /// The mean size of a sample, at least 1.
    pub sample_bytes: Bytes,
    /// The standard deviation of the sizes, at most nine tenths of the mean.
    pub sample_bytes_stdev: Bytes,
}

/// The sizes of all samples, computed on demand.
#[derive(Debug, Clone)]
pub struct DescribedSizes {
    samples: u32,
    seed: u64,
    /// Ascending; the numbers of samples with each of these sizes differ by at most one.
    quantiles: Vec<u64>,
    /// Bits of each half of the Feistel network.
    half_bits: u32,
}

impl Described {
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.objects.saturating_mul(self.samples_per_object)
    }

    #[must_use]
    pub fn sizes(&self, seed: u64) -> DescribedSizes {
        let samples = self.samples();
        let count = samples.clamp(1, QUANTILES_MAX) as usize;
        let bits = u32::BITS - samples.saturating_sub(1).leading_zeros();
        DescribedSizes {
            samples,
            seed,
            quantiles: normal::size_quantiles(
                self.sample_bytes.0,
                self.sample_bytes_stdev.0,
                count,
            ),
            half_bits: bits.div_ceil(2).max(1),
        }
    }
}

impl DescribedSizes {
    /// The size of one sample.
    ///
    /// # Panics
    ///
    /// If there is no such sample.
    #[must_use]
    pub fn size(&self, sample: SampleId) -> Bytes {
        assert!(sample.0 < self.samples, "sample {} of {}", sample.0, self.samples);
        let rank = u64::from(self.permuted(sample.0)) * self.quantiles.len() as u64;
        let quantile = usize::try_from(rank / u64::from(self.samples)).expect("an index of a list");
        Bytes(self.quantiles[quantile])
    }

    pub fn iter(&self) -> impl Iterator<Item = Bytes> + '_ {
        (0..self.samples).map(|sample| self.size(SampleId(sample)))
    }

    /// Each size with the number of samples that have it: the same as counting [`Self::iter`], without
    /// iterating over the samples.
    pub fn groups(&self) -> impl Iterator<Item = (Bytes, u64)> + '_ {
        let (samples, count) = (u64::from(self.samples), self.quantiles.len() as u64);
        let first_of = move |quantile: u64| (quantile * samples).div_ceil(count);
        (0..).zip(&self.quantiles).map(move |(quantile, size)| {
            (Bytes(*size), first_of(quantile + 1) - first_of(quantile))
        })
    }

    /// A Feistel network over the smallest even number of bits that holds all samples; results outside of the
    /// range are permuted again.
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
    fn every_quantile_is_the_size_of_equally_many_samples() {
        for samples in [1, 2, 3, 255, 256, 257, 4_096] {
            let sizes = described(samples, 1 << 40, 1 << 38).sizes(9);
            let mut found: Vec<_> = sizes.iter().map(|size| size.0).collect();
            found.sort_unstable();
            let times = samples as usize / sizes.quantiles.len();
            let expected: Vec<_> = sizes
                .quantiles
                .iter()
                .flat_map(|quantile| std::iter::repeat_n(*quantile, times))
                .collect();
            assert_eq!(found, expected, "{samples}");
        }
    }

    #[test]
    fn sizes_depend_on_the_seed_only() {
        let sizes = |seed| described(100, 1_000, 100).sizes(seed).iter().collect::<Vec<_>>();
        assert_eq!(sizes(1), sizes(1));
        assert_ne!(sizes(1), sizes(2));
        // Golden values: every machine must compute the same.
        let first: Vec<_> = sizes(42).into_iter().take(6).map(|size| size.0).collect();
        assert_eq!(first, [949, 978, 1_040, 1_043, 1_079, 963]);
    }
}
