//! `tierfeed-bench paper`: figures of papers, repeated as real trainings.
//!
//! A paper is a file ([`file`]): [`trials`] run, each [`measure`] is taken of their turns, and [`drawing`] makes charts
//! and judged claims of them.

mod deli;
mod drawing;
mod expansion;
mod file;
mod measure;
mod ram_disk;
mod repetition;
mod scatter;
mod sizes;
mod special;
mod trials;

use std::{collections::BTreeMap, fs, path::PathBuf, sync::LazyLock, thread};

use clap::{
    Args,
    builder::{PossibleValuesParser, RangedU64ValueParser},
};
use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    judgement::{Judged, Judgement},
};

use self::{file::PaperFile, repetition::Repeated};
use crate::{
    figure::{Figure, Verdict},
    floors,
    prediction::Predicted,
    record::Recording,
    stage::{self, Extent},
};

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// What is repeated: `all`, a paper (`deep-memory`), or figures, such as `deep-memory-8`.
    #[arg(value_name = "NAME", required = true, value_parser = PossibleValuesParser::new(names()))]
    pub names: Vec<String>,
    /// A Python with the loaders: the folder that `scripts/frameworks/setup.sh peers` prints, bin/python.
    #[arg(long, value_name = "FILE")]
    pub python: PathBuf,
    /// How many photographs there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub photographs: u32,
    /// A tar of labelled images, such as CIFAR-10, each CLASS/NAME.jpg below any folder; generated ones unless given.
    #[arg(long, value_name = "FILE")]
    pub labelled: Option<PathBuf>,
    /// Turns of each side [default: 3].
    #[arg(long, value_name = "NUMBER",
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub rounds: Option<usize>,
    /// Fewer photographs, and the sides that tell most; one turn, unless --rounds is given.
    #[arg(long, conflicts_with = "photographs")]
    pub quick: bool,
    #[command(flatten)]
    pub recording: Recording,
    #[command(flatten)]
    pub folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub machine: String,
    /// In the order of the papers.
    pub figures: Vec<Figure>,
    /// Figures that could not be repeated, each with its reason.
    pub failed: Vec<String>,
    /// The number of claims with each verdict.
    pub claims: BTreeMap<Verdict, usize>,
    pub predicted: Predicted,
    #[serde(skip)]
    below_floors: Judgement,
}

impl Judged for Outcome {
    const DETAILS: &'static [&'static str] = &["charts", "predictions", "measured"];

    fn judged(&self) -> Judgement {
        let judged = self.below_floors.clone();
        self.failed.iter().fold(judged, |judged, it| judged.verdict(it.clone(), "missed"))
    }
}

/// Names of several figures.
const PAPERS: [&str; 6] = ["all", "deep-memory", "lobster", "deli", "dlcache", "newer"];

/// The photographs of a quick run, and the turns of another one.
const PHOTOGRAPHS_QUICK: u32 = 600;
const ROUNDS: usize = 3;

static FILES: LazyLock<[PaperFile; 5]> = LazyLock::new(|| {
    [
        include_str!("papers/deep_memory.yaml"),
        include_str!("papers/lobster.yaml"),
        include_str!("papers/deli.yaml"),
        include_str!("papers/dlcache.yaml"),
        include_str!("papers/newer.yaml"),
    ]
    .map(|text| PaperFile::parse(text).expect("a test reads these files"))
});

/// All names of figures that can be asked for: `all`, papers, figures.
pub(crate) fn names() -> Vec<&'static str> {
    let figures = FILES.iter().flat_map(PaperFile::figures);
    PAPERS.into_iter().chain(figures.map(|it| &it.name[..])).collect()
}

impl Bench for Settings {
    type Outcome = Outcome;

    /// Repeats the figures with these names. A figure fails if a disk or a control group cannot be made (this needs
    /// root), or a training fails.
    fn run(self) -> Result<Outcome, Failure> {
        let _watch = self.folder.watch()?;
        let floors = self.recording.floors()?;
        let (extent, photographs, rounds) = if self.quick {
            (Extent::Quick, PHOTOGRAPHS_QUICK, self.rounds.unwrap_or(1))
        } else {
            (Extent::Full, self.photographs, self.rounds.unwrap_or(ROUNDS))
        };
        let found = stage::Settings::find(&self.python, &self.folder, extent, photographs, rounds)?;
        let stage = stage::Settings { labelled: self.labelled.clone(), ..found };
        let machine = machine(&stage);
        let is_wanted = |figure: &str| is_wanted(figure, &self.names);
        let mut repeated = Repeated::default();
        for file in &*FILES {
            repetition::run(file, &stage, &is_wanted, &mut repeated);
            // After each paper: a run takes an hour.
            self.recording.write(&repeated.figures, &machine, &names())?;
        }
        for name in self.names.iter().filter(|name| !PAPERS.contains(&name.as_str())) {
            if !repeated.has(name) {
                let none = anyhow::anyhow!("it has no quick run; leave --quick out");
                repeated.add(&[name.as_str()], Err(none));
            }
        }
        let below_floors = floors::judged(&floors, &repeated.figures);
        Ok(Outcome::of(machine, repeated, below_floors))
    }
}

impl Outcome {
    fn of(machine: String, repeated: Repeated, below_floors: Judgement) -> Self {
        let Repeated { figures, failed } = repeated;
        let mut claims = BTreeMap::new();
        for claim in figures.iter().flat_map(|figure| &figure.headlines) {
            *claims.entry(claim.verdict).or_default() += 1;
        }
        let predicted = Predicted::of(figures.iter().flat_map(|figure| &figure.predictions));
        let failed = failed.iter().map(ToString::to_string).collect();
        Self { machine, figures, failed, claims, predicted, below_floors }
    }
}

/// The machine, the version and the extent of a run, in one line.
pub(crate) fn machine(settings: &stage::Settings) -> String {
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
    let is_of =
        |name: &String| figure.strip_prefix(&name[..]).is_some_and(|it| it.starts_with('-'));
    names.iter().any(|name| name == "all" || name == figure || is_of(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_that_figures_show_is_a_side_of_their_experiment() {
        for experiment in FILES.iter().flat_map(|it| &it.experiments) {
            let sides = experiment.trials.iter().flat_map(|it| &it.sides).map(|it| &it.name[..]);
            let sides: Vec<_> = sides.collect();
            let names: BTreeSet<_> = sides.iter().copied().collect();
            assert_eq!(sides.len(), names.len(), "two sides have one name: {sides:?}");
            let shown = experiment.shown(experiment.figures.iter());
            let missing: Vec<_> = shown.difference(&names).collect();
            // Stopwatches, and what one loader or one model has alone.
            let is_known = |it: &&&str| {
                it.starts_with("stopwatch")
                    || it.ends_with("CXL as memory and storage")
                    || it.starts_with("large model, Lobster's ")
            };
            let unknown: Vec<_> = missing.into_iter().filter(|it| !is_known(it)).collect();
            assert!(unknown.is_empty(), "{unknown:?}");
            let unused: Vec<_> = names.difference(&shown).collect();
            assert!(unused.is_empty(), "{unused:?}");
        }
    }

    #[test]
    fn figures_have_their_names_once() {
        let names = names();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
        assert_eq!(names.len(), PAPERS.len() + 39, "{names:?}");
    }
}
