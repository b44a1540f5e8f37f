//! Figures 4 and 5: what caches of several sizes miss, and that time follows what is missed.

use super::{
    blank,
    node::{Measured, Reader, Run, Turn, UNLIMITED, Workload},
};
use crate::{
    claim::at_most,
    figure::{Along, Chart, Figure, Headline, Series, Source, Value, Verdict},
};

pub(super) const LINEAR: &str = "deli-4";
pub(super) const SIZES: &str = "deli-5";

/// Sizes as shares of what a node reads in an epoch, and the miss rate of the second epoch.
///
/// # Source
///
/// The measurements of MNIST that the authors of DELI published.
const CACHES: [(&str, u32, f64); 4] = [
    ("25 %", 3_500, 0.989),
    ("50 %", 7_000, 0.953),
    ("75 %", 10_500, 0.887),
    ("all", UNLIMITED, 0.668),
];

/// Miss rate and seconds of the first epoch of fetch sizes from 256 to 3,072 with a cache without a limit.
///
/// # Source
///
/// The measurements of MNIST that the authors of DELI published.
const PUBLISHED: [(f64, f64); 7] = [
    (0.131, 103.1),
    (0.161, 117.6),
    (0.199, 143.5),
    (0.234, 166.1),
    (0.290, 201.9),
    (0.316, 238.6),
    (0.473, 342.7),
];

/// How far two parts of 700 samples that are dealt lie apart: two standard deviations of a share of two thirds.
const DEALT: f64 = 0.036;

/// How much of the variance a line explains where points lie on one.
const LINEAR_FROM: f64 = 0.95;

type Policy = (&'static str, fn(u32) -> Reader);

const POLICIES: [Policy; 2] =
    [("fifo", |cache| Reader::Fifo { cache }), ("tierfeed (gap)", |cache| Reader::Gap { cache })];

pub(super) fn runs() -> Vec<Run> {
    let sides = POLICIES.iter().flat_map(|(_, reader)| CACHES.map(|it| reader(it.1)));
    let bucket = [Run::baseline(Reader::Bucket)];
    bucket.into_iter().chain(sides.map(|it| Run::new(Workload::Mnist, it))).collect()
}

pub(super) fn sizes(measured: &Measured) -> Figure {
    let missed = |turn: &Turn| turn.missed.get(1).copied().unwrap_or(f64::NAN);
    let mut series = vec![Series {
        name: "published".to_owned(),
        source: Source::Published,
        values: CACHES.map(|it| Some(Value::exactly(100.0 * it.2))).to_vec(),
    }];
    let mut headlines = Vec::new();
    for (name, reader) in POLICIES {
        let of = |cache| Run::new(Workload::Mnist, reader(cache));
        series.push(Series {
            name: name.to_owned(),
            source: Source::Measured,
            values: CACHES.map(|it| measured.value(of(it.1), |turn| 100.0 * missed(turn))).to_vec(),
        });
        for (size, cache, published) in CACHES {
            let what = format!("miss rate of the second epoch, cache for {size}, {name}");
            let here = measured.value(of(cache), missed);
            headlines.extend(if is_drawn(name, cache) {
                as_drawn(&what, published, here)
            } else {
                at_most(&what, published, here)
            });
        }
    }
    let along = Along::Groups(CACHES.map(|it| it.0.to_owned()).to_vec());
    let chart = Chart {
        title: String::new(),
        x: "cache, of what a node reads in an epoch".to_owned(),
        y: "missed in the second epoch, %".to_owned(),
        along,
        series,
    };
    Figure {
        charts: vec![chart],
        headlines,
        ..blank(measured, SIZES, "Figure 5", "What caches without prefetching miss")
    }
}

/// Whether only the draw decides: a cache of what was read last, or one that keeps all of it.
fn is_drawn(policy: &str, cache: u32) -> bool {
    policy == POLICIES[0].0 || cache == UNLIMITED
}

/// A miss rate that follows from the part of the dataset that a node is dealt.
fn as_drawn(what: &str, published: f64, here: Option<Value>) -> Option<Headline> {
    let claim = at_most(what, published, here)?;
    let is_near = (here?.median - published).abs() <= DEALT;
    let verdict = if is_near { Verdict::Reproduced } else { Verdict::NotReached };
    Some(Headline { verdict, ..claim }.because("a node was dealt another part of the dataset"))
}

pub(super) fn linear(measured: &Measured) -> Figure {
    let bucket = measured.loading(Run::baseline(Reader::Bucket)).map_or(f64::NAN, |it| it.median);
    let epochs = |turn: &Turn| turn.missed.clone().into_iter().zip(turn.loading_s.clone());
    let runs = runs().into_iter().filter_map(|run| measured.turns.get(&run));
    // A bucket that is read one by one has two such epochs.
    let points = runs.flatten().flat_map(epochs).map(|(missed, s)| (missed, 200.0 * s / bucket));
    let mut points: Vec<(f64, f64)> = points.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let published =
        PUBLISHED.map(|(missed, s)| (missed, 100.0 * s / Workload::Mnist.published_bucket_s()));
    let mut along: Vec<f64> = points.iter().chain(&published).map(|it| 100.0 * it.0).collect();
    along.sort_by(f64::total_cmp);
    along.dedup();
    let values = |points: &[(f64, f64)]| {
        let at = |x: &f64| {
            let here: Vec<f64> = points
                .iter()
                .filter(|it| (100.0 * it.0).total_cmp(x).is_eq())
                .map(|it| it.1)
                .collect();
            Value::of(&here)
        };
        along.iter().map(at).collect()
    };
    let series = vec![
        Series {
            name: "published".to_owned(),
            source: Source::Published,
            values: values(&published),
        },
        Series { name: "here".to_owned(), source: Source::Measured, values: values(&points) },
    ];
    let headline = is_linear(r_squared(&points));
    let (x, y) =
        ("missed, %".to_owned(), "loading time of the epoch, % of the bucket's".to_owned());
    let chart = Chart { title: String::new(), x, y, along: Along::Positions(along), series };
    Figure {
        charts: vec![chart],
        headlines: vec![headline],
        ..blank(measured, LINEAR, "Figure 4", "Loading time against what is missed")
    }
}

fn is_linear(r_squared: f64) -> Headline {
    let verdict = if r_squared >= LINEAR_FROM { Verdict::Reproduced } else { Verdict::NotReached };
    Headline {
        what: "loading time is a line over the miss rate".to_owned(),
        published: "linear".to_owned(),
        here: format!("a line explains {:.1} % of the variance", 100.0 * r_squared),
        measured: Some(Value::exactly(r_squared)),
        verdict,
        why: String::new(),
    }
    .because("epochs of the same miss rate took times that lie apart")
}

/// How much of the variance a line explains.
#[expect(clippy::cast_precision_loss, reason = "few points")]
fn r_squared(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| points.iter().map(|it| of(it.0 - x, it.1 - y)).sum::<f64>();
    sum(&|x, y| x * y).powi(2) / (sum(&|x, _| x * x) * sum(&|_, y| y * y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_rate_that_only_the_draw_decides_is_neither_beaten_nor_missed() {
        let verdict =
            |here| as_drawn("missed", 0.667, Some(Value::exactly(here))).map(|it| it.verdict);
        assert_eq!(verdict(0.64), Some(Verdict::Reproduced));
        assert_eq!(verdict(0.70), Some(Verdict::Reproduced));
        assert_eq!(verdict(0.50), Some(Verdict::NotReached));
    }

    #[test]
    fn points_on_a_line_are_explained_by_it_and_others_are_not() {
        let line = [(0.0, 1.0), (0.5, 2.0), (1.0, 3.0)];
        assert!((r_squared(&line) - 1.0).abs() < 1e-9);
        assert_eq!(is_linear(r_squared(&line)).verdict, Verdict::Reproduced);
        let bent = [(0.0, 1.0), (0.5, 3.0), (1.0, 1.2)];
        assert_eq!(is_linear(r_squared(&bent)).verdict, Verdict::NotReached);
    }
}
