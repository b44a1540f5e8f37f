//! Figures 6 to 9: fetch size, cache size, threshold, and half of the cache for each.
//!
//! The paper draws miss rates, and shows that loading time follows them. A miss of DELI is read by itself while
//! training waits; tierfeed reads what it stages together, so that only loading time tells the same of both.

use super::{
    blank,
    loading::{CACHE, FIFTY_FIFTY},
    node::{Measured, Reader, Run, UNLIMITED, Workload},
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Series, Source, Value, Verdict},
};

pub(super) const FETCH_SIZE: &str = "deli-6";
pub(super) const CACHE_SIZE: &str = "deli-7";
pub(super) const THRESHOLD: &str = "deli-8";
pub(super) const FIFTY_FIFTY_NAME: &str = "deli-9";

/// A configuration, and the mean seconds of its epochs as published.
type Point = (u32, Reader, f64);

const fn deli(cache: u32, fetch: u32, threshold: u32) -> Reader {
    Reader::Deli { cache, fetch, threshold }
}

/// # Source
///
/// The measurements of MNIST that the authors of DELI published, as below.
const FETCH_SIZES: [Point; 3] = [
    (256, deli(UNLIMITED, 256, 0), 331.8),
    (1024, deli(UNLIMITED, 1024, 0), 160.5),
    (2048, deli(UNLIMITED, 2048, 0), 109.7),
];

const CACHE_SIZES: [Point; 3] = [
    (512, deli(512, 1024, 0), 362.8),
    (1024, deli(1024, 1024, 0), 169.5),
    (2048, deli(2048, 1024, 0), 172.4),
];

const THRESHOLDS: [Point; 3] = [
    (0, deli(CACHE, 1024, 0), 172.4),
    (512, deli(CACHE, 1024, 512), 154.7),
    (1024, FIFTY_FIFTY, 108.6),
];

/// Thresholds of 0 and 1,024 with CIFAR-10.
const THRESHOLDS_CIFAR: [Point; 2] = [(0, deli(CACHE, 1024, 0), 136.2), (1024, FIFTY_FIFTY, 41.4)];

/// The whole cache in one fetch, and half of it with half of it as threshold.
const WAYS: [(Workload, [Point; 2]); 2] = [
    (Workload::Mnist, [(CACHE, deli(CACHE, CACHE, 0), 126.5), (CACHE / 2, FIFTY_FIFTY, 108.6)]),
    (Workload::Cifar, [(CACHE, deli(CACHE, CACHE, 0), 108.2), (CACHE / 2, FIFTY_FIFTY, 41.4)]),
];

/// Why the effect of a configuration of DELI is small here.
const STAGED: &str = "tierfeed stages the next batches at all times, many requests at once, so that what DELI's \
                      configuration gains is gained with any of them";

pub(super) fn fetch_size_runs() -> Vec<Run> {
    with_bucket(Workload::Mnist, &FETCH_SIZES)
}

pub(super) fn cache_size_runs() -> Vec<Run> {
    with_bucket(Workload::Mnist, &CACHE_SIZES)
}

pub(super) fn threshold_runs() -> Vec<Run> {
    let mut runs = with_bucket(Workload::Mnist, &THRESHOLDS);
    runs.extend(with_bucket(Workload::Cifar, &THRESHOLDS_CIFAR));
    runs
}

pub(super) fn fifty_fifty_runs() -> Vec<Run> {
    WAYS.iter().flat_map(|(workload, points)| with_bucket(*workload, points)).collect()
}

fn with_bucket(workload: Workload, points: &[Point]) -> Vec<Run> {
    let runs = points.iter().map(|it| Run::new(workload, it.1));
    runs.chain([Run::baseline(Reader::Bucket)]).collect()
}

pub(super) fn fetch_size(measured: &Measured) -> Figure {
    let claim = |at: usize| against_bucket(measured, Workload::Mnist, "a fetch", FETCH_SIZES[at]);
    Figure {
        charts: vec![swept(measured, "samples of a fetch", Workload::Mnist, &FETCH_SIZES)],
        headlines: [claim(0), claim(2)].into_iter().flatten().collect(),
        ..blank(measured, FETCH_SIZE, "Figure 6", "Fetch size, cache without a limit")
    }
}

pub(super) fn cache_size(measured: &Measured) -> Figure {
    let claim = |at: usize| against_bucket(measured, Workload::Mnist, "a cache", CACHE_SIZES[at]);
    Figure {
        charts: vec![swept(measured, "samples of the cache", Workload::Mnist, &CACHE_SIZES)],
        headlines: [claim(0), claim(1), claim(2)].into_iter().flatten().collect(),
        ..blank(measured, CACHE_SIZE, "Figure 7", "Cache size, fetches of 1,024 samples")
    }
}

pub(super) fn threshold(measured: &Measured) -> Figure {
    let sweeps =
        [(Workload::Mnist, &THRESHOLDS[..], 31.0), (Workload::Cifar, &THRESHOLDS_CIFAR, 80.0)];
    let (mut charts, mut headlines) = (Vec::new(), Vec::new());
    for (workload, points, fewer_missed) in sweeps {
        charts.push(swept(measured, "threshold, samples", workload, points));
        headlines.extend(against_bucket(measured, workload, "a threshold", points[0]));
        let what = format!("threshold of 1,024 against none, {}", workload.name());
        let (none, half) = (points[0].1, FIFTY_FIFTY);
        headlines.extend(fewer(measured, &what, fewer_missed, workload, half, none));
    }
    Figure {
        charts,
        headlines,
        ..blank(measured, THRESHOLD, "Figure 8", "Threshold, cache of 2,048 and fetches of 1,024")
    }
}

pub(super) fn fifty_fifty(measured: &Measured) -> Figure {
    let (mut series, mut headlines) = (Vec::new(), Vec::new());
    for (workload, points) in &WAYS {
        series.extend(both(measured, *workload, points));
        let what = format!("50/50 against a full fetch, {}", workload.name());
        let [full, half] = points.map(|it| it.1);
        // The paper gives a figure for one of both.
        if *workload == Workload::Cifar {
            headlines.extend(fewer(measured, &what, 83.0, *workload, half, full));
        }
        headlines.extend(against_bucket(measured, *workload, "a full fetch", points[0]));
    }
    let along = Along::Groups(["full fetch of 2,048", "50/50"].map(str::to_owned).to_vec());
    let (title, y) = (String::new(), Y.to_owned());
    Figure {
        charts: vec![Chart { title, x: String::new(), y, along, series }],
        headlines,
        ..blank(measured, FIFTY_FIFTY_NAME, "Figure 9", "Two ways to use a cache of 2,048 samples")
    }
}

const Y: &str = "loading time, % of the bucket's";

fn swept(measured: &Measured, x: &str, workload: Workload, points: &[Point]) -> Chart {
    Chart {
        title: workload.name().to_owned(),
        x: x.to_owned(),
        y: Y.to_owned(),
        along: Along::Positions(points.iter().map(|it| f64::from(it.0)).collect()),
        series: both(measured, workload, points).to_vec(),
    }
}

/// The published series, and the one of here.
fn both(measured: &Measured, workload: Workload, points: &[Point]) -> [Series; 2] {
    let published = |it: &Point| Value::exactly(100.0 * it.2 / workload.published_bucket_s());
    let here = |it: &Point| measured.loading_percent(Run::new(workload, it.1));
    let series = |from: &str, source, values| Series {
        name: format!("{}, {from}", workload.name()),
        source,
        values,
    };
    [
        series(
            "published",
            Source::Published,
            points.iter().map(|it| Some(published(it))).collect(),
        ),
        series("here", Source::Measured, points.iter().map(here).collect()),
    ]
}

fn against_bucket(
    measured: &Measured,
    workload: Workload,
    what: &str,
    (at, reader, published_s): Point,
) -> Option<Headline> {
    let published = 100.0 * (1.0 - published_s / workload.published_bucket_s());
    let bucket = measured.loading(Run::baseline(Reader::Bucket));
    let ours = measured.loading(Run::new(workload, reader));
    let what = format!("loading time against the bucket, {}, {what} of {at}", workload.name());
    less_time(&what, published, ours, bucket).map(|it| {
        it.because("the rate of the bucket is the limit: every byte that is not kept crosses it")
    })
}

/// Loading time of `ours` against `theirs`, beside how many fewer samples were missed.
fn fewer(
    measured: &Measured,
    what: &str,
    published: f64,
    workload: Workload,
    ours: Reader,
    theirs: Reader,
) -> Option<Headline> {
    let of = |reader| measured.loading(Run::new(workload, reader));
    let what = format!("samples missed (here: loading time), {what}");
    let claim = less_time(&what, published, of(ours), of(theirs))?;
    Some(Headline { verdict: Verdict::NotComparable, why: STAGED.to_owned(), ..claim })
}
