//! The rate of a link as a function of the number of threads that read from it at the same time.
//!
//! One thread seldom saturates a link, and too many can slow it down, so a link is measured with
//! several counts. Between two measured counts the rate is interpolated; beyond the first and the
//! last it is constant, because nothing was measured there.

use alloc::{vec, vec::Vec};
use core::num::NonZeroU32;

use crate::units::BytesPerSecond;

/// The rate of all threads together, by their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Throughput {
    /// In ascending order of threads; at least one point.
    points: Vec<(NonZeroU32, BytesPerSecond)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    #[error("the table of rates is empty; it needs at least one count of threads")]
    Empty,
    #[error("the rate with {threads} threads is 0 B/s; it must be above zero")]
    NoRate { threads: NonZeroU32 },
    #[error("the rate with {threads} threads comes after one with as many or more; sort the table")]
    Unsorted { threads: NonZeroU32 },
}

impl Throughput {
    /// The same rate for any number of threads. Zero means unlimited.
    #[must_use]
    pub fn constant(rate: BytesPerSecond) -> Self {
        Self { points: vec![(NonZeroU32::MIN, rate)] }
    }

    /// The numbers of threads ascend.
    ///
    /// # Errors
    ///
    /// [`TableError`] if the table is empty, a rate is zero, or the counts are not ascending.
    pub fn measured(points: &[(NonZeroU32, BytesPerSecond)]) -> Result<Self, TableError> {
        if points.is_empty() {
            return Err(TableError::Empty);
        }
        for (index, (threads, rate)) in points.iter().enumerate() {
            if rate.0 == 0 {
                return Err(TableError::NoRate { threads: *threads });
            }
            if index > 0 && points[index - 1].0 >= *threads {
                return Err(TableError::Unsorted { threads: *threads });
            }
        }
        Ok(Self { points: points.to_vec() })
    }

    /// The rate of `threads` threads together; zero threads count as one.
    ///
    /// # Source
    ///
    /// Linear between neighbours, constant beyond the ends: `interpolate_map` of NoPFS
    /// (`spcl/NoPFS`, branch `old-nopfs`, `MetadataStore.cpp`).
    #[must_use]
    pub fn at(&self, threads: u32) -> BytesPerSecond {
        let above = self.points.iter().position(|(count, _)| count.get() >= threads);
        let Some(above) = above else { return self.points[self.points.len() - 1].1 };
        let (high, high_rate) = self.points[above];
        if above == 0 || high.get() == threads {
            return high_rate;
        }
        let (low, low_rate) = self.points[above - 1];
        let (way, whole) = (threads - low.get(), high.get() - low.get());
        let part = |rate: BytesPerSecond, weight: u32| u128::from(rate.0) * u128::from(weight);
        let rate = (part(low_rate, whole - way) + part(high_rate, way)) / u128::from(whole);
        BytesPerSecond(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// The highest rate that up to `threads` threads reach.
    #[must_use]
    pub fn peak_up_to(&self, threads: u32) -> BytesPerSecond {
        let measured = self.points.iter().filter(|(count, _)| count.get() <= threads);
        measured.map(|(_, rate)| *rate).fold(self.at(threads), BytesPerSecond::max)
    }

    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.points.len() == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(points: &[(u32, u64)]) -> Result<Throughput, TableError> {
        let point = |(threads, rate): &(u32, u64)| {
            (NonZeroU32::new(*threads).unwrap(), BytesPerSecond(*rate))
        };
        Throughput::measured(&points.iter().map(point).collect::<Vec<_>>())
    }

    #[test]
    fn rates_are_interpolated_between_measured_counts_and_stay_beyond_them() {
        let throughput = table(&[(2, 100), (4, 300), (8, 200)]).unwrap();
        let rates: Vec<u64> = (0..10).map(|threads| throughput.at(threads).0).collect();
        assert_eq!(rates, [100, 100, 100, 200, 300, 275, 250, 225, 200, 200]);
        let peaks: Vec<u64> = [1, 3, 6, 9].map(|threads| throughput.peak_up_to(threads).0).to_vec();
        assert_eq!(peaks, [100, 200, 300, 300]);
        assert_eq!(Throughput::constant(BytesPerSecond(7)).at(1000), BytesPerSecond(7));
    }

    #[test]
    fn tables_that_describe_no_link_are_refused() {
        let threads = |count| NonZeroU32::new(count).unwrap();
        assert_eq!(table(&[]), Err(TableError::Empty));
        assert_eq!(table(&[(1, 5), (2, 0)]), Err(TableError::NoRate { threads: threads(2) }));
        assert_eq!(table(&[(2, 5), (2, 6)]), Err(TableError::Unsorted { threads: threads(2) }));
    }
}
