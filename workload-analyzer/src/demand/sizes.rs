//! The statistics of a dataset that a demand needs: numbers of samples and objects, mean and variance of
//! sizes.
//!
//! Computed with integers, so that every machine prints the same figures.

use tierfeed_core::{batch::p99_of_sum, units::Bytes};

use super::narrow;
use crate::job::Described;
use tierfeed_dataset::Index;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    samples: u32,
    objects: u64,
    total: u128,
    variance: u128,
    max: u128,
}

impl Sizes {
    /// The statistics of a dataset of `objects`. `sizes` yields the size of each sample, and is called twice.
    ///
    /// # Panics
    ///
    /// If there are no samples, or more than fit in 32 bits.
    pub fn of<I: Iterator<Item = Bytes>>(objects: u64, sizes: impl Fn() -> I) -> Self {
        Self::of_groups(objects, || sizes().map(|size| (size, 1)))
    }

    /// As [`Self::of`]. `groups` yields each size with the number of samples that have it.
    fn of_groups<I: Iterator<Item = (Bytes, u64)>>(objects: u64, groups: impl Fn() -> I) -> Self {
        let (mut count, mut total, mut max) = (0_u128, 0_u128, 0_u128);
        for (size, times) in groups() {
            let (size, times) = (u128::from(size.0), u128::from(times));
            (count, total, max) = (count + times, total + size * times, max.max(size));
        }
        let samples = u32::try_from(count).expect("samples are numbered with 32 bits");
        assert!(samples > 0, "a dataset has samples");
        let mean = total / count;
        let squares = groups().map(|(size, times)| {
            let distance = u128::from(size.0).abs_diff(mean);
            distance.saturating_mul(distance).saturating_mul(times.into())
        });
        let variance = squares.fold(0, u128::saturating_add) / count;
        Self { samples, objects, total, variance, max }
    }

    /// The statistics of a described dataset with the sizes for `seed`.
    ///
    /// # Panics
    ///
    /// If the description has no samples; a job with such a description does not load.
    #[must_use]
    pub fn described(described: &Described, seed: u64) -> Self {
        let sizes = described.sizes(seed);
        Self::of_groups(described.objects.into(), || sizes.groups())
    }

    /// Samples in the dataset, at least 1.
    #[must_use]
    pub const fn samples(&self) -> u32 {
        self.samples
    }

    /// Number of files, or of objects of a bucket.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    #[must_use]
    pub fn total(&self) -> Bytes {
        narrow(self.total)
    }

    #[must_use]
    pub const fn are_equal(&self) -> bool {
        self.max * self.samples as u128 == self.total
    }

    /// Bytes of `samples` of mean size, rounded up.
    #[must_use]
    pub fn mean_of(&self, samples: u64) -> Bytes {
        narrow(self.total.saturating_mul(samples.into()).div_ceil(self.samples.into()))
    }

    /// Bytes of an epoch of `reads` samples of mean size, rounded down.
    #[must_use]
    pub fn epoch_of(&self, reads: u64) -> Bytes {
        narrow(self.total.saturating_mul(reads.into()) / u128::from(self.samples))
    }

    /// The 99th percentile of the bytes of `samples` random samples: the mean plus 2.326 standard deviations
    /// of a sum, at most `samples` times the largest sample.
    #[must_use]
    pub fn p99_of(&self, samples: u64) -> Bytes {
        let p99 = p99_of_sum(self.mean_of(samples), self.variance, samples);
        p99.min(narrow(self.max.saturating_mul(samples.into())))
    }
}

impl From<&Index> for Sizes {
    fn from(index: &Index) -> Self {
        Self::of(index.objects() as u64, || index.sizes())
    }
}
