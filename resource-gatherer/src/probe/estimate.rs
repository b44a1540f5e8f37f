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
    /// The value.
    pub median: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end of its 95 % confidence interval.
    pub high: f64,
    /// How many samples were used; 0 for a value that was stated, not measured.
    pub samples: usize,
    /// Whether the interval got as narrow as asked before the budget ended.
    pub converged: bool,
    /// Whether other programs took the CPU in most samples, so that CPU time had to stand in.
    pub contended: bool,
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
        }
    }

    /// The estimate of one of `count` equal parts.
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

    /// The estimate to one decimal: more would only pretend, and would not survive JSON bit for bit.
    #[must_use]
    pub fn rounded(self) -> Self {
        self.map(|value| (value * 10.0).round() / 10.0)
    }

    /// Whether both may be the same value.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }

    fn map(self, convert: impl Fn(f64) -> f64) -> Self {
        let (median, low, high) = (convert(self.median), convert(self.low), convert(self.high));
        Self { median, low, high, ..self }
    }
}

/// Median and interval of `values`, or `None` if there are none.
pub(crate) fn of_values(values: &[u64]) -> Option<Estimate> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let (first, last) = interval_ranks(sorted.len())?;
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 {
        to_f64(sorted[middle])
    } else {
        f64::midpoint(to_f64(sorted[middle - 1]), to_f64(sorted[middle]))
    };
    Some(Estimate {
        median,
        low: to_f64(sorted[first]),
        high: to_f64(sorted[last]),
        samples: sorted.len(),
        converged: false,
        contended: false,
    })
}

/// Half the width of the interval, as a share of the median.
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

#[expect(clippy::cast_precision_loss, reason = "a sample of 2^53 ns would take three months")]
pub(crate) fn to_f64(value: u64) -> f64 {
    value as f64
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
    fn a_rate_swaps_the_ends_of_the_interval() {
        let time = Estimate { median: 2.0, low: 1.0, high: 4.0, ..Estimate::stated(0.0) };
        let rate = time.per_second(4.0);
        assert_eq!((rate.median, rate.low, rate.high), (2e9, 1e9, 4e9));
    }

    proptest::proptest! {
        #[test]
        fn the_median_lies_in_its_interval(values in proptest::collection::vec(1_u64..1_000_000, 1..300)) {
            let estimate = of_values(&values).unwrap();
            proptest::prop_assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
        }
    }
}
