//! Samples of one turn and the statistic that stands for them, the same for both sides.

use serde::Serialize;

use super::paired::median_of_sorted;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub(super) wall_ns: f64,
    pub(super) cpu_share: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Statistic {
    /// The shortest time, as STREAM reports.
    Best,
    /// The median, as tierfeed reports.
    Median,
    /// A percentile of single requests.
    Rank,
}

impl Statistic {
    /// The time and the CPU share that stand for `samples`, of which the first is dropped: it pays for cold
    /// caches. `None` for fewer than two.
    pub(super) fn of(self, samples: &[Sample]) -> Option<Sample> {
        let counted = samples.get(1..).filter(|counted| !counted.is_empty())?;
        if self == Self::Best {
            return counted.iter().copied().min_by(|a, b| a.wall_ns.total_cmp(&b.wall_ns));
        }
        let middle = |of: fn(&Sample) -> f64| {
            let mut values: Vec<f64> = counted.iter().map(of).collect();
            values.sort_by(f64::total_cmp);
            median_of_sorted(&values)
        };
        Some(Sample {
            wall_ns: middle(|sample| sample.wall_ns),
            cpu_share: middle(|sample| sample.cpu_share),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "bytes, hops and nanoseconds are far below 2^53")]
pub(super) fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wall_ns: f64, cpu_share: f64) -> Sample {
        Sample { wall_ns, cpu_share }
    }

    #[test]
    fn the_best_sample_brings_its_own_share_and_the_first_is_dropped() {
        let samples = [sample(1.0, 1.0), sample(9.0, 0.5), sample(5.0, 0.9), sample(7.0, 1.0)];
        assert_eq!(Statistic::Best.of(&samples), Some(sample(5.0, 0.9)));
    }

    #[test]
    fn the_median_has_the_median_share() {
        let samples = [sample(1.0, 0.0), sample(9.0, 0.5), sample(5.0, 1.0), sample(7.0, 1.0)];
        assert_eq!(Statistic::Median.of(&samples), Some(sample(7.0, 1.0)));
    }

    #[test]
    fn one_sample_is_none() {
        assert_eq!(Statistic::Best.of(&[sample(1.0, 1.0)]), None);
        assert_eq!(Statistic::Median.of(&[]), None);
    }
}
