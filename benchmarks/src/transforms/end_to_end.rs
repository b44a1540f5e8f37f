//! An epoch beside its bound: the longest of the parts that a training cannot do without.

use std::{fs, path::PathBuf, process::Command, thread};

use anyhow::Context as _;
use tierfeed_harness::{output::step, statistics::percentile};

use super::{OVER_BOUND_MAX, Outcome, Promise, STAGING, Side, Turn, Turns, row, unlimited};
use crate::{
    decode::{self, Work},
    runs::read_json,
};

/// Epochs of a turn; the first and the last are not measured.
const EPOCHS: usize = 8;

/// Samples of a batch, as trainings on images have them: what each batch costs beside its images counts less.
const BATCH: usize = 32;

/// Steps by which computing alone is measured.
const STEPS_ALONE: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Computes {
    /// A GPU, so all cores decode.
    Gpu,
    /// A small network on one core.
    Cnn,
}

struct Training {
    side: Side,
    computes: Computes,
    epochs: Vec<f64>,
    /// Times of an epoch without an agent.
    computing: Vec<f64>,
}

/// The parts of an epoch that were measured or declared by themselves, in seconds.
struct Parts {
    computing: f64,
    decoding: f64,
    cold: f64,
    /// All work of the cores.
    cores: f64,
}

impl Parts {
    fn bound(&self) -> f64 {
        self.computing.max(self.cores).max(self.cold)
    }
}

impl Turns<'_> {
    /// Three trainings with a GPU, and two with a network on a core, in each of which something else is short.
    pub(super) fn end_to_end(&self) -> anyhow::Result<Outcome> {
        let bytes = self.make("photos")?;
        let batches = self.settings.samples.div_ceil(BATCH);
        let cores = thread::available_parallelism()?.get();
        let images = fs::read_dir(self.folder.join("data"))?.map(|entry| Ok(entry?.path()));
        let images = images.collect::<anyhow::Result<Vec<PathBuf>>>()?;
        let decode =
            || Ok::<_, anyhow::Error>(decode::ours("", &images, Work::Crop, cores)?.seconds);
        step("decoding alone");
        let mut decoding = (0..3).map(|_| decode()).collect::<anyhow::Result<Vec<f64>>>()?;
        let least = decoding.iter().copied().fold(f64::MAX, f64::min);
        let mut trainings = self.trainings(least / batches as f64, bytes, cores)?;
        for round in 1..=self.settings.rounds {
            decoding.push(decode()?);
            for training in &mut trainings {
                let name = &training.side.name;
                step(&format!("{name}: turn {round} of {}", self.settings.rounds));
                training.computing.push(self.computing(&training.side)? * batches as f64);
                let turn = self.turn(&training.side).with_context(|| name.clone())?;
                training.epochs.push(middle(&turn)?);
            }
        }
        let mut outcome = Outcome { rows: Vec::new(), promises: Vec::new() };
        for training in &trainings {
            training.judge(&decoding, bytes, cores, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// The trainings, given the time to decode a batch on all cores.
    fn trainings(&self, decoding: f64, bytes: f64, cores: usize) -> anyhow::Result<Vec<Training>> {
        let batch_bytes = bytes / self.settings.samples.div_ceil(BATCH) as f64;
        let one_pass = self.computing(&Side { passes: 1, ..unlimited("a pass") })?;
        let passes = (decoding / one_pass).round().max(1.0) as u32;
        let both = decoding + f64::from(passes) * one_pass / cores as f64;
        let store = |seconds: f64| (batch_bytes / seconds) as u64;
        let gpu = |name: &str, share: f64, rate| {
            (Computes::Gpu, Side { step_s: share * decoding, rate, ..unlimited(name) })
        };
        let cnn = |name: &str, rate| (Computes::Cnn, Side { rate, passes, ..unlimited(name) });
        let sides = [
            gpu("GPU, computing is short", 1.5, 0),
            gpu("GPU, decoding is short", 0.5, store(0.7 * decoding)),
            gpu("GPU, the store is short", 0.5, store(1.5 * decoding)),
            cnn("CNN, the cores are short", 0),
            cnn("CNN, the store is short", store(1.5 * both)),
        ];
        let threads = u32::try_from(cores)?;
        let trainings = sides.into_iter().map(|(computes, side)| Training {
            side: Side { threads, epochs: EPOCHS, batch: BATCH, room: STAGING, ..side },
            computes,
            epochs: Vec::new(),
            computing: Vec::new(),
        });
        Ok(trainings.collect())
    }

    /// The time of a step of a side alone.
    fn computing(&self, side: &Side) -> anyhow::Result<f64> {
        let result = self.folder.join("alone.json");
        let mut command = Command::new(&self.python);
        command.arg(self.folder.join("transforms.py")).arg("compute").arg(&result);
        command.arg(side.step_s.to_string()).arg(side.passes.to_string());
        self.finish(command.arg(BATCH.to_string()).arg(STEPS_ALONE.to_string()))?;
        let Turn { seconds: alone, .. } = read_json(&result)?;
        alone.first().map(|all| all / STEPS_ALONE as f64).context("no step")
    }
}

impl Training {
    fn judge(
        &self,
        decoding: &[f64],
        bytes: f64,
        cores: usize,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let median = |figures: &[f64]| percentile(figures, 50).context("no turn");
        let (computing, decoded) = (median(&self.computing)?, median(decoding)?);
        let beside = if self.computes == Computes::Cnn { computing / cores as f64 } else { 0.0 };
        let cold = if self.side.rate == 0 { 0.0 } else { bytes / self.side.rate as f64 };
        let parts = Parts { computing, decoding: decoded, cold, cores: decoded + beside };
        let epoch = median(&self.epochs)?;
        let Parts { computing, decoding: decoded, cold, cores } = parts;
        let seconds = [
            ("epoch", epoch),
            ("computing", computing),
            ("decoding", decoded),
            ("cores", cores),
            ("cold", cold),
        ];
        outcome.rows.push(row(&self.side.name, seconds));
        let apart = |figures: &[f64]| Ok::<_, anyhow::Error>(range(figures) / median(figures)?);
        let spread = apart(&self.epochs)?.max(apart(decoding)?).max(apart(&self.computing)?);
        outcome.promises.push(Promise {
            what: format!("{}, an epoch over its bound", self.side.name),
            ratio: epoch / parts.bound(),
            most: OVER_BOUND_MAX,
            fails: None,
            spread,
        });
        Ok(())
    }
}

/// The mean epoch of those that are measured.
fn middle(turn: &Turn) -> anyhow::Result<f64> {
    let measured = turn.seconds.get(1..EPOCHS - 1).context("too few epochs")?;
    Ok(measured.iter().sum::<f64>() / measured.len() as f64)
}

fn range(figures: &[f64]) -> f64 {
    let most = figures.iter().copied().fold(0.0, f64::max);
    most - figures.iter().copied().fold(f64::MAX, f64::min)
}
