//! `tierfeed-bench phases`: trainings that compute and then pause, beside the simulator's prediction and the
//! least time that they can take.
//!
//! While a training pauses, the cold store can be read ahead into room of the tiers. The first training has
//! tiers for more than half of its dataset, the second for a fiftieth: there what is retained is worth
//! little, and most room serves look-ahead. Both declare their pauses, so that the first schedule has room for
//! what comes after them.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    programs::Programs,
};

use crate::runs::{ReaderRun, predict};

const SMALL_FILES: u64 = 4_000;

/// Parts into which the room of the tiers is divided to find the best division.
const DIVISIONS: u32 = 1_000;

/// A machine that does other work beside the bench adds this much to a ratio.
const NOISE: f64 = 0.05;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// An image folder of some 50 MB [default: files that are made].
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Copy)]
enum Files {
    /// Photographs: 500 files of 20 to 200 KB, or those of the user.
    Photographs,
    /// 4,000 files of 4 to 20 KB: many in a cycle, as the bound assumes.
    Small,
}

#[derive(Debug, Clone, Copy)]
struct Training {
    name: &'static str,
    files: Files,
    epochs: u32,
    batch: u32,
    step_ms: u32,
    /// Steps between two pauses.
    every: u32,
    pause_ms: u32,
    cold_mb_per_s: f64,
    main_memory_kib: u32,
    cxl_kib: u32,
    /// The promise for the first epoch, and that for the later ones, as multiples of the least time.
    first_max: f64,
    later_max: f64,
    /// The largest difference between cold bytes and the prediction. A run observes at other times than the
    /// simulator, and rooms for look-ahead that differ by less than a chunk are one: a chunk is 2 % of what a
    /// later epoch of the first training reads cold, and 0.1 % of the second.
    drift_max: f64,
}

const TRAININGS: [Training; 2] = [
    Training {
        name: "tiers-for-half",
        files: Files::Photographs,
        epochs: 4,
        batch: 4,
        step_ms: 10,
        every: 25,
        pause_ms: 300,
        cold_mb_per_s: 22.0,
        main_memory_kib: 8 << 10,
        cxl_kib: 24 << 10,
        first_max: 1.12,
        later_max: 1.02,
        drift_max: 0.04,
    },
    Training {
        name: "tiers-for-a-fiftieth",
        files: Files::Small,
        epochs: 3,
        batch: 4,
        step_ms: 10,
        every: 25,
        pause_ms: 250,
        cold_mb_per_s: 2.5,
        main_memory_kib: 320,
        cxl_kib: 640,
        first_max: 1.03,
        later_max: 1.03,
        drift_max: 0.01,
    },
];

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) training: &'static str,
    pub(crate) epoch: u32,
    pub(crate) demand_bytes: u64,
    pub(crate) time_s: f64,
    pub(crate) predicted_s: f64,
    /// The least time: of computing and pausing, and of reading what no division of the room hides. In the
    /// first epoch computing and pausing alone.
    pub(crate) bound_s: f64,
    pub(crate) over_bound: f64,
    pub(crate) promised: f64,
    pub(crate) cold_read_bytes: u64,
    pub(crate) predicted_bytes: u64,
    /// The largest difference between the two that is allowed.
    pub(crate) drift_max: f64,
    /// Room of the tiers that was kept free for look-ahead.
    pub(crate) look_ahead_room_bytes: u64,
}

impl Judged for Outcome {
    /// The time of each epoch beside its bound, the cold bytes beside their prediction.
    fn judged(&self) -> Judgement {
        let mut judged = Judgement::default();
        for row in &self.rows {
            let place = format!("{}, epoch {}", row.training, row.epoch);
            let what = format!("{place}: time over the bound");
            judged = judged.at_most(&what, row.over_bound, row.promised + NOISE);
            let [cold, predicted] =
                [row.cold_read_bytes, row.predicted_bytes].map(|bytes| bytes as f64);
            let what = format!("{place}: off the prediction by");
            judged = judged.at_most(&what, (cold - predicted).abs() / predicted, row.drift_max);
        }
        judged
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let programs = Programs::find()?;
        Ok(self.folder.with_files(|folder| measure(&self, &programs, folder))?)
    }
}

/// Makes the files, runs and predicts each training, removes the files.
fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let photographs = if let Some(data) = &settings.data {
        fs::canonicalize(data).with_context(|| data.display().to_string())?
    } else {
        let data = folder.join("photographs");
        files::write_image_folder(&data, 500)?;
        data
    };
    let small = folder.join("small");
    for number in 0..SMALL_FILES {
        let file = small.join(format!("class{}", number % 10)).join(format!("{number:04}.jpg"));
        files::write_noise(&file, number, 4_000 + (number * 7_919) % 16_000)?;
    }
    let mut outcome = Outcome { rows: Vec::new() };
    for training in &TRAININGS {
        let data = match training.files {
            Files::Photographs => &photographs,
            Files::Small => &small,
        };
        training.measure(programs, folder, data, &mut outcome)?;
    }
    Ok(outcome)
}

impl Training {
    fn measure(
        &self,
        programs: &Programs,
        folder: &Path,
        data: &Path,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let job = folder.join(format!("{}.yaml", self.name));
        fs::write(&job, self.job_text(data))?;
        let predicted = predict(programs, &job)?;
        let [step, every, pause] = [
            format!("{} ms", self.step_ms),
            self.every.to_string(),
            format!("{} ms", self.pause_ms),
        ];
        let options = &["--step", &*step, "--pause-every", &every, "--pause", &pause];
        let run = ReaderRun { programs, job: &job, run_dir: folder.join(self.name), options };
        let (report, times) = run.finish(Command::new(&programs.tierfeed))?;
        ensure!(times.len() == predicted.len(), "{} epochs were predicted", predicted.len());
        let mut steps = 0;
        for (epoch, ((ran, predicted), time_s)) in
            (0..).zip(report.epochs.iter().zip(&predicted).zip(times))
        {
            let pauses = (steps + predicted.steps) / self.every - steps / self.every;
            steps += predicted.steps;
            let busy_s = f64::from(predicted.steps * self.step_ms) / 1000.0;
            let idle_s = f64::from(pauses * self.pause_ms) / 1000.0;
            let waits_s = match epoch {
                0 => 0.0,
                _ => self.waits_s(predicted.demand_bytes as f64, busy_s, idle_s, pauses),
            };
            let promised = if epoch == 0 { self.first_max } else { self.later_max };
            let bound_s = busy_s + idle_s + waits_s;
            outcome.rows.push(Row {
                training: self.name,
                epoch,
                demand_bytes: predicted.demand_bytes,
                time_s,
                predicted_s: predicted.duration_s,
                bound_s,
                over_bound: time_s / bound_s,
                promised,
                cold_read_bytes: ran.cold_read_bytes,
                predicted_bytes: predicted.cold_read_bytes,
                drift_max: self.drift_max,
                look_ahead_room_bytes: ran.look_ahead_room_bytes.unwrap_or(0),
            });
        }
        Ok(())
    }

    /// The least time that an epoch has to wait, over all divisions of the room of the tiers between what is
    /// retained and what is read ahead: a fluid that is consumed evenly in busy phases.
    fn waits_s(&self, dataset: f64, busy_s: f64, idle_s: f64, pauses: u32) -> f64 {
        let rate = self.cold_mb_per_s * 1e6;
        let room = f64::from(self.main_memory_kib + self.cxl_kib) * 1024.0;
        let waits = |ahead: f64| {
            let cold = (dataset - (room - ahead)).max(0.0);
            let in_idle = (ahead * f64::from(pauses)).min(rate * idle_s);
            (cold - rate * busy_s - in_idle).max(0.0) / rate
        };
        let divisions = (0..=DIVISIONS).map(|part| room * f64::from(part) / f64::from(DIVISIONS));
        divisions.map(waits).fold(f64::INFINITY, f64::min)
    }

    fn job_text(&self, data: &Path) -> String {
        let Self { name, epochs, batch, step_ms, every, pause_ms, .. } = *self;
        let Self { cold_mb_per_s, main_memory_kib, cxl_kib, .. } = *self;
        format!(
            "name: bench-phases-{name}\n\
             dataset:\n  source: {data}\n  format: image-folder\n\
             \x20 emulate: {{ latency: 1 ms, bandwidth: {cold_mb_per_s} MB/s }}\n\
             order: {{ shuffle: torch-distributed, seed: 42, epochs: {epochs} }}\n\
             batch_size: {batch}\n\
             step_time: {step_ms} ms\n\
             pause: {{ every: {every} steps, time: {pause_ms} ms }}\n\
             prefetch: {{ look_ahead: auto }}\n\
             tiers:\n\
             \x20 main-memory: {{ size: {main_memory_kib} KiB }}\n\
             \x20 cxl-memory: {{ size: {cxl_kib} KiB, emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }} }}\n",
            data = data.display(),
        )
    }
}
