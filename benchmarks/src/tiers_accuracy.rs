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
pub mod paired;
mod reference;
mod sample;
mod storage;
mod table;

use std::path::{Path, PathBuf};

use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{files, judgement::Judgement};

pub use self::{
    comparison::{Comparison, Figures},
    sample::Statistic,
    table::table,
};
use self::{latency::Way, machine::Machine, paired::PAIRS_MIN, reference::Program};

#[derive(Debug, Clone)]
pub struct Settings {
    pub folder: PathBuf,
    pub compiler: PathBuf,
    pub fio: PathBuf,
    /// Undisturbed pairs of each comparison, at least six.
    pub pairs: usize,
    /// Samples of each kernel in each turn; one more is taken and dropped.
    pub samples: usize,
    /// `None` for four times the last-level cache.
    pub array: Option<Bytes>,
    pub subjects: Vec<Subject>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// Copy, scale, add and triad beside a variant of STREAM.
    Bandwidth,
    Latency,
    Storage,
}

impl Subject {
    pub const ALL: [Self; 3] = [Self::Bandwidth, Self::Latency, Self::Storage];
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The size of the last-level caches of the CPUs used.
    pub cache_bytes: u64,
    pub comparisons: Vec<Comparison>,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        let start = Judgement::default();
        self.comparisons
            .iter()
            .fold(start, |judged, it| judged.verdict(it.what.to_string(), it.verdict))
    }
}

/// Compiles the references, takes turns with them, removes what was made.
///
/// # Errors
///
/// If the folder cannot be written, memory is short, or a reference that runs at all fails. A missing
/// reference is no error: its comparisons are inconclusive.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    anyhow::ensure!(
        settings.pairs >= PAIRS_MIN,
        "{} pairs have no 95 % interval; at least {PAIRS_MIN}",
        settings.pairs
    );
    anyhow::ensure!(settings.samples > 0, "0 samples in a turn; at least 1");
    files::in_folder(&settings.folder, |folder| measure(settings, folder, progress))
}

fn measure(
    settings: &Settings,
    folder: &Path,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Outcome> {
    let machine = Machine::find()?;
    let mut comparisons = Vec::new();
    for subject in Subject::ALL.iter().filter(|it| settings.subjects.contains(it)) {
        comparisons.extend(match subject {
            Subject::Bandwidth => bandwidths(settings, &machine, folder, progress)?,
            Subject::Latency => latencies(settings, &machine, folder, progress)?,
            Subject::Storage => {
                progress("storage");
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
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Comparison>> {
    const SOURCE: &str = include_str!("../peers/stream_variant.c");
    let stream = Program::compile(&settings.compiler, folder, "stream_variant", SOURCE);
    let mut threads = vec![1, machine.cpus.len()];
    threads.dedup();
    let mut found = Vec::new();
    for threads in threads {
        progress(&format!("bandwidth, {threads} threads"));
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
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<Comparison>> {
    const SOURCE: &str = include_str!("../peers/pointer_chase.c");
    let chase = Program::compile(&settings.compiler, folder, "pointer_chase", SOURCE);
    let mut found = Vec::new();
    for way in Way::ALL {
        progress(way.rows()[0].what);
        match &chase {
            Ok(chase) => found.extend(latency::compare(settings, machine, chase, way)?),
            Err(why) => found.extend(way.rows().map(|row| row.without_figures(why))),
        }
    }
    Ok(found)
}
