//! `tierfeed-bench handoff`: warm files of 1 MiB through tierfeed, `PyTorch`'s `DataLoader` and a bare
//! loop, in turn in one process, and the time from a ready batch to tensors in Python.
//!
//! The loop reads every batch to the same memory, which the processor's cache holds. A loader that reads
//! ahead writes to memory, so a second loop uses as much memory in turn as tierfeed stages batches in.
//!
//! The policy is `none`, so that tierfeed too reads every byte from the same files every time; then the
//! same with files that tierfeed keeps in main memory and hands over where they lie, beside the loop.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    programs::Programs,
    statistics::percentile,
};

use crate::runs::read_json;

const PEERS: &str = include_str!("../peers/handoff.py");
const FILE_BYTES: u64 = 1 << 20;
const BATCH_SIZE: usize = 8;
const STAGED_BATCHES: usize = 4;
const READY_EPOCHS: usize = 16;
/// Epochs that fill the cache before it is measured.
const FILL_EPOCHS: usize = 1;
/// The least throughput over that of a `DataLoader` with two workers.
const RATIO_MIN: f64 = 3.0;
/// Half of the ratio that a machine with a shared disk showed.
const LOOP_RATIO_MIN: f64 = 0.25;
/// Files that are kept are handed out in place: several times a loop that reads them.
const KEPT_RATIO_MIN: f64 = 3.0;
/// Five times the promise for a ready batch on a quiet machine.
const READY_NS_MAX: f64 = 250_000.0;
const OURS: &str = "tierfeed";
const KEPT: &str = "tierfeed, kept";
const PLAIN: &str = "DataLoader, 2 workers";
const LOOP: &str = "readinto loop";
const LOOP_AHEAD: &str = "readinto loop, ahead";

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// A Python with torch and tierfeed.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// The number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    pub(crate) files: usize,
    /// How often each side reads them all.
    #[arg(long, value_name = "NUMBER", default_value_t = 5)]
    pub(crate) rounds: usize,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) sides: Vec<Side>,
    /// tierfeed's median over that of `DataLoader` with 2 workers.
    pub(crate) ratio: f64,
    pub(crate) to_loop: Beside,
    /// Beside a loop that reads to as much memory as tierfeed stages batches in.
    pub(crate) to_loop_ahead: Beside,
    /// With files that lie in tierfeed's main memory, beside a loop that reads them from the page cache.
    pub(crate) kept: Kept,
    /// The time until a staged batch arrives at a trainer that does nothing between batches, by its form: from asking
    /// for it to an object through which Python can read it, to a `NumPy` array over it, and to one tensor for each of
    /// its samples.
    pub(crate) idle: BTreeMap<String, Ready>,
    /// The same for one that computes, which leaves nothing of the hand-off in the processor's caches.
    pub(crate) computing: BTreeMap<String, Ready>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Kept {
    pub(crate) sides: Vec<Side>,
    pub(crate) to_loop: Beside,
}

/// tierfeed over a bare loop of `readinto`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Beside {
    /// Of the medians.
    pub(crate) ratio: f64,
    /// Of CPU time for a byte.
    pub(crate) cpu_ratio: f64,
}

impl Beside {
    fn of(ours: &Side, other: &Side) -> Self {
        Self {
            ratio: ours.bytes_per_s / other.bytes_per_s,
            cpu_ratio: ours.cpu_s_per_gb / other.cpu_s_per_gb,
        }
    }
}

impl Judged for Outcome {
    /// The promise about throughput, and floors far below what was measured for the rest.
    fn judged(&self) -> Judgement {
        let ready_ns = self.idle.get("batch").map_or(f64::NAN, |it| it.p50_ns);
        Judgement::default()
            .at_least("throughput over that of DataLoader", self.ratio, RATIO_MIN)
            .at_least("throughput over that of a bare loop", self.to_loop.ratio, LOOP_RATIO_MIN)
            .at_least("the same of kept files", self.kept.to_loop.ratio, KEPT_RATIO_MIN)
            .at_most("ns to a ready batch, median", ready_ns, READY_NS_MAX)
    }
}

/// The time from the request to one form of the batch.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Ready {
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) batches: usize,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) bytes_per_s: f64,
    pub(crate) bytes_per_s_min: f64,
    pub(crate) bytes_per_s_max: f64,
    /// CPU time of everything that takes part, the agent and workers included: the median over rounds.
    pub(crate) cpu_s_per_gb: f64,
}

#[derive(Debug, Deserialize)]
struct Raw {
    bytes_per_s: BTreeMap<String, Vec<f64>>,
    cpu_s_per_byte: BTreeMap<String, Vec<f64>>,
    /// Waits by trainer and by form of the batch.
    #[serde(default)]
    ready_ns: BTreeMap<String, BTreeMap<String, Vec<f64>>>,
    mode: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Every side reads the files.
    Read,
    /// tierfeed keeps them in main memory.
    Kept,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Kept => "kept",
        }
    }

    /// Files of one length are handed over as one array, which cannot be in place; so the lengths of kept
    /// files differ.
    fn file_bytes(self, number: u64) -> u64 {
        match self {
            Self::Read => FILE_BYTES,
            Self::Kept => FILE_BYTES - number % 2 * 4096,
        }
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let programs = Programs::find()?;
        ensure_enough(self.files)?;
        Ok(self.folder.with_files(|folder| measure(&self, &programs, folder))?)
    }
}

fn ensure_enough(files: usize) -> anyhow::Result<()> {
    let least = BATCH_SIZE * (STAGED_BATCHES + 2);
    ensure!(files >= least, "{files} files; at least {least}");
    Ok(())
}

fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let read = measure_part(settings, programs, &folder.join("read"), Part::Read)?;
    let kept = measure_part(settings, programs, &folder.join("kept"), Part::Kept)?;
    outcome(&read, &kept)
}

fn measure_part(
    settings: &Settings,
    programs: &Programs,
    folder: &Path,
    part: Part,
) -> anyhow::Result<Raw> {
    let (data, job) = (folder.join("data"), folder.join("job.yaml"));
    let (peers, result) = (folder.join("peers.py"), folder.join("result.json"));
    for number in 0..settings.files as u64 {
        let file = data.join(format!("{number:06}.bin"));
        files::write_noise(&file, number, part.file_bytes(number))?;
    }
    fs::write(&job, job_text(settings, &data, part))?;
    fs::write(&peers, PEERS)?;
    let status = Command::new(&programs.tierfeed)
        .args(["run", "--run-dir"])
        .arg(folder.join("run"))
        .arg(&job)
        .arg("--")
        .arg(&settings.python)
        .arg(&peers)
        .arg(part.name())
        .arg(&data)
        .args([settings.rounds, BATCH_SIZE, STAGED_BATCHES].map(|number| number.to_string()))
        .arg(&result)
        .stdout(std::io::stderr())
        .status()
        .with_context(|| format!("{}: cannot be started", programs.tierfeed.display()))?;
    if !status.success() {
        bail!("the measured run failed ({status}); its messages are above");
    }
    let raw: Raw = read_json(&result)?;
    if raw.mode != "agent" {
        bail!("Python read the files without the agent, so nothing was measured");
    }
    fs::remove_dir_all(&data)?;
    Ok(raw)
}

fn outcome(read: &Raw, kept: &Raw) -> anyhow::Result<Outcome> {
    let (sides, of_kept) = (sides(read)?, self::sides(kept)?);
    let ours = side(&sides, OURS)?;
    Ok(Outcome {
        ratio: Beside::of(ours, side(&sides, PLAIN)?).ratio,
        to_loop: Beside::of(ours, side(&sides, LOOP)?),
        to_loop_ahead: Beside::of(ours, side(&sides, LOOP_AHEAD)?),
        kept: Kept {
            to_loop: Beside::of(side(&of_kept, KEPT)?, side(&of_kept, LOOP)?),
            sides: of_kept,
        },
        idle: ready(read, "idle")?,
        computing: ready(read, "computing")?,
        sides,
    })
}

fn sides(raw: &Raw) -> anyhow::Result<Vec<Side>> {
    let mut sides = Vec::new();
    for (name, rates) in &raw.bytes_per_s {
        let at = |percent| percentile(rates, percent).context("a side without a round");
        let cpu = raw.cpu_s_per_byte.get(name).and_then(|cpu| percentile(cpu, 50));
        sides.push(Side {
            name: name.clone(),
            cpu_s_per_gb: cpu.context("a side without CPU time")? * 1e9,
            bytes_per_s: at(50)?,
            bytes_per_s_min: at(1)?,
            bytes_per_s_max: at(100)?,
        });
    }
    sides.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s));
    Ok(sides)
}

fn side<'a>(sides: &'a [Side], name: &str) -> anyhow::Result<&'a Side> {
    let side = sides.iter().find(|side| side.name == name);
    side.with_context(|| format!("no figure for {name}"))
}

fn ready(raw: &Raw, trainer: &str) -> anyhow::Result<BTreeMap<String, Ready>> {
    let waits = raw.ready_ns.get(trainer).with_context(|| format!("no waits, {trainer}"))?;
    let of_form = |(form, waits_ns): (&String, &Vec<f64>)| {
        let at = |percent| percentile(waits_ns, percent).context("no batch was ready");
        let ready = Ready { p50_ns: at(50)?, p99_ns: at(99)?, batches: waits_ns.len() };
        Ok((form.clone(), ready))
    };
    waits.iter().map(of_form).collect()
}

fn job_text(settings: &Settings, data: &Path, part: Part) -> String {
    let staging = (STAGED_BATCHES * BATCH_SIZE + 96) as u64 * FILE_BYTES;
    let all = settings.files as u64 * FILE_BYTES;
    let (format, epochs, policy, memory) = match part {
        Part::Read => (
            format!("raw\n  record_bytes: {FILE_BYTES}"),
            settings.rounds + READY_EPOCHS,
            "none",
            format!("size: {staging} B"),
        ),
        Part::Kept => (
            "files\n  glob: \"*.bin\"".to_owned(),
            settings.rounds + FILL_EPOCHS,
            "pinned",
            format!("size: {} B, direct: always", staging + all),
        ),
    };
    format!(
        "name: bench-handoff\n\
         dataset:\n  source: {}\n  format: {format}\n\
         order: {{ shuffle: torch-distributed, seed: 42, epochs: {epochs} }}\n\
         batch_size: {BATCH_SIZE}\n\
         policy: {policy}\n\
         prefetch: {{ batches: {STAGED_BATCHES} }}\n\
         chunk: 8 MiB\n\
         tiers:\n  main-memory: {{ {memory} }}\n",
        data.display()
    )
}
