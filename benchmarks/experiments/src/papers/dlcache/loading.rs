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

use super::DISK;
use crate::{
    claim::{no_slower, times_as_much},
    figure::{Along, Chart, Figure, Headline, Paper, Series, Source, Value},
    stage::{STAGING, Side, Stage, bytes_below, job, value},
    training::{Trained, Training},
};

/// Samples of a batch.
const BATCH: u32 = 8;

/// Steps, as parts of what `DataLoader` needs for a batch; one phase of an epoch for each.
const STEPS: [f64; 3] = [0.3, 0.6, 0.9];

/// The batches of a phase that are not counted: they may have been prepared in the phase before.
const SKIPPED: usize = 6;

/// What a figure of the paper is repeated with.
pub(super) struct Experiment {
    pub(super) name: &'static str,
    /// Whether it is part of a quick run.
    pub(super) is_quick: bool,
    number: &'static str,
    samples: Samples,
    workers: Workers,
    /// Throughput of `DLCache` over that of `DataLoader`, at most.
    published: f64,
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
/// `LibriSpeech`, where data are waited for.
pub(super) const EXPERIMENTS: [Experiment; 4] = [
    Experiment {
        name: "dlcache-3",
        is_quick: true,
        number: "Figure 3",
        samples: Samples::Photographs,
        workers: Workers::Half,
        published: 2.4749,
    },
    Experiment {
        name: "dlcache-4",
        is_quick: false,
        number: "Figure 4",
        samples: Samples::Recordings,
        workers: Workers::Half,
        published: 2.5667,
    },
    Experiment {
        name: "dlcache-5",
        is_quick: false,
        number: "Figure 5",
        samples: Samples::Photographs,
        workers: Workers::Tuned,
        published: 1.4962,
    },
    Experiment {
        name: "dlcache-6",
        is_quick: true,
        number: "Figure 6",
        samples: Samples::Recordings,
        workers: Workers::Tuned,
        published: 1.397,
    },
];

pub(super) fn figure(
    stage: &mut Stage<'_>,
    experiment: &Experiment,
    step: &mut dyn FnMut(&str),
) -> anyhow::Result<Figure> {
    let data = experiment.samples.made(stage)?;
    let (theirs, ours) = (experiment.data_loader(&data), experiment.tierfeed(&data)?);
    step(&format!("{}: a batch of DataLoader", experiment.number));
    let batch_s = batch_s(&stage.train(&theirs)?).context("an epoch has few batches")?;
    let steps_s = STEPS.map(|part| part * batch_s);
    let steps = stage.settings.photographs as usize / BATCH as usize / STEPS.len();
    let phases = json!({ "steps": steps, "steps_s": steps_s });
    let sides = [theirs, ours].map(|side| in_phases(side, &phases));
    let turns = stage.turns(&sides, step)?;
    let waits: Vec<Vec<Option<Value>>> = turns.iter().map(|turns| waits(turns)).collect();
    let workers = experiment.workers.count();
    Ok(Figure {
        name: experiment.name.to_owned(),
        paper: Paper::DlCache,
        number: experiment.number.to_owned(),
        title: experiment.title().to_owned(),
        setting: format!(
            "{}; all read once from a disk of {DISK} in batches of {BATCH}; as many workers or threads as {workers} of {} cores, \
             {} of 8 in the paper{}. DataLoader needs {:.0} ms for a batch; steps are 30, 60 and 90 % of that, those \
             of the paper 0.5 to 3 s.",
            experiment.samples.described(stage, &data)?,
            cores(),
            experiment.workers.published(),
            if experiment.workers == Workers::Tuned {
                ", and tierfeed finds their number"
            } else {
                ""
            },
            batch_s * 1e3,
        ),
        headlines: headlines(experiment, &waits, &turns),
        charts: vec![chart(&waits)],
        predictions: Vec::new(),
        emulated: vec![
            stage.emulated.clone(),
            "the GPU is a sleep, as in the paper; several jobs that share a cache are not repeated"
                .to_owned(),
        ],
        command: format!("tierfeed-bench paper {}", experiment.name),
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
        self.side("DataLoader", loader, data, json!({}))
    }

    fn tierfeed<'a>(&self, data: &'a Path) -> anyhow::Result<Side<'a>> {
        let (loader, key) = match self.samples {
            Samples::Photographs => ("tierfeed", "threads"),
            Samples::Recordings => ("tierfeed-speech", "decode_threads"),
        };
        let threads = match self.workers {
            Workers::Half => json!(self.workers.count()),
            Workers::Tuned => json!("auto"),
        };
        // Nothing is read twice: the room is for what is fetched ahead.
        let room = Bytes(bytes_below(data)? / 4 + STAGING.0);
        Ok(self.side("tierfeed", loader, data, job(room, &[(key, threads)])))
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

/// Seconds that a batch is waited for, by phase.
fn waits(turns: &[Trained]) -> Vec<Option<Value>> {
    let of_turn = |trained: &Trained, phase: usize| {
        let waits = trained.waits.first()?;
        let steps = waits.len() / STEPS.len();
        mean(waits.get(phase * steps + SKIPPED..(phase + 1) * steps)?)
    };
    let of_phase = |phase| {
        let means: Option<Vec<f64>> = turns.iter().map(|turn| of_turn(turn, phase)).collect();
        Value::of(&means?)
    };
    (0..STEPS.len()).map(of_phase).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a count of batches")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn headlines(
    experiment: &Experiment,
    waits: &[Vec<Option<Value>>],
    turns: &[Vec<Trained>],
) -> Vec<Headline> {
    let (theirs, ours) = (&waits[0], &waits[1]);
    let gain = |step: usize| Some(theirs[step]?.median / ours[step]?.median);
    let most = (0..STEPS.len()).filter_map(|step| Some((step, gain(step)?)));
    let most = most.max_by(|(_, a), (_, b)| a.total_cmp(b)).map_or(0, |(step, _)| step);
    let what = "throughput without the computing, where it gains most, over DataLoader";
    // Of times, the other way round. Waits of about nothing have no ratio that could be a floor.
    let throughput = times_as_much(what, experiment.published, theirs[most], ours[most]);
    let throughput = throughput.map(|it| Headline { measured: None, ..it });
    let [their_time, our_time] = [0, 1].map(|side| value(&turns[side], Trained::total_s));
    let time = no_slower("time of all steps, against DataLoader", our_time, their_time);
    throughput.into_iter().chain(time).collect()
}

fn chart(waits: &[Vec<Option<Value>>]) -> Chart {
    let in_ms = |value: &Option<Value>| {
        value.map(|it| Value {
            median: it.median * 1e3,
            least: it.least * 1e3,
            most: it.most * 1e3,
        })
    };
    let series = ["DataLoader", "tierfeed"].into_iter().zip(waits).map(|(name, waits)| Series {
        name: name.to_owned(),
        source: Source::Measured,
        values: waits.iter().map(in_ms).collect(),
    });
    Chart {
        title: String::new(),
        x: "step, as a part of what DataLoader needs for a batch".to_owned(),
        y: "a batch is waited for, ms".to_owned(),
        along: Along::Positions(STEPS.to_vec()),
        series: series.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batches_of_each_phase_are_not_counted() {
        let phase = |wait: f64| [vec![9.0; SKIPPED], vec![wait; 4]].concat();
        let waits_s = vec![[phase(0.03), phase(0.02), phase(0.01)].concat()];
        let trained = json!({
            "seconds": [1], "images": [80], "first_batch_s": 1, "cpu_s": [1], "slow": [], "job_s": 2,
            "waits": waits_s,
        });
        let trained: Trained = serde_json::from_value(trained).unwrap();
        let by_phase = waits(&[trained]).into_iter().map(|it| format!("{:.2}", it.unwrap().median));
        assert_eq!(by_phase.collect::<Vec<_>>(), ["0.03", "0.02", "0.01"]);
    }

    #[test]
    fn an_epoch_that_is_too_short_has_no_waits() {
        let trained = r#"{ "seconds": [1], "images": [8], "first_batch_s": 1, "cpu_s": [1], "job_s": 2, "slow": [],
                           "waits": [[1, 1, 1]] }"#;
        let trained: Trained = serde_json::from_str(trained).unwrap();
        assert_eq!(waits(&[trained]), [None; 3]);
    }
}
