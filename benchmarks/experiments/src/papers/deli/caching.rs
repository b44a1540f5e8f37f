//! Figures 4 and 5: what caches of several sizes miss, and that time follows what is missed.

use super::{
    blank,
    measured::{Measured, Turn},
    setting::{Reader, Run, SAMPLES, UNLIMITED, Workload, cached},
};
use crate::{
    claim::at_most,
    figure::{Along, Chart, Figure, Headline, Series, Value, Verdict},
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

/// The largest difference of two miss rates by the draw alone: two standard deviations of a share of two
/// thirds, if 560 of 1,680 samples are dealt twice.
const DEALT: f64 = 0.033;

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
    let mut series = vec![Series::published(
        "published",
        CACHES.map(|it| Some(Value::exactly(100.0 * it.2))).to_vec(),
    )];
    for (name, reader) in POLICIES {
        let of = |cache| Run::new(Workload::Mnist, reader(cache));
        series.push(Series::measured(
            name,
            CACHES.map(|it| measured.value(of(it.1), |turn| 100.0 * missed(turn))).to_vec(),
        ));
    }
    let (size, cache, published) = CACHES[2];
    let ours = measured.value(Run::new(Workload::Mnist, Reader::Gap { cache }), missed);
    let what = format!("miss rate of the second epoch, cache for {size}, tierfeed (gap)");
    let headline = beside_the_draw(&what, published, ours);
    let along = Along::Groups(CACHES.map(|it| it.0.to_owned()).to_vec());
    let chart = Chart {
        title: String::new(),
        x: "cache, of what a node reads in an epoch".to_owned(),
        y: "missed in the second epoch, %".to_owned(),
        along,
        series,
    };
    let blank = blank(measured, SIZES, "Figure 5", "What caches without prefetching miss");
    let sizes = CACHES[..3].iter().map(|(size, cache, _)| {
        format!("{:.0} % for {size}", 100.0 * f64::from(cached(*cache)) / f64::from(SAMPLES))
    });
    let setting = format!(
        "{} Caches come as close as chunks do: {}. What a cache of what was read last misses, and a cache for all, \
         follows from the draw of each epoch, and is no claim; by the draw alone, rates lie up to {:.1} points apart.",
        blank.setting,
        sizes.collect::<Vec<_>>().join(", "),
        100.0 * DEALT
    );
    Figure { setting, charts: vec![chart], headlines: headline.into_iter().collect(), ..blank }
}

/// A miss rate that depends in part on the way in which the dataset is dealt.
fn beside_the_draw(what: &str, published: f64, here: Option<Value>) -> Option<Headline> {
    let claim = at_most(what, published, here)?;
    let verdict = match here?.median - published {
        less if less < -DEALT => Verdict::Beaten,
        more if more > DEALT => Verdict::NotReached,
        _ => Verdict::Reproduced,
    };
    Some(
        Headline { verdict, ..claim }
            .because("the policy kept less than a cache of what was read last"),
    )
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
        Series::published("published", values(&published)),
        Series::measured("here", values(&points)),
    ];
    let headline = line(r_squared(&points));
    let (x, y) =
        ("missed, %".to_owned(), "loading time of the epoch, % of the bucket's".to_owned());
    let chart = Chart { title: String::new(), x, y, along: Along::Positions(along), series };
    Figure {
        charts: vec![chart],
        headlines: vec![headline],
        ..blank(measured, LINEAR, "Figure 4", "Loading time against what is missed")
    }
}

fn line(r_squared: f64) -> Headline {
    Headline {
        what: "loading time is a line over the miss rate".to_owned(),
        published: "linear".to_owned(),
        here: format!("a line explains {:.1} % of the variance", 100.0 * r_squared),
        measured: None,
        verdict: Verdict::NotComparable,
        why: "the bucket paces what is missed, so that time follows it by construction; and the paper's points are of \
              runs with prefetching, those of here of caches alone"
            .to_owned(),
    }
}

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
    fn a_miss_rate_beats_another_only_by_more_than_the_draw_makes() {
        let verdict = |here| {
            beside_the_draw("missed", 0.887, Some(Value::exactly(here))).map(|it| it.verdict)
        };
        assert_eq!(verdict(0.80), Some(Verdict::Beaten));
        assert_eq!(verdict(0.86), Some(Verdict::Reproduced));
        assert_eq!(verdict(0.91), Some(Verdict::Reproduced));
        assert_eq!(verdict(0.93), Some(Verdict::NotReached));
    }

    #[test]
    fn points_on_a_line_are_explained_by_it_and_others_are_not() {
        assert!((r_squared(&[(0.0, 1.0), (0.5, 2.0), (1.0, 3.0)]) - 1.0).abs() < 1e-9);
        assert!(r_squared(&[(0.0, 1.0), (0.5, 3.0), (1.0, 1.2)]) < 0.1);
    }
}
