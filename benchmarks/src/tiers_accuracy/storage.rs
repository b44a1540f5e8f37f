//! Random and sequential reads of a directory: the storage probe beside fio.
//!
//! Both sides read a file of the same length in the same directory past the page cache, with the same
//! engine, sizes of requests and numbers in flight. Rates are medians over windows of the same length,
//! latencies are from request to completion; the first window of each is dropped.
//!
//! A thread that waits for a device has no share of a CPU to judge, yet a busy host delays its requests.
//! So a turn is disturbed if some thread of the host waited for a CPU for more than 5 % of it.

use std::{fs, path::Path, process::Command};

use anyhow::Context as _;
use serde::Deserialize;
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_harness::files;
use tierfeed_resource_gatherer::{
    Inventory, Sysroot,
    probe::{
        Budget, Limits,
        clock::{Clock as _, SystemClock},
        directory,
    },
    report::{Access, Engine, Storage},
};

use super::{
    Settings,
    comparison::{Comparison, Row, Turn, alternate},
    paired::{Figure, median_of_sorted},
    sample::{Statistic, to_f64},
};
use crate::fio;

/// The time of each job on either side.
const JOB: Nanoseconds = Nanoseconds(1_000_000_000);
/// The same division of time as in the probe.
const WINDOW_MS: u64 = JOB.0 / 20 / 1_000_000;
const FILE: Bytes = Bytes::mib(256);

struct Job {
    name: &'static str,
    pattern: &'static str,
    block: u64,
    depth: u32,
}

const JOBS: [Job; 3] = [
    Job { name: "single", pattern: "randread", block: 4 << 10, depth: 1 },
    Job { name: "deep", pattern: "randread", block: 4 << 10, depth: 32 },
    Job { name: "sequential", pattern: "read", block: 1 << 20, depth: 8 },
];

/// In the order of the figures of a turn.
pub(super) fn rows() -> Vec<Row> {
    let row = |what, parallel, statistic, unit, tolerance| Row {
        what,
        reference: "fio",
        parallel,
        statistic,
        unit,
        tolerance,
    };
    vec![
        row("random read 4 KiB", 1, Statistic::Median, "per_s", 0.05),
        row("random read 4 KiB, p50", 1, Statistic::Rank, "ns", 0.05),
        row("random read 4 KiB, p99", 1, Statistic::Rank, "ns", 0.15),
        row("random read 4 KiB", 32, Statistic::Median, "per_s", 0.05),
        row("random read 4 KiB, p50", 32, Statistic::Rank, "ns", 0.05),
        row("random read 4 KiB, p99", 32, Statistic::Rank, "ns", 0.15),
        row("sequential read 1 MiB", 8, Statistic::Median, "bytes_per_s", 0.05),
    ]
}

/// Compares in `folder`. Without fio, or where it would not do the same, all comparisons are inconclusive.
pub(super) fn compare(settings: &Settings, folder: &Path) -> anyhow::Result<Vec<Comparison>> {
    let without = |why: &str| rows().iter().map(|row| row.without_figures(why)).collect();
    if let Err(why) = fio::find(&settings.fio) {
        return Ok(without(&why));
    }
    let inventory = Inventory::read(Sysroot::live())?;
    let limits = Limits { cell: JOB, file: FILE, ..Budget::Quick.limits() };
    let request = directory::Request::default();
    let probe = || -> anyhow::Result<Storage> {
        Ok(directory::measure(&inventory, folder, &limits, &request)
            .map_err(|why| anyhow::anyhow!("{}: not measured: {why}", folder.display()))?
            .storage)
    };
    let first = probe()?;
    if (first.engine, first.access) != (Engine::IoUring, Access::Direct) {
        return Ok(without(
            "the probe reads this directory by threads or through the page cache; fio is compared where \
             io_uring and O_DIRECT work, as on a local disk: name one with --folder",
        ));
    }
    let file = folder.join("fio.bin");
    files::write_noise(&file, 1, first.file_bytes)?;
    fs::File::open(&file)?.sync_all()?;
    let fio = Fio { settings, folder, file: &file, len: first.file_bytes };
    let ours = || watched(|| ours(&probe()?));
    alternate(&rows(), settings.pairs, ours, || watched(|| fio.turn()))
}

/// Sets in all figures of a turn the share of it in which no thread of the host waited for a CPU.
fn watched(turn: impl FnOnce() -> anyhow::Result<Turn>) -> anyhow::Result<Turn> {
    let clock = || SystemClock.wall().0 / 1000;
    let (waited_us, started_us) = (waited_us(), clock());
    let mut figures = turn()?;
    let took_us = clock().saturating_sub(started_us);
    let waited_us = waited_us.zip(self::waited_us()).map(|(from, to)| to.saturating_sub(from));
    let cpu_share = waited_us.map(|waited| 1.0 - to_f64(waited) / to_f64(took_us.max(1)));
    for figure in &mut figures {
        figure.cpu_share = cpu_share;
    }
    Ok(figures)
}

/// The time for which some thread of the host has waited for a CPU, since the host was started.
fn waited_us() -> Option<u64> {
    parse_pressure(&fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// Reads `some avg10=1.53 avg60=1.20 avg300=0.90 total=17637`.
fn parse_pressure(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

fn ours(storage: &Storage) -> anyhow::Result<Turn> {
    let mut turn = Vec::new();
    for depth in [1, 32] {
        let found = storage.random_reads.iter().find(|it| it.depth == depth);
        let found = found.with_context(|| format!("no random reads at depth {depth}"))?;
        turn.push(figure(found.iops.median));
        for time in [found.latency.p50_ns, found.latency.p99_ns] {
            turn.push(figure(time.context("too few reads for a percentile")?));
        }
    }
    let rate = storage.sequential_read_bytes_per_s.context("no sequential reads")?;
    turn.push(figure(rate.median));
    Ok(turn)
}

const fn figure(value: f64) -> Figure {
    Figure { value, cpu_share: None, page_share: None }
}

struct Fio<'a> {
    settings: &'a Settings,
    folder: &'a Path,
    file: &'a Path,
    len: u64,
}

impl Fio<'_> {
    fn turn(&self) -> anyhow::Result<Turn> {
        let mut turn = Vec::new();
        for job in &JOBS {
            let read = self.run(job)?;
            let windows = fs::read_to_string(self.folder.join(format!("{}_bw.1.log", job.name)))
                .context("fio left no log of its windows")?;
            let bytes_per_s = window_median(&windows).context("fio logged too few windows")?;
            if job.pattern == "read" {
                turn.push(figure(bytes_per_s));
            } else {
                turn.push(figure(bytes_per_s / to_f64(job.block)));
                turn.extend([read.lat_ns.percentile.p50, read.lat_ns.percentile.p99].map(figure));
            }
        }
        Ok(turn)
    }

    fn run(&self, job: &Job) -> anyhow::Result<FioRead> {
        let log = self.folder.join(job.name);
        let mut fio = Command::new(&self.settings.fio);
        fio.args(["--output-format=json", "--ioengine=io_uring", "--direct=1", "--time_based"])
            .args(["--norandommap=1", "--randrepeat=0", "--lat_percentiles=1", "--thread"])
            .arg("--percentile_list=50:99")
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--size={}", self.len))
            .arg(format!("--runtime={}ms", JOB.0 / 1_000_000))
            .arg(format!("--log_avg_msec={WINDOW_MS}"))
            .arg(format!("--write_bw_log={}", log.display()))
            .arg(format!("--name={}", job.name))
            .arg(format!("--rw={}", job.pattern))
            .arg(format!("--bs={}", job.block))
            .arg(format!("--iodepth={}", job.depth));
        Ok(fio::run::<FioJob>(&mut fio)?.read)
    }
}

#[derive(Debug, Deserialize)]
struct FioJob {
    read: FioRead,
}

#[derive(Debug, Deserialize)]
struct FioRead {
    lat_ns: FioLatency,
}

#[derive(Debug, Deserialize)]
struct FioLatency {
    percentile: FioPercentiles,
}

#[derive(Debug, Deserialize)]
struct FioPercentiles {
    #[serde(rename = "50.000000")]
    p50: f64,
    #[serde(rename = "99.000000")]
    p99: f64,
}

/// The median rate of all windows but the first, in bytes per second. Each line of the log is
/// `milliseconds, KiB/s, direction, block, …`.
fn window_median(log: &str) -> Option<f64> {
    let rate = |line: &str| line.split(',').nth(1)?.trim().parse::<f64>().ok();
    let mut rates: Vec<f64> = log.lines().skip(1).filter_map(rate).collect();
    rates.sort_by(f64::total_cmp);
    (!rates.is_empty()).then(|| median_of_sorted(&rates) * 1024.0)
}

#[cfg(test)]
mod tests {
    use tierfeed_harness::bench::Folder;

    use super::*;

    #[test]
    fn a_turn_of_fio_has_a_figure_for_each_row() {
        let figures: usize = JOBS.iter().map(|job| if job.pattern == "read" { 1 } else { 3 }).sum();
        assert_eq!(figures, rows().len());
    }

    #[test]
    fn the_rate_is_the_median_of_the_windows_but_the_first() {
        let log =
            "50, 9, 0, 4096, 0\n100, 30, 0, 4096, 0\n150, 10, 0, 4096, 0\n200, 20, 0, 4096, 0\n";
        assert_eq!(window_median(log), Some(20.0 * 1024.0));
        assert_eq!(window_median("50, 9, 0, 4096, 0\n"), None);
    }

    #[test]
    fn the_time_that_some_thread_waited_is_the_total_of_the_first_line() {
        let text = "some avg10=1.53 avg60=1.20 avg300=0.90 total=17637\nfull avg10=0.00 total=9\n";
        assert_eq!(parse_pressure(text), Some(17_637));
        assert_eq!(parse_pressure("full avg10=0.00 total=9\n"), None);
    }

    #[test]
    fn quantiles_are_read_from_fios_report() {
        let text = r#"fio: a note
            {"fio version": "fio-3.33", "jobs": [{"jobname": "single", "read": {"iops": 9.5,
             "lat_ns": {"min": 1, "percentile": {"50.000000": 37120, "99.000000": 232448}}}}]}"#;
        let FioJob { read } = fio::parse(text).unwrap();
        assert_eq!((read.lat_ns.percentile.p50, read.lat_ns.percentile.p99), (37120.0, 232_448.0));
    }

    #[test]
    fn a_missing_fio_says_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            folder: Folder::default(),
            compiler: "cc".into(),
            fio: "/nonexistent/fio".into(),
            pairs: 6,
            samples: 1,
            array: None,
            only: Vec::new(),
        };
        let compared = compare(&settings, folder.path()).unwrap();
        assert_eq!(compared.len(), rows().len());
        for comparison in compared {
            assert_eq!(comparison.verdict.name, "inconclusive");
            assert!(comparison.verdict.reason.unwrap().contains("apt-get install fio"));
        }
    }
}
