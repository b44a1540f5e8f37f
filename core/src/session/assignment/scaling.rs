//! How long an operation takes by how many run at a time, fitted from operations that ended.
//!
//! A thread of the paper is an operation in flight here. What a count of them gets done in a second follows
//! from the time of one: `count / time`.
//!
//! # Source
//!
//! Lobster, section 4.1: a piecewise linear regression from the number of threads to the time of one sample, a
//! model for each sample size, and the model of the closest size where there is none. Left open by the paper,
//! and done so:
//!
//! - It has two pieces: as long as there are idle cores, or idle lanes of a link, a further operation costs the
//!   others nothing; from then on each costs all of them. Where they meet is what leaves the least squares.
//! - Observations come from the run. Outside of the counts that were observed an operation takes what it took at
//!   the closest one, so that counts which might be better are tried.
//! - A size stands for all that have as many bits, and time is counted by byte within it.
//! - Old observations fade: after [`FADES_AFTER`] operations each one before counts half.

use alloc::{collections::BTreeMap, vec::Vec};
use core::num::NonZeroU32;

use crate::{
    throughput::Throughput,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// After this many operations of a size, the earlier ones count half.
pub const FADES_AFTER: u64 = 1024;

/// Higher counts of simultaneous operations count as this one.
pub const COUNTS_MAX: u32 = 512;

/// In hundredths of the best rate: a rate this close to it counts as equal.
pub const NEARLY: u128 = 99;

/// The unit of bytes by which time is fitted, so that a fast link does not round to nothing.
const UNIT: Bytes = Bytes(1 << 20);

#[derive(Debug, Clone, Copy, Default)]
struct Observed {
    operations: u64,
    bytes: u64,
    time: u64,
}

/// Operations on samples of similar size, by how many ran at a time.
#[derive(Debug, Clone, Default)]
struct Observations {
    by_count: BTreeMap<u32, Observed>,
    operations: u64,
}

/// The observations of one kind of operation, by the size of samples.
#[derive(Debug, Clone, Default)]
pub struct Scaling {
    by_bits: BTreeMap<u32, Observations>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    low: Line,
    high: Line,
    /// The last count to which the first piece belongs.
    knee: u32,
    /// The first and the last count that were observed.
    counts: (u32, u32),
    /// The least and the most nanoseconds by unit that were observed.
    times: (f64, f64),
}

/// Nanoseconds by unit: `at_zero + slope × count`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    at_zero: f64,
    slope: f64,
}

/// The nanoseconds by unit at a count, weighted by the number of operations.
#[derive(Debug, Clone, Copy)]
struct Point {
    count: f64,
    time: f64,
    weight: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    weight: f64,
    count: f64,
    time: f64,
    count_squared: f64,
    product: f64,
    time_squared: f64,
}

impl Scaling {
    /// `count` is the number of operations that ran at the time, this one included.
    pub fn observe(&mut self, count: u32, len: Bytes, time: Nanoseconds) {
        if len.0 > 0 {
            let observations = self.by_bits.entry(bits(len)).or_default();
            observations.add(count.clamp(1, COUNTS_MAX), len, time);
        }
    }

    /// The model of samples of this length, or of the closest length; `None` before the first operation.
    #[must_use]
    pub fn fit(&self, len: Bytes) -> Option<Fit> {
        let closest = self.by_bits.iter().min_by_key(|(other, _)| other.abs_diff(bits(len)));
        closest.and_then(|(_, observations)| observations.fit())
    }
}

fn bits(len: Bytes) -> u32 {
    u64::BITS - len.0.leading_zeros()
}

impl Observations {
    fn add(&mut self, count: u32, len: Bytes, time: Nanoseconds) {
        let observed = self.by_count.entry(count).or_default();
        observed.operations += 1;
        observed.bytes = observed.bytes.saturating_add(len.0);
        observed.time = observed.time.saturating_add(time.0);
        self.operations += 1;
        if self.operations >= FADES_AFTER {
            self.fade();
        }
    }

    fn fade(&mut self) {
        self.by_count.retain(|_, observed| {
            let Observed { operations, bytes, time } = observed;
            *observed =
                Observed { operations: *operations / 2, bytes: *bytes / 2, time: *time / 2 };
            observed.operations > 0
        });
        self.operations = self.by_count.values().map(|observed| observed.operations).sum();
    }

    fn fit(&self) -> Option<Fit> {
        let points: Vec<(u32, Point)> = self
            .by_count
            .iter()
            .map(|(count, observed)| (*count, observed.point(*count)))
            .collect();
        let (first, last) = (points.first()?.0, points.last()?.0);
        let times = points.iter().map(|(_, point)| point.time);
        let quickest = times.clone().fold(f64::MAX, f64::min);
        let slowest = times.fold(0.0, f64::max);
        let all: Sums = points.iter().fold(Sums::default(), |sums, (_, point)| sums.with(*point));
        let (mut low, mut high, mut knee) = (all.line(), all.line(), last);
        let mut least_squares = all.squares();
        let mut below = Sums::default();
        for (at, (count, point)) in points.iter().enumerate() {
            below = below.with(*point);
            let is_line = |counts: usize| counts >= 2;
            if !is_line(at + 1) || !is_line(points.len() - at - 1) {
                continue;
            }
            let above = all.without(below);
            let squares = below.squares() + above.squares();
            if squares < least_squares {
                least_squares = squares;
                (low, high, knee) = (below.line(), above.line(), *count);
            }
        }
        Some(Fit { low, high, knee, counts: (first, last), times: (quickest, slowest) })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a mean needs no more than 53 bits")]
impl Observed {
    fn point(&self, count: u32) -> Point {
        let time = self.time as f64 * UNIT.0 as f64 / (self.bytes as f64).max(1.0);
        Point { count: f64::from(count), time, weight: self.operations as f64 }
    }
}

impl Fit {
    /// The rate of `count` simultaneous operations together.
    #[must_use]
    pub fn rate(&self, count: u32) -> BytesPerSecond {
        rate_of(f64::from(count.max(1)) / self.time(count))
    }

    /// The rate of each number of operations up to `all` while `all` run.
    #[must_use]
    pub fn among(&self, all: NonZeroU32) -> Throughput {
        let time = self.time(all.get());
        let at = |count: NonZeroU32| (count, rate_of(f64::from(count.get()) / time));
        let (one, whole) = (at(NonZeroU32::MIN), at(all));
        Throughput::measured(&[one, whole]).unwrap_or_else(|_| Throughput::constant(one.1))
    }

    /// The smallest count up to `most` with the best rate, or nearly ([`NEARLY`]).
    #[must_use]
    pub fn peak(&self, most: NonZeroU32) -> NonZeroU32 {
        let mut counts = (1..=most.get().min(COUNTS_MAX)).filter_map(NonZeroU32::new);
        let rate = |count: NonZeroU32| u128::from(self.rate(count.get()).0);
        let best = counts.clone().map(rate).max().unwrap_or(0);
        counts.find(|count| rate(*count) * 100 >= best * NEARLY).unwrap_or(NonZeroU32::MIN)
    }

    fn time(&self, count: u32) -> f64 {
        let count = count.clamp(self.counts.0, self.counts.1);
        let line = if count <= self.knee { self.low } else { self.high };
        let time = line.at_zero + line.slope * f64::from(count);
        time.clamp(self.times.0, self.times.1).max(1.0)
    }
}

/// Units by nanosecond as bytes by second, at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a rate is above zero, and needs no more than 53 bits"
)]
fn rate_of(units: f64) -> BytesPerSecond {
    BytesPerSecond(((units * 1e9 * UNIT.0 as f64) as u64).max(1))
}

impl Sums {
    fn with(self, Point { count, time, weight }: Point) -> Self {
        Self {
            weight: self.weight + weight,
            count: self.count + weight * count,
            time: self.time + weight * time,
            count_squared: self.count_squared + weight * count * count,
            product: self.product + weight * count * time,
            time_squared: self.time_squared + weight * time * time,
        }
    }

    fn without(self, other: Self) -> Self {
        Self {
            weight: self.weight - other.weight,
            count: self.count - other.count,
            time: self.time - other.time,
            count_squared: self.count_squared - other.count_squared,
            product: self.product - other.product,
            time_squared: self.time_squared - other.time_squared,
        }
    }

    /// The line with the least squares; level through the mean if there is but one count.
    fn line(self) -> Line {
        let spread = self.weight * self.count_squared - self.count * self.count;
        let slope = if spread > 0.5 {
            (self.weight * self.product - self.count * self.time) / spread
        } else {
            0.0
        };
        Line { at_zero: (self.time - slope * self.count) / self.weight, slope }
    }

    /// The sum of squared errors of the line.
    fn squares(self) -> f64 {
        let Line { at_zero, slope } = self.line();
        let left = self.time_squared - at_zero * self.time - slope * self.product;
        left.max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: Bytes = Bytes(100_000);

    fn count(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    /// `cores` cores, each of which needs `time` for a sample; more operations than cores share them.
    fn on_cores(cores: u32, time: u64, counts: impl IntoIterator<Item = u32>) -> Fit {
        let mut scaling = Scaling::default();
        for count in counts {
            let shared = time * u64::from(count.max(cores)) / u64::from(cores);
            (0..20).for_each(|_| scaling.observe(count, LEN, Nanoseconds(shared)));
        }
        scaling.fit(LEN).unwrap()
    }

    fn is_near(one: BytesPerSecond, other: u64) -> bool {
        one.0.abs_diff(other) * 100 <= other
    }

    #[test]
    fn the_peak_is_where_the_cores_are_all_taken() {
        let fit = on_cores(4, 1_000_000, 1..=12);
        assert!((3..=4).contains(&fit.knee), "{fit:?}");
        assert_eq!(fit.peak(count(12)), count(4));
        assert_eq!(fit.peak(count(3)), count(3));
        // 100 kB a millisecond and core.
        for (threads, rate) in [(1, 100), (2, 200), (4, 400), (8, 400), (12, 400)] {
            let found = fit.rate(threads);
            assert!(is_near(found, rate * 1_000_000), "{threads} threads: {found:?}");
        }
    }

    #[test]
    fn the_time_of_one_count_is_taken_for_all_until_others_are_observed() {
        let fit = on_cores(2, 1_000_000, [3]);
        assert!(is_near(fit.rate(3), 200_000_000));
        assert!(is_near(fit.rate(6), 400_000_000), "more might be better: {:?}", fit.rate(6));
        let fit = on_cores(2, 1_000_000, [3, 6]);
        assert!(is_near(fit.rate(6), 200_000_000), "they were not: {:?}", fit.rate(6));
    }

    #[test]
    fn where_more_threads_hinder_each_other_fewer_are_the_peak() {
        let mut scaling = Scaling::default();
        for threads in 1..=8_u32 {
            // Up to 4 side by side, then each further one costs the others more than it does itself.
            let extra = u64::from(threads.saturating_sub(4));
            scaling.observe(threads, LEN, Nanoseconds(1_000_000 + extra * 500_000));
        }
        let fit = scaling.fit(LEN).unwrap();
        assert_eq!(fit.peak(count(8)), count(4), "{fit:?}");
    }

    #[test]
    fn each_size_has_its_model_and_others_the_closest() {
        let mut scaling = Scaling::default();
        assert!(scaling.fit(LEN).is_none());
        scaling.observe(1, Bytes(10_000), Nanoseconds(1_000_000));
        scaling.observe(1, Bytes(1_000_000), Nanoseconds(1_000_000));
        let rate = |len| scaling.fit(Bytes(len)).unwrap().rate(1);
        assert!(is_near(rate(9000), 10_000_000));
        assert!(is_near(rate(900_000), 1_000_000_000));
        assert!(is_near(rate(20_000), 10_000_000));
        assert!(is_near(rate(1 << 40), 1_000_000_000));
    }

    #[test]
    fn what_is_long_past_counts_next_to_nothing() {
        let mut scaling = Scaling::default();
        (0..FADES_AFTER).for_each(|_| scaling.observe(2, LEN, Nanoseconds(8_000_000)));
        (0..8 * FADES_AFTER).for_each(|_| scaling.observe(2, LEN, Nanoseconds(1_000_000)));
        assert!(is_near(scaling.fit(LEN).unwrap().rate(2), 200_000_000));
    }

    #[test]
    fn a_part_of_the_threads_gets_its_part_of_what_all_get_done() {
        let among = on_cores(4, 1_000_000, 1..=12).among(count(8));
        assert!(is_near(among.at(8), 400_000_000));
        assert!(is_near(among.at(2), 100_000_000));
        assert!(is_near(on_cores(4, 1_000_000, [1]).among(count(1)).at(1), 100_000_000));
    }
}
