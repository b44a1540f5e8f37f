//! Figures 6, 8 and 9: fetch size, threshold, and half of the cache for each.
//!
//! The paper draws miss rates, and shows that loading time follows them. A miss of DELI is read by itself while
//! training waits; tierfeed reads what it stages together, so that only loading time tells the same of both.
//!
//! Figure 7 is about caches of 0.5 to 3 fetches. Those are less than two chunks here, so it is not repeated.

use super::{
    blank,
    loading::{CACHE, FIFTY_FIFTY},
    measured::Measured,
    setting::{Reader, Run, UNLIMITED, Workload},
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Series, Source, Value, Verdict},
};

pub(super) const FETCH_SIZE: &str = "deli-6";
pub(super) const THRESHOLD: &str = "deli-8";
pub(super) const FIFTY_FIFTY_NAME: &str = "deli-9";

/// A configuration, and the mean seconds of its epochs as published.
type Point = (u32, Reader, f64);

const fn deli(cache: u32, fetch: u32, threshold: u32) -> Reader {
    Reader::Deli { cache, fetch, threshold }
}

/// # Source
///
/// The measurements of MNIST with batches of 512 that the authors of DELI published, as below.
const FETCH_SIZES: [Point; 3] = [
    (256, deli(UNLIMITED, 256, 0), 331.8),
    (1024, deli(UNLIMITED, 1024, 0), 160.4),
    (1536, deli(UNLIMITED, 1536, 0), 131.7),
];

const THRESHOLDS: [Point; 3] = [
    (0, deli(CACHE, 1024, 0), 175.4),
    (512, deli(CACHE, 1024, 512), 154.7),
    (1024, FIFTY_FIFTY, 108.6),
];

/// Thresholds of 0 and 1,024 with CIFAR-10.
const THRESHOLDS_CIFAR: [Point; 2] = [(0, deli(CACHE, 1024, 0), 133.9), (1024, FIFTY_FIFTY, 41.4)];

/// The whole cache in one fetch, and half of it with half of it as threshold.
const WAYS: [(Workload, [Point; 2]); 2] = [
    (Workload::Mnist, [(CACHE, deli(CACHE, CACHE, 0), 126.5), (CACHE / 2, FIFTY_FIFTY, 108.6)]),
    (Workload::Cifar, [(CACHE, deli(CACHE, CACHE, 0), 108.2), (CACHE / 2, FIFTY_FIFTY, 41.4)]),
];

/// The reason why the effect of a configuration of DELI is small here.
const STAGED: &str = "tierfeed stages the next batches at all times, many requests at once, so that what DELI's \
                      configuration gains is gained with any of them";

pub(super) fn fetch_size_runs() -> Vec<Run> {
    with_bucket(Workload::Mnist, &FETCH_SIZES)
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
    let [least, .., most] = FETCH_SIZES;
    let published = 100.0 * (1.0 - most.2 / least.2);
    let what = format!("loading time with fetches of {} against {}, MNIST", most.0, least.0);
    let claim = effect(measured, &what, published, Workload::Mnist, most.1, least.1);
    Figure {
        charts: vec![swept(measured, "samples of a fetch", Workload::Mnist, &FETCH_SIZES)],
        headlines: claim.into_iter().collect(),
        ..described(measured, FETCH_SIZE, "Figure 6", "Fetch size, cache without a limit")
    }
}

pub(super) fn threshold(measured: &Measured) -> Figure {
    let sweeps = [(Workload::Mnist, &THRESHOLDS[..]), (Workload::Cifar, &THRESHOLDS_CIFAR)];
    let charts =
        sweeps.map(|(workload, points)| swept(measured, "threshold, samples", workload, points));
    let claim = |workload, name, published, none| {
        let what =
            format!("samples missed (here: loading time), threshold of 1,024 against none, {name}");
        effect(measured, &what, published, workload, FIFTY_FIFTY, none)
    };
    let claims = [
        claim(Workload::Mnist, "MNIST", 31.0, THRESHOLDS[0].1),
        claim(Workload::Cifar, "CIFAR-10", 80.0, THRESHOLDS_CIFAR[0].1),
    ];
    let title = "Threshold, cache of 2,048 and fetches of 1,024";
    Figure {
        charts: charts.to_vec(),
        headlines: claims.into_iter().flatten().collect(),
        ..described(measured, THRESHOLD, "Figure 8", title)
    }
}

pub(super) fn fifty_fifty(measured: &Measured) -> Figure {
    let series = WAYS.iter().flat_map(|(workload, points)| both(measured, *workload, points));
    let series = series.collect();
    // The paper gives a figure for one of both workloads.
    let (workload, [full, half]) = WAYS[1];
    let what = "samples missed (here: loading time), 50/50 against a full fetch, CIFAR-10";
    let claim = effect(measured, what, 83.0, workload, half.1, full.1);
    let along = Along::groups(["full fetch of 2,048", "50/50"]);
    let (title, y) = (String::new(), Y.to_owned());
    Figure {
        charts: vec![Chart { title, x: String::new(), y, along, series }],
        headlines: claim.into_iter().collect(),
        ..described(
            measured,
            FIFTY_FIFTY_NAME,
            "Figure 9",
            "Two ways to use a cache of 2,048 samples",
        )
    }
}

fn described(measured: &Measured, name: &str, number: &str, title: &str) -> Figure {
    let blank = blank(measured, name, number, title);
    let setting = format!("{} Published times are those of batches of 512.", blank.setting);
    Figure { setting, ..blank }
}

const Y: &str = "loading time, % of the bucket's";

fn swept(measured: &Measured, x: &str, workload: Workload, points: &[Point]) -> Chart {
    Chart::new(
        x,
        Y,
        Along::Positions(points.iter().map(|it| f64::from(it.0)).collect()),
        both(measured, workload, points).to_vec(),
    )
    .titled(workload.name())
}

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

/// Loading time of `ours` against `theirs`, two configurations of DELI.
fn effect(
    measured: &Measured,
    what: &str,
    published: f64,
    workload: Workload,
    ours: Reader,
    theirs: Reader,
) -> Option<Headline> {
    let of = |reader| measured.loading(Run::new(workload, reader));
    let claim = less_time(what, published, of(ours), of(theirs))?;
    let (verdict, why) = (Verdict::NotComparable, STAGED.to_owned());
    Some(Headline { verdict, why, measured: None, ..claim })
}
