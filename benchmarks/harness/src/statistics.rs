//! Order statistics of small sets of measurements.

use anyhow::Context as _;
use serde::Serialize;

/// The value below which `percent` of the values lie (nearest rank), or `None` of nothing.
pub fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// The median of the ratios of the turns of two sides, and the quartiles around it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quartiles {
    #[serde(rename = "ratio")]
    pub median: f64,
    #[serde(rename = "ratio_low")]
    pub low: f64,
    #[serde(rename = "ratio_high")]
    pub high: f64,
}

/// The largest interquartile range, as a share of the median, that allows a verdict.
const SPREAD_MAX: f64 = 0.25;

impl Quartiles {
    /// # Errors
    ///
    /// Without a turn.
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> anyhow::Result<Self> {
        let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, it)| ours / it).collect();
        let at = |percent| percentile(&ratios, percent).context("no round was run");
        Ok(Self { median: at(50)?, low: at(25)?, high: at(75)? })
    }

    /// `kept`, `missed` or `inconclusive`, where a ratio of at least `promise` is promised.
    pub fn verdict(self, promise: f64) -> &'static str {
        let Self { median, low, high } = self;
        match () {
            // All but a quarter of the turns are on one side of the mark, however far they lie apart.
            () if low >= promise => "kept",
            () if high < promise => "missed",
            () if high - low > SPREAD_MAX * median => "inconclusive",
            () if median >= promise => "kept",
            () => "missed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(percentile(&values, 50), Some(3.0));
        assert_eq!(percentile(&values, 99), Some(5.0));
        assert_eq!(percentile(&values, 1), Some(1.0));
        assert_eq!(percentile(&[], 50), None);
    }
    #[test]
    fn what_lies_on_both_sides_of_the_mark_by_far_says_nothing() {
        let verdict = |median, low, high| Quartiles { median, low, high }.verdict(0.9);
        assert_eq!(verdict(1.0, 0.95, 1.5), "kept");
        assert_eq!(verdict(0.7, 0.3, 0.85), "missed");
        assert_eq!(verdict(0.95, 0.8, 1.1), "inconclusive");
        assert_eq!(verdict(0.92, 0.88, 0.95), "kept");
        assert_eq!(verdict(0.89, 0.86, 0.92), "missed");
    }
}
