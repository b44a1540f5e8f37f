//! `tierfeed-bench loop`: for how long the loop of an agent pauses, with as many samples and ranks as a
//! large training has.
//!
//! A real agent plans, stages and hands over small records, of which half fit into its tier, to trainers
//! that compute nothing. The run begins in one epoch and ends in the next, so that the agent serves one
//! order while it permutes and plans the next. The figures are those of its report.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};
use tierfeed_core::units::Bytes;
use tierfeed_harness::{files, judgement::Judgement, programs::Programs};

/// The largest pause on any machine: a busy machine takes the loop off its processor for longer than the loop
/// itself pauses.
pub const PAUSE_MAX_S: f64 = 0.05;

/// The largest processor time of the loop for one event: the promise for a pause where processors are free.
pub const RAN_MAX_S: f64 = 0.005;

const RECORD: Bytes = Bytes(64);
const BATCH_SIZE: u32 = 256;
const CHUNK: Bytes = Bytes::mib(16);

/// The run reads the last 1 / `LEFT` of the first epoch.
const LEFT: u32 = 4;

#[derive(Debug, Clone)]
pub struct Settings {
    pub programs: Programs,
    pub folder: PathBuf,
    pub samples: u32,
    pub ranks: u32,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub samples: u32,
    pub ranks: u32,
    pub batches: u64,
    /// From the first connection of a trainer to the end of the last.
    pub wall_s: f64,
    pub pauses: Pauses,
    pub longest_max_s: f64,
    pub ran_max_allowed_s: f64,
}

/// `loop_pauses` of a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pauses {
    pub events: u64,
    pub p99_s: f64,
    pub longest_s: f64,
    pub longest_after: String,
    /// The most processor time for one event.
    pub ran_max_s: f64,
    pub ran_max_after: String,
    pub by_event: BTreeMap<String, OfEvent>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OfEvent {
    pub events: u64,
    pub longest_s: f64,
    /// The most processor time in one pause.
    pub ran_max_s: f64,
}

#[derive(Debug, Deserialize)]
struct Report {
    steps: u64,
    wall_s: f64,
    loop_pauses: Pauses,
}

/// # Errors
///
/// If the folder cannot be written or the run fails.
pub fn run(settings: &Settings) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let records = folder.join("records");
        fs::create_dir_all(&records)?;
        // A sparse file: the speed of its reads is not measured.
        let data = File::create(records.join("records.bin"))?;
        data.set_len(u64::from(settings.samples) * RECORD.0)?;
        fs::write(folder.join("job.yaml"), job_text(settings))?;
        let report = train(settings, folder)?;
        Ok(Outcome {
            samples: settings.samples,
            ranks: settings.ranks,
            batches: report.steps,
            wall_s: report.wall_s,
            pauses: report.loop_pauses,
            longest_max_s: PAUSE_MAX_S,
            ran_max_allowed_s: RAN_MAX_S,
        })
    })
}

fn train(settings: &Settings, folder: &Path) -> anyhow::Result<Report> {
    let Programs { tierfeed, .. } = &settings.programs;
    let times = folder.join("epochs.json");
    let options = ["--record".as_ref(), times.as_os_str()];
    let (run_dir, job) = (folder.join("run"), folder.join("job.yaml"));
    settings.programs.run_reader(Command::new(tierfeed), &run_dir, &job, &options)
}

fn job_text(settings: &Settings) -> String {
    let Settings { samples, ranks, .. } = settings;
    let half = u64::from(*samples) / 2 * RECORD.0;
    let cached = half.div_ceil(CHUNK.0).max(1) * CHUNK.0;
    let staged = u64::from(BATCH_SIZE) * RECORD.0 * 16 * u64::from(*ranks);
    format!(
        "name: bench-loop\n\
         dataset: {{ source: records, format: raw, record_bytes: {RECORD} }}\n\
         order:\n\
         \x20 shuffle: torch-distributed\n\
         \x20 seed: 42\n\
         \x20 epochs: 2\n\
         \x20 start: {{ epoch: 0, samples: {start} }}\n\
         batch_size: {BATCH_SIZE}\n\
         world: {{ nodes: 1, ranks_per_node: {ranks} }}\n\
         chunk: {CHUNK}\n\
         tiers:\n\
         \x20 main-memory: {{ size: {size} B }}\n",
        start = samples - samples / LEFT,
        size = cached + staged,
    )
}

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let Outcome { samples, ranks, batches, wall_s, pauses, longest_max_s, ran_max_allowed_s } =
        outcome;
    let Pauses { events, p99_s, longest_s, longest_after, ran_max_s, ran_max_after, by_event } =
        pauses;
    let ms = |seconds: &f64| seconds * 1e3;
    let mut text = format!(
        "{samples} samples, {ranks} ranks: {batches} batches in {wall_s:.1} s, {events} events\n\
         the loop paused for at most {:.2} ms (after {longest_after}), allowed {:.0}; 99 of 100 times for \
         less than {:.3}\n\
         it ran for at most {:.2} ms of a pause (after {ran_max_after}), allowed {:.0}\n\n\
         {:<36}{:>10}{:>12}{:>10}\n",
        ms(longest_s),
        ms(longest_max_s),
        ms(p99_s),
        ms(ran_max_s),
        ms(ran_max_allowed_s),
        "after",
        "events",
        "longest ms",
        "ran ms",
    );
    for (event, OfEvent { events, longest_s, ran_max_s }) in by_event {
        let row =
            format!("{event:<36}{events:>10}{:>12.2}{:>10.2}\n", ms(longest_s), ms(ran_max_s));
        text.push_str(&row);
    }
    text
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
        let ms = |seconds: f64| seconds * 1e3;
        Judgement::default()
            .at_most(
                "longest pause of the loop, ms",
                ms(self.pauses.longest_s),
                ms(self.longest_max_s),
            )
            .at_most(
                "processor time of one pause, ms",
                ms(self.pauses.ran_max_s),
                ms(self.ran_max_allowed_s),
            )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_one_that_tierfeed_runs() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            programs: Programs::default(),
            folder: folder.path().to_owned(),
            samples: 100_000,
            ranks: 8,
        };
        fs::write(folder.path().join("job.yaml"), job_text(&settings)).unwrap();
        let job = tierfeed_workload_analyzer::Job::load(&folder.path().join("job.yaml")).unwrap();
        assert_eq!(job.world.ranks_per_node, 8);
    }
}
