//! `tierfeed-bench index`: many small files, listed by `find` and indexed by tierfeed, turn by turn.
//!
//! Both ask for the name, the size and the time of every file; `find` prints to `/dev/null`, the index
//! is written. The files are empty, because neither reads them.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use serde::{Deserialize, Serialize};
use tierfeed_harness::{
    bench::Bench,
    clock::now,
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    output::step,
    programs::Programs,
    statistics::percentile,
};

use crate::processes::said;

/// The most time over that of `find -printf`.
const TIME_MAX: f64 = 2.0;
/// The most bytes of an index of a million files, without their names: 24 bytes each, and a header.
const BYTES_MAX: f64 = 24_200_000.0;
/// The most resident bytes for a million files.
const MEMORY_MAX: f64 = 200_000_000.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// The number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) files: u64,
    /// How often each side has its turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) rounds: usize,
    /// Where the files are made, and removed afterwards; on a disk its speed is measured too.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub(crate) folder: PathBuf,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) files: u64,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// Directories that the files lie in.
    pub(crate) directories: u64,
    pub(crate) find_s: Vec<f64>,
    pub(crate) index_s: Vec<f64>,
    /// The median of the ratios of the turns: above 1 the index takes longer.
    pub(crate) ratio: f64,
    pub(crate) index_bytes: u64,
    pub(crate) name_bytes: u64,
    pub(crate) peak_memory_bytes: u64,
}

impl Judged for Outcome {
    /// Time beside `find`, bytes of the index and memory, in proportion to a million files.
    fn judged(&self) -> Judgement {
        let millions = self.files as f64 / 1e6;
        self.rows.iter().fold(Judgement::default(), |judged, row| {
            let beside_names = row.index_bytes.saturating_sub(row.name_bytes) as f64;
            let place = format!("in {} directories", row.directories);
            judged
                .at_most(&format!("time over that of find {place}"), row.ratio, TIME_MAX)
                .at_most(
                    &format!("bytes beside names {place}"),
                    beside_names,
                    BYTES_MAX * millions.max(1.0),
                )
                .at_most(
                    &format!("bytes of memory {place}"),
                    row.peak_memory_bytes as f64,
                    MEMORY_MAX * millions.max(1.0),
                )
        })
    }
}

#[derive(Debug, Deserialize)]
struct Summary {
    samples: u64,
    peak_memory_bytes: u64,
}

impl Bench for Settings {
    type Outcome = Outcome;

    /// Makes the trees, has both sides list them, removes them.
    fn run(self) -> Result<Outcome, Failure> {
        let tierfeed = Programs::find()?.tierfeed;
        let mut rows = Vec::new();
        for directories in [1, 1_000.min(self.files)] {
            let measured =
                files::in_folder(&self.folder, |folder| row(&self, &tierfeed, folder, directories));
            rows.push(measured?);
        }
        Ok(Outcome { files: self.files, rows })
    }
}

fn row(
    settings: &Settings,
    tierfeed: &Path,
    folder: &Path,
    directories: u64,
) -> anyhow::Result<Row> {
    step(&format!("making {} files in {directories} directories", settings.files));
    let (tree, index) = (folder.join("tree"), folder.join("index"));
    let name_bytes = make(&tree, settings.files, directories)?;
    let (mut find_s, mut index_s) = (Vec::new(), Vec::new());
    let mut peak_memory_bytes = 0;
    for round in 0..settings.rounds {
        step(&format!("turn {} of {}", round + 1, settings.rounds));
        find_s.push(find(&tree)?);
        let (time, summary) = build(tierfeed, &tree, &index)?;
        ensure!(summary.samples == settings.files, "{} samples", summary.samples);
        index_s.push(time);
        peak_memory_bytes = summary.peak_memory_bytes.max(peak_memory_bytes);
    }
    let ratios: Vec<f64> = index_s.iter().zip(&find_s).map(|(index, find)| index / find).collect();
    let ratio = percentile(&ratios, 50).context("at least one round is needed")?;
    let index_bytes = fs::metadata(&index)?.len();
    Ok(Row { directories, find_s, index_s, ratio, index_bytes, name_bytes, peak_memory_bytes })
}

/// Makes empty files named like those of `ImageNet`; returns the bytes of their names.
fn make(tree: &Path, count: u64, directories: u64) -> anyhow::Result<u64> {
    let mut name_bytes = 0;
    for directory in 0..directories {
        let path = tree.join(format!("n{directory:08}"));
        fs::create_dir_all(&path)?;
        for number in (directory..count).step_by(usize::try_from(directories)?) {
            let name = format!("n{directory:08}_{number}.JPEG");
            name_bytes += name.len() as u64;
            fs::File::create(path.join(name))?;
        }
    }
    Ok(name_bytes)
}

fn find(tree: &Path) -> anyhow::Result<f64> {
    let start = now();
    let mut find = Command::new("find");
    find.arg(tree).args(["-type", "f", "-printf", "%s %T@ %p\\n"]).stdout(Stdio::null());
    ensure!(find.status().context("cannot run find")?.success(), "find failed");
    Ok(start.elapsed().as_secs_f64())
}

/// Builds a new index: one that exists is removed, because it would be used.
fn build(tierfeed: &Path, tree: &Path, index: &Path) -> anyhow::Result<(f64, Summary)> {
    if index.exists() {
        fs::remove_file(index)?;
    }
    let start = now();
    let mut command = Command::new(tierfeed);
    command.arg("index").arg(tree).arg("--json").arg("-o").arg(index);
    let summary = said(&mut command)?;
    Ok((start.elapsed().as_secs_f64(), serde_json::from_str(&summary)?))
}
