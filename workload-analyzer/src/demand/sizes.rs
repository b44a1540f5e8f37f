//! What a demand needs of a dataset: how many samples and objects there are, and how sizes spread.
//!
//! Integers throughout, so that every machine prints the same figures.

use tierfeed_core::units::Bytes;

use super::narrow;
use crate::job::Described;
use tierfeed_dataset::Index;

/// A dataset in sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    samples: u32,
    objects: u64,
    total: u128,
    variance: u128,
    max: u128,
}

impl Sizes {
    /// Sums up a dataset of `objects`. `sizes` gives the size of each sample, and is asked twice.
    ///
    /// # Panics
    ///
    /// If there are no samples, or more than 32 bits can number.
    pub fn of<I: Iterator<Item = Bytes>>(objects: u64, sizes: impl Fn() -> I) -> Self {
        Self::of_groups(objects, || sizes().map(|size| (size, 1)))
    }

    /// As [`Self::of`]. `groups` gives each size with the number of samples that have it.
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

    /// A dataset that is not here, with the sizes that `seed` gives to its samples.
    ///
    /// # Panics
    ///
    /// If the description has no samples; a job with such a one does not load.
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

    /// Files, or what a bucket has under keys.
    #[must_use]
    pub const fn objects(&self) -> u64 {
        self.objects
    }

    /// Bytes of all samples.
    #[must_use]
    pub fn total(&self) -> Bytes {
        narrow(self.total)
    }

    /// Bytes of `samples` of mean size, rounded up.
    #[must_use]
    pub fn mean_of(&self, samples: u64) -> Bytes {
        narrow(self.total.saturating_mul(samples.into()).div_ceil(self.samples.into()))
    }

    /// Bytes of `reads` samples of mean size, rounded down: what an epoch reads.
    #[must_use]
    pub fn epoch_of(&self, reads: u64) -> Bytes {
        narrow(self.total.saturating_mul(reads.into()) / u128::from(self.samples))
    }

    /// What 99 of 100 random sets of `samples` do not exceed: the mean plus 2.326 standard deviations
    /// of a sum, and no more than the largest sample so many times.
    #[must_use]
    pub fn p99_of(&self, samples: u64) -> Bytes {
        let count = u128::from(samples);
        let deviation = self.variance.saturating_mul(count).isqrt();
        let tail = deviation.saturating_mul(2_326) / 1_000;
        let p99 = u128::from(self.mean_of(samples).0).saturating_add(tail);
        narrow(p99.min(self.max.saturating_mul(count)))
    }
}

impl From<&Index> for Sizes {
    fn from(index: &Index) -> Self {
        Self::of(index.objects() as u64, || index.sizes())
    }
}
