//! Figure 3: loading time from a disk, from the bucket, and with caches and prefetching.

use super::{
    blank,
    node::{Measured, Reader, Run, UNLIMITED, Workload},
};
use crate::{
    claim::less_time,
    figure::{Along, Chart, Figure, Headline, Series, Source, Value, Verdict},
};

pub(super) const NAME: &str = "deli-3";

/// The cache, in samples of the paper.
pub(super) const CACHE: u32 = 2048;

/// The 50/50 approach: half of the cache is fetched at a time, and half of it is always there.
pub(super) const FIFTY_FIFTY: Reader =
    Reader::Deli { cache: CACHE, fetch: CACHE / 2, threshold: CACHE / 2 };
pub(super) const OURS: Reader = Reader::Gap { cache: CACHE };

/// By how many per cent 50/50 shortens loading from the bucket.
///
/// # Source
///
/// DELI, section V-B.
const PUBLISHED: [f64; 2] = [85.6, 93.5];

/// Mean seconds of an epoch, of both workloads: disk, bucket, a cache without a limit, 50/50.
///
/// # Source
///
/// The measurements that the authors of DELI published.
const PUBLISHED_S: [[f64; 4]; 2] = [[63.4, 752.5, 630.1, 108.6], [157.9, 640.9, 613.6, 41.4]];

pub(super) fn runs() -> Vec<Run> {
    let mut runs = vec![Run::baseline(Reader::Disk), Run::baseline(Reader::Bucket)];
    for workload in Workload::ALL {
        runs.extend([FIFTY_FIFTY, OURS].map(|reader| Run::new(workload, reader)));
    }
    runs
}

pub(super) fn figure(measured: &Measured) -> Figure {
    let sides = ["disk", "bucket", "cache without a limit", "deli, 50/50", "tierfeed (gap)"];
    let mut series = Vec::new();
    let mut headlines = Vec::new();
    let bucket = measured.loading(Run::baseline(Reader::Bucket));
    for (workload, (percent, published_s)) in
        Workload::ALL.into_iter().zip(PUBLISHED.into_iter().zip(PUBLISHED_S))
    {
        let name = workload.name();
        let published = published_s.map(|it| Some(Value::exactly(100.0 * it / published_s[1])));
        series.push(Series {
            name: format!("{name}, published"),
            source: Source::Published,
            values: published.into_iter().chain([None]).collect(),
        });
        let run = |reader| Run::new(workload, reader);
        let runs = [
            Run::baseline(Reader::Disk),
            Run::baseline(Reader::Bucket),
            run(Reader::Fifo { cache: UNLIMITED }),
            run(FIFTY_FIFTY),
            run(OURS),
        ];
        series.push(Series {
            name: format!("{name}, here"),
            source: Source::Measured,
            values: runs.map(|run| measured.loading_percent(run)).to_vec(),
        });
        for (side, reader) in [("deli, 50/50", FIFTY_FIFTY), ("tierfeed", OURS)] {
            let what = format!("loading time against the bucket, {name}, {side}");
            let ours = measured.loading(run(reader));
            headlines
                .extend(less_time(&what, percent, ours, bucket).map(|it| it.because(&bound())));
        }
    }
    headlines.extend(against_disk(measured));
    let along = Along::Groups(sides.map(str::to_owned).to_vec());
    let (title, y) = (String::new(), "loading time, % of the bucket's".to_owned());
    let chart = Chart { title, x: String::new(), y, along, series };
    Figure {
        charts: vec![chart],
        headlines,
        ..blank(measured, NAME, "Figure 3", "Loading time of two epochs, against the bucket")
    }
}

/// Why a loader that is told to read everything cannot be faster.
fn bound() -> String {
    "the bucket gives all requests together 5.66 times what it gives one, and every byte that is not kept crosses \
     it: with as little computing as MNIST has, that alone is 83 % less in a first epoch"
        .to_owned()
}

/// "About as fast as from a disk" cannot be compared: the disk of the paper was slowed down by decoding.
fn against_disk(measured: &Measured) -> Option<Headline> {
    let disk = measured.loading(Run::baseline(Reader::Disk))?;
    let ours = measured.loading(Run::new(Workload::Cifar, FIFTY_FIFTY))?;
    let times = |ours: f64, disk: f64| format!("{:.2} x", ours / disk);
    Some(Headline {
        what: "loading time against the disk, CIFAR-10, deli, 50/50".to_owned(),
        published: times(PUBLISHED_S[1][3], PUBLISHED_S[1][0]),
        here: times(ours.median, disk.median),
        measured: None,
        verdict: Verdict::NotComparable,
        why: "loading a sample from the paper's disk took 13.5 ms with decoding; here it is only read".to_owned(),
    })
}
