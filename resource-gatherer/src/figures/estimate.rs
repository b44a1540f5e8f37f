//! Decides what a set of samples says: a median, and how far off it may be.
//!
//! The interval is the nonparametric 95 % confidence interval of the median: two order statistics. It
//! assumes no distribution, which matters because times have a long upper tail.
//!
//! Source: T. Hoefler, R. Belli, "Scientific Benchmarking of Parallel Computing Systems", SC 2015
//! (doi:10.1145/2807591.2807644), section 3.1.3.

use serde::{Deserialize, Serialize};

/// A measured value in the unit that the name of its field states.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the samples, or what is stated.
    pub median: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end of its 95 % confidence interval.
    pub high: f64,
    /// The number of samples used; 0 for a value that was stated, not measured.
    pub samples: usize,
    /// Whether the interval got as narrow as asked before the budget ended.
    pub converged: bool,
    /// Whether other programs took the CPU in most samples, so that CPU time had to stand in where it can.
    pub contended: bool,
    /// Whether the samples went on moving in one direction, even when they were taken again.
    pub drifted: bool,
    /// The best sample, for comparison with programs that report their best; never used to decide.
    pub best: f64,
}

impl Estimate {
    /// A value that somebody states: the firmware, or the settings of an emulated tier.
    #[must_use]
    pub fn stated(value: f64) -> Self {
        Self {
            median: value,
            low: value,
            high: value,
            samples: 0,
            converged: false,
            contended: false,
            drifted: false,
            best: value,
        }
    }

    #[must_use]
    pub fn divided_by(self, count: f64) -> Self {
        self.map(|value| value / count)
    }

    /// The estimate of `amount` per second, if this is the time in nanoseconds that `amount` takes.
    #[must_use]
    pub fn per_second(self, amount: f64) -> Self {
        let inverse = self.map(|nanoseconds| amount * 1e9 / nanoseconds);
        Self { low: inverse.high, high: inverse.low, ..inverse }
    }

    /// To one decimal: more would only pretend, and would not survive JSON bit for bit.
    #[must_use]
    pub fn rounded(self) -> Self {
        self.map(to_tenths)
    }

    /// Linear interpolation between this and `other`, at `weight` from 0 to 1.
    #[must_use]
    pub fn towards(&self, other: &Self, weight: f64) -> Self {
        let between = |a: f64, b: f64| a + weight * (b - a);
        Self {
            median: between(self.median, other.median),
            low: between(self.low, other.low),
            high: between(self.high, other.high),
            samples: self.samples.min(other.samples),
            converged: self.converged && other.converged,
            contended: self.contended || other.contended,
            drifted: self.drifted || other.drifted,
            best: between(self.best, other.best),
        }
    }

    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        Self {
            median: convert(self.median),
            low: convert(self.low),
            high: convert(self.high),
            best: convert(self.best),
            ..self
        }
    }
}

/// Median and interval of `values`, of which the least is the best, or `None` if there are none.
pub(crate) fn of_values(values: &[u64]) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let (first, last) = interval_ranks(sorted.len())?;
    Some(Estimate {
        median: median_of_sorted(&sorted),
        low: to_f64(sorted[first]),
        high: to_f64(sorted[last]),
        samples: sorted.len(),
        converged: false,
        contended: false,
        drifted: false,
        best: to_f64(sorted[0]),
    })
}

pub(crate) fn median(values: &[u64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

fn median_of_sorted(sorted: &[u64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        to_f64(sorted[middle])
    } else {
        f64::midpoint(to_f64(sorted[middle - 1]), to_f64(sorted[middle]))
    }
}

pub(crate) fn relative_half_width(estimate: &Estimate) -> f64 {
    (estimate.high - estimate.low) / 2.0 / estimate.median
}

/// The indices, from 0, of the order statistics that enclose the median of `count` sorted values.
///
/// The source counts ranks from 1: floor((n - 1.96 sqrt(n)) / 2) to ceil(1 + (n + 1.96 sqrt(n)) / 2).
/// Few values have no such pair; then the whole range is the interval.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of samples are far below 2^52 and both results are clamped to 1..=n"
)]
pub(crate) fn interval_ranks(count: usize) -> Option<(usize, usize)> {
    if count == 0 {
        return None;
    }
    let n = count as f64;
    let spread = 1.96 * n.sqrt();
    let low = ((n - spread) / 2.0).floor().clamp(1.0, n);
    let high = (1.0 + f64::midpoint(n, spread)).ceil().clamp(1.0, n);
    Some((low as usize - 1, high as usize - 1))
}

/// A value to one decimal, which JSON keeps bit for bit.
pub(crate) fn to_tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[expect(clippy::cast_precision_loss, reason = "a sample of 2^53 ns would take three months")]
pub(crate) fn to_f64(value: u64) -> f64 {
    value as f64
}

#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are positive, and the cast saturates"
)]
pub(crate) fn whole(estimate: Estimate) -> u64 {
    estimate.median.round() as u64
}

#[must_use]
pub(crate) fn tenths(estimate: Estimate) -> f64 {
    estimate.rounded().median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_hundred_values_is_the_40th_to_the_61st() {
        let values: Vec<u64> = (1..=100).rev().collect();
        let estimate = of_values(&values).unwrap();
        assert_eq!((estimate.median, estimate.low, estimate.high), (50.5, 40.0, 61.0));
    }

    #[test]
    fn the_interval_of_few_values_is_their_range() {
        assert_eq!(interval_ranks(1), Some((0, 0)));
        assert_eq!(interval_ranks(5), Some((0, 4)));
        assert_eq!(interval_ranks(10), Some((0, 9)));
        assert_eq!(interval_ranks(0), None);
    }

    #[test]
    fn a_rate_swaps_the_ends_of_the_interval_and_keeps_the_best() {
        let time = of_values(&[1, 2, 4]).unwrap();
        let rate = time.per_second(4.0);
        assert_eq!((rate.median, rate.low, rate.high, rate.best), (2e9, 1e9, 4e9, 4e9));
    }

    proptest::proptest! {
        /// The order statistics are chosen so that the median of the population lies between them in at
        /// least 95 % of the cases; here it is known, and the binomial distribution is summed.
        #[test]
        fn the_interval_covers_the_median_in_95_percent_of_the_cases(count in 6_usize..=100) {
            let (low, high) = interval_ranks(count).unwrap();
            let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap());
            let mut covered = 0.0;
            for below in 0..=count {
                // With `below` values under the median it lies between ranks `below` and `below + 1`.
                if below > low && below <= high {
                    covered += probability;
                }
                let (left, next) = (to_f64((count - below) as u64), to_f64(below as u64 + 1));
                probability *= left / next;
            }
            proptest::prop_assert!(covered >= 0.95, "{covered} of {count}");
        }

        #[test]
        fn the_best_is_the_least_and_bounds_the_interval(values in proptest::collection::vec(1_u64..1_000_000, 1..300)) {
            let estimate = of_values(&values).unwrap();
            proptest::prop_assert!(values.iter().all(|value| estimate.best <= to_f64(*value)));
            proptest::prop_assert!(estimate.best <= estimate.low);
            let rate = estimate.per_second(1.0);
            proptest::prop_assert!(rate.low <= rate.median && rate.median <= rate.high && rate.high <= rate.best);
        }

        #[test]
        fn the_median_lies_in_its_interval(values in proptest::collection::vec(1_u64..1_000_000, 1..300)) {
            let estimate = of_values(&values).unwrap();
            proptest::prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
        }
    }
}
