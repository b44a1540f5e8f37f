//! `tierfeed-bench index`: many small files, listed by `find` and indexed by tierfeed, turn by turn.
//!
//! Both ask for the name, the size and the time of every file; `find` prints to `/dev/null`, the index
//! is written. The files are empty, because neither reads them.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tierfeed_core::units::Bytes;
use tierfeed_harness::{clock::now, files, judgement::Judgement, statistics::percentile};

/// Bytes of an object in an index, without its name.
const OBJECT_BYTES: u64 = 24;
/// The most time over that of `find -printf`.
const TIME_MAX: f64 = 2.0;
/// The most bytes of an index of a million files, without their names: 24 bytes each, and a header.
const BYTES_MAX: f64 = 24_200_000.0;
/// The most resident bytes for a million files.
const MEMORY_MAX: f64 = 200_000_000.0;

#[derive(Debug, Clone)]
pub struct Settings {
    pub tierfeed: PathBuf,
    /// Parent of the folder with the files, which are removed afterwards: a RAM disk, or else the disk is
    /// measured too.
    pub folder: PathBuf,
    pub files: u64,
    pub rounds: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub files: u64,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Directories that the files lie in.
    pub directories: u64,
    pub find_s: Vec<f64>,
    pub index_s: Vec<f64>,
    /// The median of the ratios of the turns: above 1 the index takes longer.
    pub ratio: f64,
    pub index_bytes: u64,
    pub name_bytes: u64,
    pub peak_memory_bytes: u64,
}

impl Outcome {
    /// Time beside `find`, bytes of the index and memory, in proportion to a million files.
    #[must_use]
    pub fn judged(&self) -> Judgement {
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

/// Makes the trees, has both sides list them, removes them.
///
/// # Errors
///
/// If the folder cannot be written, there is no `find`, or a side fails.
pub fn run(settings: &Settings, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    let rows = [1, 1_000.min(settings.files)].map(|directories| {
        files::in_folder(&settings.folder, |folder| row(settings, folder, directories, progress))
    });
    let rows = rows.into_iter().collect::<anyhow::Result<_>>()?;
    Ok(Outcome { files: settings.files, rows })
}

fn row(
    settings: &Settings,
    folder: &Path,
    directories: u64,
    progress: &mut dyn FnMut(&str),
) -> anyhow::Result<Row> {
    progress(&format!("making {} files in {directories} directories", settings.files));
    let (tree, index) = (folder.join("tree"), folder.join("index"));
    let name_bytes = make(&tree, settings.files, directories)?;
    let (mut find_s, mut index_s) = (Vec::new(), Vec::new());
    let mut peak_memory_bytes = 0;
    for round in 0..settings.rounds {
        progress(&format!("turn {} of {}", round + 1, settings.rounds));
        find_s.push(find(&tree)?);
        let (time, summary) = build(settings, &tree, &index)?;
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
fn build(settings: &Settings, tree: &Path, index: &Path) -> anyhow::Result<(f64, Summary)> {
    if index.exists() {
        fs::remove_file(index)?;
    }
    let start = now();
    let mut command = Command::new(&settings.tierfeed);
    command.arg("index").arg(tree).arg("--json").arg("-o").arg(index);
    let output = command.output().context("cannot run tierfeed")?;
    let time = start.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "tierfeed index failed: {said}");
    Ok((time, serde_json::from_slice(&output.stdout)?))
}

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = format!(
        "{} empty files; medians of times, and of the ratios of each turn\n\n\
         {:>12}  {:>10}  {:>10}  {:>8}  {:>22}  {:>12}\n",
        outcome.files,
        "directories",
        "find",
        "index",
        "ratio",
        "index, without names",
        "peak memory"
    );
    for row in &outcome.rows {
        let median = |times: &[f64]| percentile(times, 50).unwrap_or(f64::NAN);
        let bare = row.index_bytes.saturating_sub(row.name_bytes);
        writeln!(
            text,
            "{:>12}  {:>8.3} s  {:>8.3} s  {:>8.3}  {:>22}  {:>12}",
            row.directories,
            median(&row.find_s),
            median(&row.index_s),
            row.ratio,
            Bytes(bare).to_string(),
            Bytes(row.peak_memory_bytes).to_string()
        )
        .expect("writing to a string cannot fail");
    }
    let objects = Bytes(outcome.files * OBJECT_BYTES);
    writeln!(text, "\n{OBJECT_BYTES} B a file are {objects}").expect("writing cannot fail");
    text
}
