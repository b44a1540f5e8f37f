//! `tierfeed-bench paper`: figures of papers, repeated as real trainings.

mod deep_memory;
mod deli;
mod dlcache;
mod lobster;
mod newer;
mod repetition;
mod replays;

use std::{fs, thread};

use serde::Serialize;
use tierfeed_core::units::Bytes;

use self::repetition::Repeated;
use crate::{figure::Figure, stage::Settings};

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub machine: String,
    /// In the order of the papers.
    pub figures: Vec<Figure>,
    /// Figures that could not be repeated, each with its reason.
    pub failed: Vec<String>,
}

/// Names of several figures.
const PAPERS: [&str; 6] = ["all", "deep-memory", "lobster", "deli", "dlcache", "newer"];

type Run = fn(&Settings, &dyn Fn(&str) -> bool, &mut dyn FnMut(&str), &mut Repeated);

const RUNS: [Run; 5] = [
    |settings, is_wanted, step, all| deep_memory::FIGURES.run(settings, is_wanted, step, all),
    |settings, is_wanted, step, all| lobster::FIGURES.run(settings, is_wanted, step, all),
    deli::run,
    dlcache::run,
    |settings, is_wanted, step, all| newer::FIGURES.run(settings, is_wanted, step, all),
];

/// All names that [`run`] takes: `all`, papers, figures.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let on_stage = deep_memory::FIGURES.names().chain(lobster::FIGURES.names());
    PAPERS
        .into_iter()
        .chain(on_stage)
        .chain(deli::names())
        .chain(dlcache::names())
        .chain(newer::FIGURES.names())
        .chain(replays::names())
        .collect()
}

/// Repeats the figures with these names. A figure fails if a disk or a control group cannot be made (this
/// needs root), or a training fails. `so_far` gets the figures after each paper.
pub fn run(
    settings: &Settings,
    names: &[String],
    step: &mut dyn FnMut(&str),
    so_far: &mut dyn FnMut(&[Figure]),
) -> Outcome {
    let is_wanted = |figure: &str| is_wanted(figure, names);
    let mut repeated = Repeated::default();
    for run in RUNS {
        run(settings, &is_wanted, step, &mut repeated);
        so_far(&repeated.figures);
    }
    repeated.figures.extend(replays::run(settings, is_wanted, step));
    so_far(&repeated.figures);
    let names_one =
        |name: &&String| self::names().contains(&name.as_str()) && !PAPERS.contains(&name.as_str());
    for name in names.iter().filter(names_one) {
        if !repeated.has(name) {
            let none = anyhow::anyhow!("it has no quick run; leave --quick out");
            repeated.add(&[name.as_str()], Err(none));
        }
    }
    let Repeated { figures, failed } = repeated;
    let failed = failed.iter().map(ToString::to_string).collect();
    Outcome { machine: machine(settings), figures, failed }
}

/// The machine, the version and the extent of a run, in one line.
#[must_use]
pub fn machine(settings: &Settings) -> String {
    let of = |file: &str, key: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.split_once(':'));
        value.map_or_else(|| "unknown".to_owned(), |(_, value)| value.trim().to_owned())
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = of("/proc/meminfo", "MemTotal");
    let kib = memory.strip_suffix(" kB").and_then(|kib| kib.parse().ok());
    let turns = match settings.rounds {
        1 => "one turn of each side, so ranges are not known".to_owned(),
        rounds => format!("{rounds} turns of each side"),
    };
    format!(
        "{cores} cores ({}), {} of memory, Linux {}, tierfeed {}; {turns}.",
        of("/proc/cpuinfo", "model name"),
        kib.map_or(memory, |kib: u64| Bytes(kib * 1024).to_string()),
        kernel.trim(),
        env!("CARGO_PKG_VERSION")
    )
}

/// Whether a figure is one of `names`, or of a paper among them.
fn is_wanted(figure: &str, names: &[String]) -> bool {
    let paper = figure.rsplit_once('-').map_or(figure, |(paper, _)| paper);
    names.iter().any(|name| name == "all" || name == paper || name == figure)
}
