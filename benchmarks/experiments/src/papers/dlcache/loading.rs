//! Figures 3 to 6: how long batches are waited for, by the time of a step, with few workers and with as many as cores.
//!
//! As in the paper every sample is read once, from a disk whose page cache is empty, and throughput is that of the
//! time in which nothing is computed. The steps are parts of what `DataLoader` needs for a batch, which is measured
//! first; one epoch has them one after the other.

use std::{
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context as _;
use serde_json::{Value as Json, json};
use tierfeed_core::units::Bytes;

use tierfeed_harness::output::step;

use super::DISK;
use crate::{
    claim::times_as_much,
    figure::{Along, Chart, Figure, Headline, Paper, Series, Value},
    stage::{STAGING, Side, Stage, bytes_below, job, value},
    training::{Trained, Training},
};

const BATCH: u32 = 8;

/// Steps, as shares of the time that `DataLoader` needs for a batch; one phase of an epoch for each.
const STEPS: [f64; 3] = [0.3, 0.6, 0.9];

/// The batches of a phase that are not counted: they may have been prepared in the phase before.
const SKIPPED: usize = 6;

const LOADERS: [&str; 2] = ["DataLoader", "tierfeed"];

pub(super) struct Experiment {
    pub(super) name: &'static str,
    pub(super) is_quick: bool,
    number: &'static str,
    samples: Samples,
    workers: Workers,
    /// Throughput of `DLCache` over that of `DataLoader` at the step with the largest gain.
    published_most: f64,
    /// The same on average of all steps, with the batch size of the smallest gain and of the largest.
    published_means: [f64; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Samples {
    Photographs,
    Recordings,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Workers {
    /// Four of eight cores, which are not tuned.
    Half,
    /// Eight of eight cores, which are tuned.
    Tuned,
}

/// # Source
///
/// `DLCache`, section IV: "up to 147.49 % and 49.62 %" for `ImageNet` with 4 and 8 workers, "156.67 % and 39.70 %" for
/// `LibriSpeech`, where data are waited for; on average "10.68 % to 50.27 %" and "-0.02 % to 14.81 %", "14.26 % to
/// 57.48 %" and "0.85 % to 10.07 %".
pub(super) const EXPERIMENTS: [Experiment; 4] = [
    Experiment {
        name: "dlcache-3",
        is_quick: true,
        number: "Figure 3",
        samples: Samples::Photographs,
        workers: Workers::Half,
        published_most: 2.4749,
        published_means: [1.1068, 1.5027],
    },
    Experiment {
        name: "dlcache-4",
        is_quick: false,
        number: "Figure 4",
        samples: Samples::Recordings,
        workers: Workers::Half,
        published_most: 2.5667,
        published_means: [1.1426, 1.5748],
    },
    Experiment {
        name: "dlcache-5",
        is_quick: false,
        number: "Figure 5",
        samples: Samples::Photographs,
        workers: Workers::Tuned,
        published_most: 1.4962,
        published_means: [0.9998, 1.1481],
    },
    Experiment {
        name: "dlcache-6",
        is_quick: true,
        number: "Figure 6",
        samples: Samples::Recordings,
        workers: Workers::Tuned,
        published_most: 1.397,
        published_means: [1.0085, 1.1007],
    },
];

pub(super) fn figure(stage: &mut Stage<'_>, experiment: &Experiment) -> anyhow::Result<Figure> {
    let data = experiment.samples.made(stage)?;
    let (theirs, ours) = (experiment.data_loader(&data), experiment.tierfeed(&data)?);
    step(&format!("{}: a batch of DataLoader", experiment.number));
    let batch_s = batch_s(&stage.train(&theirs)?).context("an epoch has few batches")?;
    let steps_s = STEPS.map(|part| part * batch_s);
    let steps = stage.settings.photographs as usize / BATCH as usize / STEPS.len();
    let phases = json!({ "steps": steps, "steps_s": steps_s });
    let sides = [theirs, ours].map(|side| in_phases(side, &phases));
    let turns = stage.turns(&sides)?;
    let ready_s = shortest_wait(&turns[0]).context("DataLoader waited for no batch")?;
    let waits: Vec<Waits> = turns.iter().map(|turns| Waits::of(turns, ready_s)).collect();
    let workers = experiment.workers.count();
    let tuned =
        if experiment.workers == Workers::Tuned { ", and tierfeed finds their number" } else { "" };
    Ok(Figure {
        setting: format!(
            "{}; all read once from a disk of {DISK} in batches of {BATCH}; as many workers or threads as {workers} of \
             {} cores, {} of 8 in the paper{}. DataLoader needs {:.0} ms for a batch; steps are 30, 60 and 90 % of \
             that, those of the paper 0.5 to 3 s. No batch counts as waited for shorter than {:.1} ms, which is the \
             shortest that DataLoader takes to hand one over.",
            experiment.samples.described(stage, &data)?,
            cores(),
            experiment.workers.published(),
            tuned,
            batch_s * 1e3,
            ready_s * 1e3,
        ),
        headlines: headlines(experiment, &waits),
        charts: vec![by_step(&waits), total(&turns)],
        emulated: vec![
            stage.emulated.clone(),
            "the GPU is a sleep, as in the paper; several jobs that share a cache are not repeated".to_owned(),
            "both decode by the same code, DataLoader in worker processes and tierfeed in threads of the trainer"
                .to_owned(),
        ],
        ..Figure::named(Paper::DlCache, experiment.name, experiment.number, experiment.title())
    })
}

impl Experiment {
    fn title(&self) -> &'static str {
        match (self.samples, self.workers) {
            (Samples::Photographs, Workers::Half) => "Images, a number of workers that is given",
            (Samples::Recordings, Workers::Half) => "Speech, a number of workers that is given",
            (Samples::Photographs, Workers::Tuned) => "Images, a number of workers that is tuned",
            (Samples::Recordings, Workers::Tuned) => "Speech, a number of workers that is tuned",
        }
    }

    fn data_loader<'a>(&self, data: &'a Path) -> Side<'a> {
        let loader = match self.samples {
            Samples::Photographs => "dataloader",
            Samples::Recordings => "dataloader-speech",
        };
        self.side(LOADERS[0], loader, data, json!({}))
    }

    fn tierfeed<'a>(&self, data: &'a Path) -> anyhow::Result<Side<'a>> {
        let loader = match self.samples {
            Samples::Photographs => "tierfeed-torchvision",
            Samples::Recordings => "tierfeed-speech",
        };
        let threads = match self.workers {
            Workers::Half => json!(self.workers.count()),
            Workers::Tuned => json!("auto"),
        };
        // Nothing is read twice: the room is for what is fetched ahead.
        let room = Bytes(bytes_below(data)? / 4 + STAGING.0);
        Ok(self.side(LOADERS[1], loader, data, job(room, &[("decode_threads", threads)])))
    }

    fn side<'a>(&self, name: &str, loader: &'static str, data: &'a Path, job: Json) -> Side<'a> {
        Side {
            name: format!("{}: {name}", self.number),
            room: None,
            training: Training {
                loader,
                data,
                batch_size: BATCH,
                epochs: 1,
                step_s: 0.0,
                workers: self.workers.count(),
                decode: true,
                job,
            },
        }
    }
}

impl Samples {
    /// Recordings are made by the first figure that needs them.
    fn made(self, stage: &Stage<'_>) -> anyhow::Result<PathBuf> {
        let data = match self {
            Self::Photographs => stage.photographs(),
            Self::Recordings => stage.disk.path().join("recordings"),
        };
        if !data.is_dir() {
            stage.trainer.write_recordings(&data, stage.settings.photographs)?;
        }
        Ok(data)
    }

    fn described(self, stage: &Stage<'_>, data: &Path) -> anyhow::Result<String> {
        let (count, bytes) = (stage.settings.photographs, Bytes(bytes_below(data)?));
        Ok(match self {
            Self::Photographs => {
                format!("{count} photographs ({bytes}), which are decoded and cropped")
            }
            Self::Recordings => {
                format!("{count} recordings of speech ({bytes}), which become spectrograms")
            }
        })
    }
}

impl Workers {
    fn count(self) -> u32 {
        match self {
            Self::Half => (cores() / 2).max(1),
            Self::Tuned => cores(),
        }
    }

    const fn published(self) -> u32 {
        match self {
            Self::Half => 4,
            Self::Tuned => 8,
        }
    }
}

fn cores() -> u32 {
    thread::available_parallelism().ok().and_then(|it| u32::try_from(it.get()).ok()).unwrap_or(1)
}

fn in_phases<'a>(side: Side<'a>, phases: &Json) -> Side<'a> {
    let mut job = side.training.job.clone();
    job["phases"] = phases.clone();
    Side { training: Training { job, ..side.training }, ..side }
}

/// Seconds that a batch takes where nothing is computed.
fn batch_s(trained: &Trained) -> Option<f64> {
    mean(trained.waits.first()?.get(SKIPPED..)?)
}

/// The time to hand over a batch that is ready: no ratio of waits uses a shorter one.
fn shortest_wait(turns: &[Trained]) -> Option<f64> {
    turns.iter().flat_map(|it| &it.waits).flatten().copied().min_by(f64::total_cmp)
}

/// Seconds that training waits for a batch: with each step, and with all.
#[derive(Debug, PartialEq)]
struct Waits {
    by_step: Vec<Option<Value>>,
    of_all: Option<Value>,
}

impl Waits {
    /// No batch of these turns is handed over in less than `ready_s`.
    fn of(turns: &[Trained], ready_s: f64) -> Self {
        let of_turns: Option<Vec<_>> = turns.iter().map(|it| by_phase(it, ready_s)).collect();
        let of_turns = of_turns.unwrap_or_default();
        let of_step =
            |step: usize| Value::of(&of_turns.iter().map(|it| it[step]).collect::<Vec<_>>());
        let means: Option<Vec<_>> = of_turns.iter().map(|it| mean(it)).collect();
        Self {
            by_step: (0..STEPS.len()).map(of_step).collect(),
            of_all: means.and_then(|means| Value::of(&means)),
        }
    }
}

/// The mean wait in each phase, of as many batches in each.
fn by_phase(trained: &Trained, ready_s: f64) -> Option<Vec<f64>> {
    let waits: Vec<f64> = trained.waits.first()?.iter().map(|wait| wait.max(ready_s)).collect();
    let steps = waits.len() / STEPS.len();
    let of_phase = |phase| mean(waits.get(phase * steps + SKIPPED..(phase + 1) * steps)?);
    (0..STEPS.len()).map(of_phase).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a count of batches")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn headlines(experiment: &Experiment, waits: &[Waits]) -> Vec<Headline> {
    let [theirs, ours] = [&waits[0], &waits[1]];
    let [least, most] = experiment.published_means;
    // Of times, the other way round.
    let on_average = times_as_much(
        "throughput without the computing, of all steps, over DataLoader",
        most,
        theirs.of_all,
        ours.of_all,
    );
    let on_average = on_average.map(|it| Headline {
        published: format!("{least:.2} to {most:.2} x by batch size"),
        ..it.because("with the longer steps neither loader is waited for, so the mean is nearly that of the shortest")
    });
    let with_shortest = times_as_much(
        "throughput without the computing, with the shortest step, over DataLoader",
        experiment.published_most,
        theirs.by_step[0],
        ours.by_step[0],
    );
    let with_shortest = with_shortest.map(|it| {
        it.because("steps of the paper are chosen where it gains most; here the shortest was chosen before the runs")
    });
    on_average.into_iter().chain(with_shortest).collect()
}

fn by_step(waits: &[Waits]) -> Chart {
    let in_ms = |value: &Option<Value>| {
        value.map(|it| Value {
            median: it.median * 1e3,
            least: it.least * 1e3,
            most: it.most * 1e3,
        })
    };
    let series = LOADERS
        .into_iter()
        .zip(waits)
        .map(|(name, waits)| Series::measured(name, waits.by_step.iter().map(in_ms).collect()));
    Chart::new(
        "step, as a part of what DataLoader needs for a batch",
        "a batch is waited for, ms",
        Along::Positions(STEPS.to_vec()),
        series.collect(),
    )
    .titled("Waiting")
}

fn total(turns: &[Vec<Trained>]) -> Chart {
    let seconds = Series::measured(
        "all steps",
        turns.iter().map(|turns| value(turns, Trained::total_s)).collect(),
    );
    Chart::new(
        "",
        "time of all steps with their computing, s",
        Along::groups(LOADERS),
        vec![seconds],
    )
    .titled("Time")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trained(waits: &[f64]) -> Trained {
        let trained = json!({
            "seconds": [1], "images": [80], "first_batch_s": 1, "cpu_s": [1], "slow": [], "job_s": 2,
            "waits": [waits],
        });
        serde_json::from_value(trained).unwrap()
    }

    fn in_phases(waits: [f64; 3]) -> Trained {
        let phase = |wait: f64| [vec![9.0; SKIPPED], vec![wait; 4]].concat();
        trained(&waits.map(phase).concat())
    }

    #[test]
    fn the_first_batches_of_each_phase_are_not_counted() {
        let waits = Waits::of(&[in_phases([0.03, 0.02, 0.01])], 0.0);
        let by_step = waits.by_step.iter().map(|it| format!("{:.2}", it.unwrap().median));
        assert_eq!(by_step.collect::<Vec<_>>(), ["0.03", "0.02", "0.01"]);
        assert_eq!(waits.of_all.map(|it| format!("{:.2}", it.median)), Some("0.02".to_owned()));
    }

    #[test]
    fn an_epoch_that_is_too_short_has_no_waits() {
        let waits = Waits::of(&[trained(&[1.0; 3])], 0.0);
        assert_eq!(waits, Waits { by_step: vec![None; 3], of_all: None });
    }

    #[test]
    fn a_loader_that_waits_for_nothing_gains_no_more_than_a_ready_batch_of_the_other_allows() {
        let theirs = [in_phases([0.03, 0.02, 0.01])];
        let ready_s = shortest_wait(&theirs).unwrap();
        let waits = [Waits::of(&theirs, ready_s), Waits::of(&[in_phases([0.0; 3])], ready_s)];
        let here = headlines(&EXPERIMENTS[0], &waits).into_iter().map(|it| it.measured.unwrap());
        let here: Vec<_> = here.map(|it| format!("{:.1}", it.median)).collect();
        assert_eq!(here, ["2.0", "3.0"]);
    }
}
