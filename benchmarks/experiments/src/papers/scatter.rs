//! What is missed in an epoch, against the time of its loading: a point for each epoch of each turn.

use serde::Deserialize;

use super::measure::{Measure, Outcome};
use crate::figure::{Along, Chart, Series, Value};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Points {
    sides: Vec<String>,
    /// The side that reads everything from the bucket: times are in per cent of its.
    pub(super) bucket: String,
    /// Missed, and seconds; and the seconds of the bucket.
    published: Vec<[f64; 2]>,
    of: f64,
}

impl Points {
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.sides.iter().chain([&self.bucket]).map(String::as_str)
    }

    /// Sorted by what is missed.
    pub(super) fn here(&self, outcome: &Outcome) -> Vec<[f64; 2]> {
        let of_bucket = outcome.values(&self.bucket, Measure::WaitedS).first().copied().flatten();
        let bucket_s = of_bucket.map_or(f64::NAN, |it| it.median);
        let turns = self.sides.iter().filter_map(|it| outcome.turns.get(it)).flatten();
        let epochs = turns.flat_map(|turn| {
            let of = |measure: Measure| measure.of(turn, &outcome.setting);
            of(Measure::Missed).into_iter().zip(of(Measure::WaitedByEpochS))
        });
        // A bucket that is read one by one has two such epochs.
        let mut points: Vec<_> = epochs.map(|(missed, s)| [missed, 200.0 * s / bucket_s]).collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        points
    }
}

pub(super) fn chart((x, y): (&str, &str), points: &Points, outcome: &Outcome) -> Option<Chart> {
    let here = points.here(outcome);
    let published: Vec<_> =
        points.published.iter().map(|[missed, s]| [*missed, 100.0 * s / points.of]).collect();
    let mut along: Vec<f64> = here.iter().chain(&published).map(|it| 100.0 * it[0]).collect();
    along.sort_by(f64::total_cmp);
    along.dedup();
    let values = |points: &[[f64; 2]]| {
        let at = |x: &f64| {
            let is_there = |it: &&[f64; 2]| (100.0 * it[0]).total_cmp(x).is_eq();
            Value::of(&points.iter().filter(is_there).map(|it| it[1]).collect::<Vec<_>>())
        };
        along.iter().map(at).collect()
    };
    let series = vec![
        Series::published("published", values(&published)),
        Series::measured("here", values(&here)),
    ];
    (!here.is_empty()).then(|| Chart::new(x, y, Along::Positions(along), series))
}

/// The share of the variance that a line explains.
#[expect(clippy::cast_precision_loss, reason = "few points")]
pub(super) fn r_squared(points: &[[f64; 2]]) -> f64 {
    let mean = |at: usize| points.iter().map(|it| it[at]).sum::<f64>() / points.len() as f64;
    let means = [mean(0), mean(1)];
    let sum = |a: usize, b: usize| {
        points.iter().map(|it| (it[a] - means[a]) * (it[b] - means[b])).sum::<f64>()
    };
    sum(0, 1).powi(2) / (sum(0, 0) * sum(1, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_on_a_line_are_explained_by_it_and_others_are_not() {
        assert!((r_squared(&[[0.0, 1.0], [0.5, 2.0], [1.0, 3.0]]) - 1.0).abs() < 1e-9);
        assert!(r_squared(&[[0.0, 1.0], [0.5, 3.0], [1.0, 1.2]]) < 0.1);
    }
}
