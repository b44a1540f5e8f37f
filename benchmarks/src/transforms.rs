//! `tierfeed-bench transforms`, `cached-form` and `balance`: trainings whose samples the agent transforms.
//!
//! Each turn is a whole `tierfeed run` over generated images on an emulated cold store: a rate that all reads
//! share, and a latency. All sides of a comparison alternate, and medians count. The training sleeps as a GPU
//! computes; of [`end_to_end`] some train a small network on a core.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people, and rates that are above zero"
)]

mod end_to_end;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use clap::{Args, builder::RangedU64ValueParser};
use serde::{Deserialize, Serialize};
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    programs::Programs,
    statistics::percentile,
};

use crate::{processes::said, runs::read_json};

const SCRIPT: &str = include_str!("../peers/transforms.py");

/// The largest time of an epoch over its bound.
pub(crate) const OVER_BOUND_MAX: f64 = 1.05;
/// The largest time with the form that the plan chooses over that with the better one.
pub(crate) const OVER_BETTER_FORM_MAX: f64 = 1.03;
/// The largest time of a phase over that with the better number of fixed threads.
pub(crate) const OVER_FIXED_MAX: f64 = 1.1;

/// With this ratio it fails, however far the turns lie apart.
pub(crate) const OVER_BETTER_FORM_FAILS: f64 = 1.3;

/// Samples of a batch, where it does not matter.
const BATCH: usize = 8;

const PHOTO_BYTES: usize = 640 * 480 * 3;

/// Room in staging for a few batches of decoded photographs.
const STAGING: Bytes = Bytes::mib(64);

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// A Python with NumPy, Pillow, PyTorch and tierfeed.
    #[arg(long, value_name = "FILE", default_value = ".venv/bin/python")]
    pub(crate) python: PathBuf,
    /// How many images there are, rounded up to a multiple of 24.
    #[arg(long, value_name = "NUMBER", default_value_t = 960,
          value_parser = RangedU64ValueParser::<usize>::new().range(24..=1_000_000))]
    pub(crate) samples: usize,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// 240 images and 3 turns.
    #[arg(long, conflicts_with_all = ["samples", "rounds"])]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
    pub(crate) promises: Vec<Promise>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Seconds, by what took them.
    pub(crate) seconds: Vec<(String, f64)>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Promise {
    pub(crate) what: String,
    /// The ratio of medians.
    pub(crate) ratio: f64,
    pub(crate) most: f64,
    /// The range of the turns of either side, as a share of their median.
    pub(crate) spread: f64,
    /// A larger ratio is a failure, however far the turns lie apart.
    pub(crate) fails: Option<f64>,
}

impl Judged for Outcome {
    /// A ratio is inconclusive if it misses its mark by less than the turns lie apart.
    fn judged(&self) -> Judgement {
        self.promises.iter().fold(Judgement::default(), |judged, promise| {
            let Promise { what, ratio, most, spread, fails } = promise;
            let verdict = match ratio {
                ratio if ratio <= most => "kept",
                ratio if *ratio <= (most + spread).min(fails.unwrap_or(f64::MAX)) => "inconclusive",
                _ => "missed",
            };
            judged.verdict(format!("{what}: {ratio:.3}, at most {most} is promised"), verdict)
        })
    }
}

#[derive(Debug, Clone)]
struct Side {
    name: String,
    /// Bytes a second of the cold store; 0 for no limit.
    rate: u64,
    step_s: f64,
    /// Passes of the network over each batch, beside the sleep.
    passes: u32,
    threads: u32,
    assignment: &'static str,
    cache: &'static str,
    steps: &'static str,
    policy: &'static str,
    batch: usize,
    room: Bytes,
    epochs: usize,
}

#[derive(Debug, Clone, Deserialize)]
struct Turn {
    /// By epoch.
    seconds: Vec<f64>,
    /// By epoch and batch.
    waits: Vec<Vec<f64>>,
}

struct Turns<'a> {
    settings: &'a Settings,
    tierfeed: &'a Path,
    folder: &'a Path,
    python: PathBuf,
}

#[derive(Debug, Clone, Copy)]
enum Experiment {
    EndToEnd,
    CachedForm,
    Balance,
}

impl Settings {
    /// Makes the images, runs all sides in turns, and removes the images.
    fn run(mut self, experiment: Experiment) -> Result<Outcome, Failure> {
        let tierfeed = Programs::find()?.tierfeed;
        if self.quick {
            (self.samples, self.rounds) = (240, 3);
        }
        self.samples = self.samples.next_multiple_of(24);
        Ok(self.folder.with_files(|folder| {
            let python = std::path::absolute(&self.python)?;
            fs::write(folder.join("transforms.py"), SCRIPT)?;
            let turns = Turns { settings: &self, tierfeed: &tierfeed, folder, python };
            match experiment {
                Experiment::EndToEnd => turns.end_to_end(),
                Experiment::CachedForm => turns.cached_form(),
                Experiment::Balance => turns.balance(),
            }
        })?)
    }
}

/// Epochs beside the slowest of computing, decoding and reading.
#[derive(Debug, Clone, Args)]
pub(crate) struct EndToEnd {
    #[command(flatten)]
    settings: Settings,
}

impl Bench for EndToEnd {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        self.settings.run(Experiment::EndToEnd)
    }
}

/// Tiers that hold samples as stored or prepared.
#[derive(Debug, Clone, Args)]
pub(crate) struct CachedForm {
    #[command(flatten)]
    settings: Settings,
}

impl Bench for CachedForm {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        self.settings.run(Experiment::CachedForm)
    }
}

/// Cost that moves from reading to decoding and back.
#[derive(Debug, Clone, Args)]
pub(crate) struct Balance {
    #[command(flatten)]
    settings: Settings,
}

impl Bench for Balance {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        self.settings.run(Experiment::Balance)
    }
}

/// The side on which everything is as fast as it can be, and nothing stays.
fn unlimited(name: &str) -> Side {
    Side {
        name: name.to_owned(),
        rate: 0,
        step_s: 0.0,
        passes: 0,
        threads: 2,
        assignment: "shared",
        cache: "stored",
        steps: "[{ random_resized_crop: 224 }, { random_horizontal_flip: 0.5 }]",
        policy: "none",
        batch: BATCH,
        room: Bytes::mib(16),
        epochs: 2,
    }
}

impl Turns<'_> {
    /// Half of the decoded images fit, and all of the stored ones. The cold store takes as long as decoding, a third
    /// of it, and thrice. The last six of eight epochs count.
    fn cached_form(&self) -> anyhow::Result<Outcome> {
        let bytes = self.make("photos")?;
        let alone = self.turns(&[unlimited("decoding alone")])?;
        let decoding = median(&alone[0], |turn| turn.seconds[1])?;
        let room = Bytes((self.settings.samples * PHOTO_BYTES / 2) as u64 + STAGING.0);
        let mut outcome = Outcome { rows: Vec::new(), promises: Vec::new() };
        for (ratio, name) in [(3.0, "decoding 3 x"), (1.0, "equal"), (1.0 / 3.0, "reading 3 x")] {
            let side = |cache: &'static str| Side {
                rate: (ratio * bytes / decoding) as u64,
                cache,
                policy: "gap",
                room,
                epochs: 8,
                ..unlimited(&format!("{name}, {cache}"))
            };
            let sides = ["stored", "prepared", "auto"].map(side);
            let turns = self.turns(&sides)?;
            let later = |turn: &Turn| turn.seconds[2..].iter().sum::<f64>() / 6.0;
            let epochs: Vec<f64> =
                turns.iter().map(|turns| median(turns, later)).collect::<anyhow::Result<_>>()?;
            for (side, epoch) in sides.iter().zip(&epochs) {
                outcome.rows.push(row(&side.name, [("a later epoch", *epoch)]));
            }
            let spreads = turns.iter().map(|turns| spread(turns, later));
            outcome.promises.push(Promise {
                what: format!("{name}, auto over the better form"),
                ratio: epochs[2] / epochs[0].min(epochs[1]),
                most: OVER_BETTER_FORM_MAX,
                fails: Some(OVER_BETTER_FORM_FAILS),
                spread: spreads
                    .collect::<anyhow::Result<Vec<_>>>()?
                    .into_iter()
                    .fold(0.0, f64::max),
            });
        }
        Ok(outcome)
    }

    /// Images sorted by cost: a third is read slowly, the next decoded slowly, the last read slowly again.
    fn balance(&self) -> anyhow::Result<Outcome> {
        self.make("sorted")?;
        let side = |name: &str, threads, assignment| Side {
            rate: 40_000_000,
            step_s: 0.02,
            threads,
            assignment,
            steps: "[{ resize: [224, 224] }, { random_horizontal_flip: 0.5 }]",
            epochs: 1,
            ..unlimited(name)
        };
        let sides = [
            side("ours", 2, "shared"),
            side("Algorithm 1", 2, "lobster"),
            side("1 thread, fixed", 1, "shared"),
            side("4 threads, fixed", 4, "shared"),
        ];
        let turns = self.turns(&sides)?;
        let phases = ["reading", "decoding", "reading again"];
        let part = |at: usize| {
            move |turn: &Turn| {
                let waits = &turn.waits[0];
                let third = waits.len() / 3;
                let computing = 0.02 * third as f64;
                waits[at * third..(at + 1) * third].iter().sum::<f64>() + computing
            }
        };
        let mut outcome = Outcome { rows: Vec::new(), promises: Vec::new() };
        let mut times = Vec::new();
        for (side, turns) in sides.iter().zip(&turns) {
            let seconds: Vec<f64> =
                (0..3).map(|at| median(turns, part(at))).collect::<anyhow::Result<_>>()?;
            outcome.rows.push(row(&side.name, phases.into_iter().zip(seconds.iter().copied())));
            times.push(seconds);
        }
        for (at, phase) in phases.into_iter().enumerate() {
            let spreads = turns.iter().map(|turns| spread(turns, part(at)));
            outcome.promises.push(Promise {
                what: format!("{phase}, ours over the better of the fixed"),
                ratio: times[0][at] / times[2][at].min(times[3][at]),
                most: OVER_FIXED_MAX,
                fails: None,
                spread: spreads
                    .collect::<anyhow::Result<Vec<_>>>()?
                    .into_iter()
                    .fold(0.0, f64::max),
            });
        }
        Ok(outcome)
    }

    /// Returns the bytes of the images.
    fn make(&self, kind: &str) -> anyhow::Result<f64> {
        let data = self.folder.join("data");
        let mut command = Command::new(&self.python);
        command.arg(self.folder.join("transforms.py")).arg(kind).arg(&data);
        self.finish(command.arg(self.settings.samples.to_string()))?;
        let lengths = fs::read_dir(&data)?.map(|entry| Ok(entry?.metadata()?.len()));
        Ok(lengths.collect::<anyhow::Result<Vec<u64>>>()?.iter().sum::<u64>() as f64)
    }

    /// The turns of the sides alternate.
    fn turns(&self, sides: &[Side]) -> anyhow::Result<Vec<Vec<Turn>>> {
        let mut turns: Vec<Vec<Turn>> = sides.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.settings.rounds {
            for (side, turns) in sides.iter().zip(&mut turns) {
                step(&format!("{}: turn {round} of {}", side.name, self.settings.rounds));
                turns.push(self.turn(side).with_context(|| side.name.clone())?);
            }
        }
        Ok(turns)
    }

    fn turn(&self, side: &Side) -> anyhow::Result<Turn> {
        let (job, result) = (self.folder.join("job.yaml"), self.folder.join("turn.json"));
        let run_dir = self.folder.join("run");
        fs::write(&job, self.job(side))?;
        let mut command = Command::new(self.tierfeed);
        command.arg("run").arg(&job).arg("--run-dir").arg(&run_dir).arg("--");
        command.arg(&self.python).arg(self.folder.join("transforms.py")).arg("train");
        command.arg(&result).arg(side.step_s.to_string());
        self.finish(command.arg(side.passes.to_string()))?;
        let turn = read_json(&result)?;
        fs::remove_dir_all(&run_dir)?;
        Ok(turn)
    }

    fn job(&self, side: &Side) -> String {
        let Side { rate, threads, assignment, cache, steps, policy, batch, room, epochs, .. } =
            side;
        let emulate = match rate {
            0 => String::new(),
            rate => format!(", emulate: {{ latency: 1 ms, bandwidth: {rate} B/s }}"),
        };
        format!(
            "name: bench\n\
             dataset: {{ source: \"file://{}\", format: files, glob: \"*.*\"{emulate} }}\n\
             order: {{ shuffle: sequential, epochs: {epochs} }}\n\
             batch_size: {batch}\n\
             world: {{ nodes: 1, ranks_per_node: 1 }}\n\
             threads: {threads}\n\
             policy: {policy}\n\
             chunk: 1 MiB\n\
             transform: {{ steps: {steps}, cache: {cache} }}\n\
             prefetch: {{ assignment: {assignment}, look_ahead: off }}\n\
             tiers: {{ main-memory: {{ size: {} B }} }}\n",
            self.folder.join("data").display(),
            room.0
        )
    }

    fn finish(&self, command: &mut Command) -> anyhow::Result<()> {
        said(command.env("TIERFEED_EXE", self.tierfeed)).map(drop)
    }
}

fn row<'a>(name: &str, seconds: impl IntoIterator<Item = (&'a str, f64)>) -> Row {
    let seconds = seconds.into_iter().map(|(what, seconds)| (what.to_owned(), seconds));
    Row { name: name.to_owned(), seconds: seconds.collect() }
}

fn median(turns: &[Turn], figure: impl Fn(&Turn) -> f64) -> anyhow::Result<f64> {
    let figures: Vec<f64> = turns.iter().map(figure).collect();
    percentile(&figures, 50).context("no turn")
}

/// The range of the figures, as a share of their median.
fn spread(turns: &[Turn], figure: impl Fn(&Turn) -> f64) -> anyhow::Result<f64> {
    let figures: Vec<f64> = turns.iter().map(&figure).collect();
    let most = figures.iter().copied().fold(0.0, f64::max);
    let least = figures.iter().copied().fold(f64::MAX, f64::min);
    Ok((most - least) / median(turns, figure)?)
}
