//! `tierfeed-bench io`: cold files through the fetchers of an agent and through fio, in turn.
//!
//! Both sides read the same blocks of the same files with the same engine, size of requests and number in
//! flight, after the page cache was told to drop the files. Each turn reads the same number of bytes; the
//! sides alternate, and so does who is first. What is compared are medians over rounds of the ratio of
//! two turns that follow each other: bytes per second, and seconds of CPU for a GB on all threads.

mod fio;
mod ours;

use std::{
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use serde::Serialize;
use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{Dataset, Format, Index, format::Raw, source::Location};
use tierfeed_file_io::{direct, io_uring_available};
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    output::step,
};

use crate::tiers_accuracy::paired::{Ratio, median_interval};

/// The least throughput, as a share of fio's.
const RATE_MIN: f64 = 0.95;
/// The most CPU time for a GB, as a multiple of fio's.
const CPU_MAX: f64 = 1.2;
const RING_DEPTH: u32 = 16;
const THREADS: u32 = 8;
/// The fewest rounds whose median has a confidence interval.
const ROUNDS_MIN: usize = 6;
const BLOCKS: [Bytes; 2] = [Bytes(128 << 10), Bytes(1 << 20)];

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// A folder whose files are read, each a multiple of 1 MiB long [default: one that is generated].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// How long the generated file is.
    #[arg(long, value_name = "SIZE", default_value = "1 GiB")]
    pub(crate) file: Bytes,
    /// What each side reads in a turn.
    #[arg(long, value_name = "SIZE", default_value = "128 MiB")]
    pub(crate) turn: Bytes,
    /// Turns of each side in each case, at least 6 for a verdict.
    #[arg(long, value_name = "NUMBER", default_value_t = 7,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    /// Only this way to read.
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<Engine>,
    /// The flexible I/O tester.
    #[arg(long, value_name = "FILE", default_value = "fio")]
    pub(crate) fio: PathBuf,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

/// The ways to read, of both sides: fio has `psync` for threads, which leaves it to the kernel what the page cache keeps,
/// and `io_uring` with `direct=1`, registered files and buffers for a ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Engine {
    /// Threads that block, through the page cache.
    Threads,
    /// The same, with what they read dropped from the page cache.
    ThreadsDropping,
    /// Rings of the kernel, past the page cache.
    Ring,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// Each block once, in random order.
    Random,
    Sequential,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Turn {
    /// From the first request to the last answer.
    pub(crate) bytes_per_s: f64,
    /// Of all threads, in user and kernel mode, for 10^9 bytes.
    pub(crate) cpu_s_per_gb: f64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Case {
    pub(crate) engine: Engine,
    pub(crate) pattern: Pattern,
    pub(crate) block_bytes: u64,
    pub(crate) depth: u32,
    pub(crate) ours: Vec<Turn>,
    pub(crate) fio: Vec<Turn>,
    /// The rate of the fetcher over that of fio.
    pub(crate) rate: Beside,
    /// The CPU time for a byte of the fetcher over that of fio.
    pub(crate) cpu: Beside,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Beside {
    /// Median and 95 % interval over the rounds, if they were enough.
    pub(crate) ratio: Option<Ratio>,
    /// `holds`, `missed` or `inconclusive`.
    pub(crate) verdict: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) cases: Vec<Case>,
    /// Cases that were left out, with the reason.
    pub(crate) skipped: Vec<String>,
}

impl Judged for Outcome {
    const DETAILS: &'static [&'static str] = &["ours", "fio"];

    fn judged(&self) -> Judgement {
        let whats = ["rate", "CPU time"];
        self.cases.iter().fold(Judgement::default(), |judged, case| {
            let verdicts = whats.into_iter().zip([&case.rate, &case.cpu]);
            verdicts.fold(judged, |judged, (what, it)| {
                let Case { engine, pattern, block_bytes, .. } = case;
                let what = format!("{what}, {engine:?}, {pattern:?}, {block_bytes} B");
                judged.verdict(what, it.verdict)
            })
        })
    }
}

const HOLDS: &str = "holds";
const MISSED: &str = "missed";
const INCONCLUSIVE: &str = "inconclusive";

impl Bench for Settings {
    type Outcome = Outcome;

    /// Runs all cases that this host can.
    fn run(self) -> Result<Outcome, Failure> {
        if let Some(data) = &self.data {
            return Ok(measure(&self, data)?);
        }
        Ok(self.folder.with_files(|folder| {
            step("writing a file");
            let data = folder.join("data");
            let path = data.join("records.bin");
            files::write_noise(&path, 1, self.file.0)?;
            File::open(&path)?.sync_all()?;
            measure(&self, &data)
        })?)
    }
}

struct Task<'a> {
    engine: Engine,
    pattern: Pattern,
    block: Bytes,
    depth: u32,
    turn: Bytes,
    index: &'a Arc<Index>,
    files: &'a [PathBuf],
}

fn measure(settings: &Settings, data: &Path) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome { cases: Vec::new(), skipped: Vec::new() };
    if let Err(error) = crate::fio::find(&settings.fio) {
        outcome.skipped.push(error);
        return Ok(outcome);
    }
    let engines = [
        (Engine::Ring, RING_DEPTH),
        (Engine::Threads, THREADS),
        (Engine::ThreadsDropping, THREADS),
    ];
    for (engine, depth) in engines {
        if settings.engine.is_some_and(|only| only != engine) {
            continue;
        }
        if let (Engine::Ring, Err(error)) = (engine, io_uring_available()) {
            outcome.skipped.push(format!("rings: {error}"));
            continue;
        }
        for block in BLOCKS {
            let format = Format::Raw(Raw::of_records(block));
            let dataset = Dataset::new(Location::Path(data.into()), format);
            let index = Arc::new(Index::build(&dataset, None, &mut |_| ())?);
            let files = paths(&index);
            for pattern in [Pattern::Random, Pattern::Sequential] {
                let (turn, index, files) = (settings.turn, &index, &files[..]);
                let task = Task { engine, pattern, block, depth, turn, index, files };
                step(&format!("{engine:?} {pattern:?} {block}"));
                outcome.cases.push(case(settings, &task)?);
            }
        }
    }
    Ok(outcome)
}

fn case(settings: &Settings, task: &Task<'_>) -> anyhow::Result<Case> {
    let (mut ours, mut fio) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds {
        let mut our_turn = || -> anyhow::Result<()> {
            drop_cached(task.files)?;
            ours.push(ours::turn(task, round as u64)?);
            Ok(())
        };
        let mut fio_turn = || -> anyhow::Result<()> {
            drop_cached(task.files)?;
            fio.push(fio::turn(&settings.fio, task, round as u64)?);
            Ok(())
        };
        if round % 2 == 0 {
            our_turn().and_then(|()| fio_turn())?;
        } else {
            fio_turn().and_then(|()| our_turn())?;
        }
    }
    let &Task { engine, pattern, block, depth, .. } = task;
    let ratios = |of: fn(&Turn) -> f64| -> Vec<f64> {
        ours.iter().zip(&fio).map(|(ours, fio)| of(ours) / of(fio)).collect()
    };
    let rate =
        judge(&ratios(|it| it.bytes_per_s), |it| it.low >= RATE_MIN, |it| it.high < RATE_MIN);
    let cpu = judge(&ratios(|it| it.cpu_s_per_gb), |it| it.high <= CPU_MAX, |it| it.low > CPU_MAX);
    Ok(Case { engine, pattern, block_bytes: block.0, depth, ours, fio, rate, cpu })
}

fn judge(
    ratios: &[f64],
    holds: impl Fn(&Ratio) -> bool,
    misses: impl Fn(&Ratio) -> bool,
) -> Beside {
    let ratio = median_interval(ratios).filter(|_| ratios.len() >= ROUNDS_MIN);
    let verdict = match &ratio {
        Some(ratio) if holds(ratio) => HOLDS,
        Some(ratio) if misses(ratio) => MISSED,
        _ => INCONCLUSIVE,
    };
    Beside { ratio, verdict }
}

fn paths(index: &Index) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        (0..index.len()).map(|sample| index.extent(SampleId(sample)).path).collect();
    paths.dedup();
    paths
}

fn drop_cached(files: &[PathBuf]) -> anyhow::Result<()> {
    for path in files {
        let file = File::open(path).with_context(|| format!("{}", path.display()))?;
        direct::drop_cached(&file).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}

/// The number of blocks that a turn reads: all blocks of the files if there are fewer.
fn blocks(task: &Task<'_>) -> anyhow::Result<u32> {
    let wanted = u32::try_from(task.turn.0 / task.block.0).unwrap_or(u32::MAX);
    let blocks = wanted.min(task.index.len());
    if blocks < task.depth * 2 {
        bail!("a turn of {blocks} blocks at depth {}; read more in a turn", task.depth);
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(ratios: &[f64]) -> &'static str {
        judge(ratios, |it| it.low >= RATE_MIN, |it| it.high < RATE_MIN).verdict
    }

    #[test]
    fn a_promise_holds_only_if_its_whole_interval_does() {
        assert_eq!(verdict(&[0.96, 0.97, 1.0, 1.1, 1.2, 0.99]), HOLDS);
        assert_eq!(verdict(&[0.90, 0.97, 1.0, 1.1, 1.2, 0.99]), INCONCLUSIVE);
        assert_eq!(verdict(&[0.90, 0.91, 0.8, 0.7, 0.94, 0.9]), MISSED);
        assert_eq!(verdict(&[1.0; 5]), INCONCLUSIVE, "too few");
    }

    #[test]
    fn a_missing_fio_is_said_and_nothing_else_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            fio: "/nonexistent/fio".into(),
            folder: Folder { parent: Some(folder.path().into()) },
            data: None,
            file: Bytes::mib(1),
            turn: Bytes::mib(1),
            rounds: 1,
            engine: None,
        };
        let outcome = settings.run().unwrap();
        assert!(outcome.cases.is_empty());
        assert!(outcome.skipped[0].contains("apt-get install fio"), "{:?}", outcome.skipped);
    }
}
