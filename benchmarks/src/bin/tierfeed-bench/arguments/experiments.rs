//! The options of the experiments of papers, and of the comparison with other loaders.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tierfeed_experiments::{loaders::Place, papers};
use tierfeed_harness::output::{FolderAndFormat, Format};

#[derive(Debug, Args)]
pub(crate) struct BenchDlcache {
    /// The authors' table: dataset, size in bytes and 8 x seconds of each chunk [default: generated, of
    /// about its sizes and costs].
    #[arg(long, value_name = "FILE")]
    pub(crate) chunks: Option<PathBuf>,
    /// Which orders of jobs.
    #[arg(long, value_name = "NAME", default_value = "full")]
    pub(crate) patterns: DlcachePatterns,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DlcachePatterns {
    /// The 24,000 of the paper: ten sizes of storage.
    Full,
    /// The 14,400 that were published: six sizes of storage, and the same orders.
    Published,
    /// 576: six sizes of storage, two orders of each list of jobs.
    Quick,
}

#[derive(Debug, Args)]
pub(crate) struct BenchLimits {
    /// Reads of a node in an epoch; with fewer, chance alone may miss the marks.
    #[arg(long, value_name = "NUMBER", default_value_t = 60_000,
          value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) accesses: u32,
    #[command(flatten)]
    pub(crate) format: Format,
}

#[derive(Debug, Args)]
pub(crate) struct BenchLoaders {
    /// A Python with the loaders: the folder that `scripts/frameworks/setup.sh peers` prints, bin/python.
    #[arg(long, value_name = "FILE")]
    pub(crate) python: PathBuf,
    /// How many photographs there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 4000,
          value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub(crate) photographs: u32,
    /// Turns of each loader.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// The loaders beside tierfeed that are compared, separated by commas; all unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Where the photographs are, separated by commas; everywhere unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = Place::NAMES)]
    pub(crate) place: Vec<String>,
    /// Fewer photographs, turns and conditions.
    #[arg(long, conflicts_with_all = ["photographs", "rounds"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) figures: FiguresOutput,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

/// What is made of figures beside the tables.
#[derive(Debug, Args)]
pub(crate) struct FiguresOutput {
    /// Fails if a claim falls below what this file says that it reached.
    #[arg(long, value_name = "FILE")]
    pub(crate) floors: Option<PathBuf>,
    /// Writes what claims reach, as floors of later runs; those of other figures stay.
    #[arg(long, value_name = "FILE", conflicts_with = "floors")]
    pub(crate) record_floors: Option<PathBuf>,
    /// Writes the figures as a page, and as JSON beside it; figures there that do not run again stay.
    #[arg(long, value_name = "FILE")]
    pub(crate) page: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchPaper {
    /// What is repeated: `all`, a paper (`deep-memory`), or figures, such as `deep-memory-8`.
    #[arg(value_name = "NAME", required = true, value_parser = paper_names())]
    pub(crate) names: Vec<String>,
    /// A Python with the loaders: the folder that `scripts/frameworks/setup.sh peers` prints, bin/python.
    #[arg(long, value_name = "FILE")]
    pub(crate) python: PathBuf,
    /// How many photographs there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub(crate) photographs: u32,
    /// A tar of labelled images, such as CIFAR-10, each CLASS/NAME.jpg below any folder; generated ones unless given.
    #[arg(long, value_name = "FILE")]
    pub(crate) labelled: Option<PathBuf>,
    /// Turns of each side [default: 3].
    #[arg(long, value_name = "NUMBER",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: Option<usize>,
    /// Fewer photographs, and the sides that tell most; one turn, unless --rounds is given.
    #[arg(long, conflicts_with = "photographs")]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) figures: FiguresOutput,
    #[command(flatten)]
    pub(crate) output: FolderAndFormat,
}

fn paper_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(papers::names())
}
