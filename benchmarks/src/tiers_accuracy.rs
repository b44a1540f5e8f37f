//! `tierfeed-bench tiers-accuracy`: the figures of `tierfeed tiers probe` beside those of references, in
//! alternating turns of one run: a variant of STREAM, another pointer chase, fio.
//!
//! Our side is the code of the probe itself. The same statistic is compared, with the same number of
//! threads, size of buffers and kind of pages. What cannot be compared says why; see [`paired`] for what
//! counts as agreement.

mod bandwidth;
mod comparison;
mod latency;
pub(crate) mod machine;
pub(crate) mod paired;
mod reference;
mod sample;
mod storage;
mod team;

use std::path::{Path, PathBuf};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
};

use self::{
    comparison::Comparison, latency::Way, machine::Machine, paired::PAIRS_MIN, reference::Program,
};

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// Runs only these comparisons.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<Subject>,
    /// Pairs of turns in each comparison, at least 6; disturbed ones are repeated.
    #[arg(long, value_name = "NUMBER", default_value_t = 9)]
    pub(crate) pairs: usize,
    /// Samples of each kernel in each turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub(crate) samples: usize,
    /// The size of each array, such as "512 MiB" [default: four times the last-level cache].
    #[arg(long, value_name = "SIZE")]
    pub(crate) array: Option<Bytes>,
    /// A C compiler with OpenMP.
    #[arg(long, value_name = "FILE", default_value = "cc")]
    pub(crate) compiler: PathBuf,
    /// The flexible I/O tester.
    #[arg(long, value_name = "FILE", default_value = "fio")]
    pub(crate) fio: PathBuf,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Subject {
    /// Copy, scale, add and triad by one thread and by all.
    Bandwidth,
    /// A dependent load, TLB-local and anywhere.
    Latency,
    /// Random and sequential reads in the folder.
    Storage,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// The size of the last-level caches of the CPUs used.
    pub(crate) cache_bytes: u64,
    pub(crate) comparisons: Vec<Comparison>,
}

impl Judged for Outcome {
    const DETAILS: &'static [&'static str] = &["pairs"];

    fn judged(&self) -> Judgement {
        let start = Judgement::default();
        self.comparisons
            .iter()
            .fold(start, |judged, it| judged.verdict(it.what.to_owned(), it.verdict.name))
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    /// Compiles the references, takes turns with them, removes what was made. A missing reference is no error: its
    /// comparisons are inconclusive.
    fn run(self) -> Result<Outcome, Failure> {
        self.ensure_enough()?;
        Ok(self.folder.with_files(|folder| measure(&self, folder))?)
    }
}

impl Settings {
    fn ensure_enough(&self) -> anyhow::Result<()> {
        let Self { pairs, samples, .. } = self;
        ensure!(*pairs >= PAIRS_MIN, "{pairs} pairs have no 95 % interval; at least {PAIRS_MIN}");
        ensure!(*samples > 0, "0 samples in a turn; at least 1");
        Ok(())
    }
}

fn measure(settings: &Settings, folder: &Path) -> anyhow::Result<Outcome> {
    let machine = Machine::find()?;
    let mut comparisons = Vec::new();
    let is_wanted = |it: &&Subject| settings.only.is_empty() || settings.only.contains(it);
    for subject in Subject::value_variants().iter().filter(is_wanted) {
        comparisons.extend(match subject {
            Subject::Bandwidth => bandwidths(settings, &machine, folder)?,
            Subject::Latency => latencies(settings, &machine, folder)?,
            Subject::Storage => {
                step("storage");
                storage::compare(settings, folder)?
            }
        });
    }
    Ok(Outcome { cache_bytes: machine.cache.0, comparisons })
}

fn bandwidths(
    settings: &Settings,
    machine: &Machine,
    folder: &Path,
) -> anyhow::Result<Vec<Comparison>> {
    const SOURCE: &str = include_str!("../peers/stream_variant.c");
    let stream = Program::compile(&settings.compiler, folder, "stream_variant", SOURCE);
    let mut threads = vec![1, machine.cpus.len()];
    threads.dedup();
    let mut found = Vec::new();
    for threads in threads {
        step(&format!("bandwidth, {threads} threads"));
        match &stream {
            Ok(stream) => found.extend(bandwidth::compare(settings, machine, stream, threads)?),
            Err(why) => {
                let rows = bandwidth::rows(threads);
                found.extend(rows.iter().map(|row| row.without_figures(why)));
            }
        }
    }
    Ok(found)
}

fn latencies(
    settings: &Settings,
    machine: &Machine,
    folder: &Path,
) -> anyhow::Result<Vec<Comparison>> {
    const SOURCE: &str = include_str!("../peers/pointer_chase.c");
    let chase = Program::compile(&settings.compiler, folder, "pointer_chase", SOURCE);
    let mut found = Vec::new();
    for way in Way::ALL {
        step(way.rows()[0].what);
        match &chase {
            Ok(chase) => found.extend(latency::compare(settings, machine, chase, way)?),
            Err(why) => found.extend(way.rows().map(|row| row.without_figures(why))),
        }
    }
    Ok(found)
}
