//! The figures that claims reached in an earlier run, below which they must not fall.

use std::collections::BTreeMap;

use tierfeed_harness::judgement::Judgement;

use crate::figure::{Figure, Value};

/// The median of a claim may fall by the range of its turns, earlier or now, and by at least this share of
/// itself: one turn on another machine differs by as much.
const SLACK: f64 = 0.2;

/// Measured values by figure and claim; more is better.
pub type Floors = BTreeMap<String, BTreeMap<String, Value>>;

#[must_use]
pub fn floors(figures: &[Figure]) -> Floors {
    let of = |figure: &Figure| {
        let measured =
            figure.headlines.iter().filter_map(|claim| Some((claim.what.clone(), claim.measured?)));
        (figure.name.clone(), measured.collect())
    };
    figures.iter().map(of).collect()
}

/// Claims of `figures` that fell below floors. A figure without floors is not judged, nor are floors of a figure that
/// did not run.
#[must_use]
pub fn judged(floors: &Floors, figures: &[Figure]) -> Judgement {
    let mut judged = Judgement::default();
    for figure in figures {
        for (what, floor) in floors.get(&figure.name).into_iter().flatten() {
            let claim = figure.headlines.iter().find(|claim| claim.what == *what);
            let what = format!("{}, {what}", figure.name);
            judged = match claim.and_then(|claim| claim.measured) {
                Some(here) => {
                    let range = (floor.most - floor.least).max(here.most - here.least);
                    let least = floor.median - range.max(SLACK * floor.median.abs());
                    judged.at_least(&what, here.median, least)
                }
                None => {
                    judged.verdict(format!("{what}: it has a floor and was not measured"), "missed")
                }
            };
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        claim::times_as_much,
        figure::{Figure, Paper},
    };

    fn figure(times: Option<[f64; 3]>) -> Figure {
        let ours = times.map(|[least, median, most]| Value { median, least, most });
        let claim = times_as_much("times as fast", 1.0, ours, Some(Value::exactly(1.0)));
        Figure {
            headlines: claim.into_iter().collect(),
            command: String::new(),
            ..Figure::named(Paper::Lobster, "lobster-7", "", "")
        }
    }

    fn misses(times: Option<[f64; 3]>) -> usize {
        let floors = floors(&[figure(Some([1.9, 2.0, 2.0]))]);
        judged(&floors, &[figure(times)]).missed.len()
    }

    #[test]
    fn a_claim_misses_its_floor_if_its_median_falls_by_more_than_its_turns_lie_apart() {
        assert_eq!(misses(Some([1.2, 1.7, 1.8])), 0);
        assert_eq!(misses(Some([1.4, 1.5, 1.6])), 1);
        assert_eq!(misses(Some([1.1, 1.5, 1.8])), 0);
    }

    #[test]
    fn a_claim_that_is_gone_misses_its_floor() {
        assert_eq!(misses(None), 1);
        assert!(judged(&floors(&[figure(Some([1.0; 3]))]), &[]).missed.is_empty());
    }
}
