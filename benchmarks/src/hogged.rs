//! `tierfeed-bench hogged`: a default job on a node whose memory others hold, beside the least time that any
//! loader needs with the memory that was there.
//!
//! All runs in a memory group, so that `tierfeed hog` makes the group tight and not the machine. First the hog
//! leaves an amount from before the start to the end; then it comes and goes while the training runs. The job
//! names no tiers: it gets its share of what is free, which changes with the hog.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod least_cold;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    bench::{Bench, Folder},
    clock::{now, pause},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    memory_group::MemoryGroup,
    output::step,
    programs::Programs,
};

use self::least_cold::{Epoch, Room, least_cold};
use crate::{
    processes::Killed,
    runs::{ReaderRun, Report},
};

/// The largest ratio of the time of the whole training and its bound.
pub(crate) const OVER_BOUND_MAX: f64 = 1.05;

/// A machine that does other work beside the bench adds this much to the ratio.
const NOISE: f64 = 0.05;

const GROUP: Bytes = Bytes::mib(2560);
const LEFT: Bytes = Bytes::mib(1024);
/// The share of the free memory that a job without `tiers:` takes.
const SHARE: f64 = 0.2;

const FILES: u64 = 2_000;
const FILE: Bytes = Bytes(400_000);
const BATCH: u64 = 16;
const COLD_MB_PER_S: u32 = 100;
const STEP_MS: u64 = 40;
const EPOCHS: u32 = 6;

/// The hog that comes and goes holds memory for a part of the training.
const COMES_AFTER: Duration = Duration::from_secs(9);
const STAYS: Duration = Duration::from_secs(12);

/// Time between two looks at the memory of the hog.
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) dataset_bytes: u64,
    pub(crate) group_bytes: u64,
    pub(crate) trainings: Vec<Training>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Training {
    pub(crate) hog: &'static str,
    pub(crate) hogged_bytes_max: u64,
    pub(crate) epochs: Vec<Row>,
    /// Time of all epochs over their bounds.
    pub(crate) ratio: f64,
    /// The order that the ranks were given.
    pub(crate) order_digest: Option<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) epoch: u32,
    pub(crate) time_s: f64,
    /// The longer of computing, and of reading the fewest bytes.
    pub(crate) bound_s: f64,
    pub(crate) cold_read_bytes: u64,
    /// The fewest bytes with the job's share of the memory that was free, without its staging.
    pub(crate) least_cold_bytes: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hogging {
    FromTheStart,
    ComesAndGoes,
}

impl Hogging {
    const ALL: [Self; 2] = [Self::FromTheStart, Self::ComesAndGoes];

    fn name(self) -> &'static str {
        match self {
            Self::FromTheStart => "from the start",
            Self::ComesAndGoes => "comes and goes",
        }
    }
}

impl Judged for Outcome {
    /// The time of each training beside its bound, and that all had one order.
    fn judged(&self) -> Judgement {
        let mut judged = Judgement::default();
        for training in &self.trainings {
            let what = format!("hog {}: time over the bound", training.hog);
            judged = judged.at_most(&what, training.ratio, OVER_BOUND_MAX + NOISE);
        }
        let digests = self.trainings.windows(2);
        match digests.filter(|pair| pair[0].order_digest != pair[1].order_digest).count() {
            0 => judged,
            _ => judged.verdict("the order depends on the hog".to_owned(), "missed"),
        }
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let _watch = self.folder.watch()?;
        let programs = Programs::find()?;
        Ok(self.folder.with_files(|folder| measure(&programs, folder))?)
    }
}

/// Makes the files, trains beside a hog in both ways, removes the files.
fn measure(programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let data = folder.join("data");
    for number in 0..FILES {
        let file = data.join(format!("class{}", number % 10)).join(format!("{number:04}.jpg"));
        files::write_noise(&file, number, FILE.0)?;
    }
    let job = folder.join("job.yaml");
    fs::write(&job, job_text(&data))?;
    let group = MemoryGroup::make(None)?;
    group.limit(GROUP)?;
    let mut trainings = Vec::new();
    for hogging in Hogging::ALL {
        step(&format!("a training beside a hog that leaves {LEFT}: {}", hogging.name()));
        trainings.push(train(programs, &group, folder, &job, hogging)?);
    }
    Ok(Outcome { dataset_bytes: FILES * FILE.0, group_bytes: GROUP.0, trainings })
}

#[derive(Debug)]
struct Watched {
    /// Bytes that the hog held, by time.
    hogged: Vec<(Instant, u64)>,
    /// When the last batch was read.
    end: Instant,
}

fn train(
    programs: &Programs,
    group: &MemoryGroup,
    folder: &Path,
    job: &Path,
    hogging: Hogging,
) -> anyhow::Result<Training> {
    let run_dir = folder.join(hogging.name());
    let run = ReaderRun { programs, job, run_dir, options: &["--step", &format!("{STEP_MS} ms")] };
    let times = run.times();
    let mut hog = match hogging {
        Hogging::FromTheStart => Some(start_hog(programs, group, None)?),
        Hogging::ComesAndGoes => None,
    };
    let begun = now();
    let mut training = run.command(group.enter(&programs.tierfeed)).spawn()?;
    let mut watched = Watched { hogged: Vec::new(), end: begun };
    let status = loop {
        if let Some(status) = training.try_wait()? {
            break status;
        }
        if hogging == Hogging::ComesAndGoes && hog.is_none() && now() >= begun + COMES_AFTER {
            hog = Some(start_hog(programs, group, Some(STAYS))?);
        }
        watched.hogged.push((now(), hog.as_ref().map_or(0, Killed::resident_bytes)));
        if !times.exists() {
            watched.end = now();
        }
        pause(LOOK_EVERY);
    };
    drop(hog);
    let (report, seconds) = run.outcome(status)?;
    compare(hogging, &seconds, report, &watched)
}

/// Starts a hog. A hog without a `time` is there from the start, so this waits until it holds nearly all of
/// its amount.
fn start_hog(
    programs: &Programs,
    group: &MemoryGroup,
    time: Option<Duration>,
) -> anyhow::Result<Killed> {
    let mut hog: Command = group.enter(&programs.tierfeed);
    hog.args(["hog", "--leave", &LEFT.to_string()]);
    if let Some(time) = time {
        hog.args(["--for", &format!("{} s", time.as_secs())]);
    }
    let hog = Killed::start(hog.stdout(Stdio::null()))?;
    let most = (GROUP.0 - LEFT.0) / 10 * 9;
    let until = now() + Duration::from_secs(30);
    while time.is_none() && hog.resident_bytes() < most {
        ensure!(now() < until, "the hog holds {} after 30 s", Bytes(hog.resident_bytes()));
        pause(LOOK_EVERY);
    }
    Ok(hog)
}

fn compare(
    hogging: Hogging,
    seconds: &[f64],
    report: Report,
    watched: &Watched,
) -> anyhow::Result<Training> {
    ensure!(seconds.len() == EPOCHS as usize, "{} epochs were timed", seconds.len());
    let dataset = (FILES * FILE.0) as f64;
    let took = Duration::from_secs_f64(seconds.iter().sum());
    let start =
        watched.end.checked_sub(took).context("epochs that took longer than the clock runs")?;
    // Batches that wait for the trainer are part of the share, and no cache.
    let staged = report.staging.parts.iter().map(|part| part.bytes as f64).sum::<f64>();
    let room = |(time, hogged): &(Instant, u64)| Room {
        from_s: time.saturating_duration_since(start).as_secs_f64(),
        bytes: SHARE * GROUP.0.saturating_sub(*hogged) as f64 - staged,
    };
    let rooms: Vec<_> = watched.hogged.iter().map(room).collect();
    let mut begins_s = 0.0;
    let epochs: Vec<_> = seconds
        .iter()
        .map(|takes_s| {
            let epoch = Epoch { begins_s, takes_s: *takes_s };
            begins_s += takes_s;
            epoch
        })
        .collect();
    let compute_s = (FILES.div_ceil(BATCH) * STEP_MS) as f64 / 1000.0;
    let rows: Vec<Row> = (0..)
        .zip(&epochs)
        .zip(least_cold(dataset, &rooms, &epochs))
        .zip(report.epochs)
        .map(|(((epoch, took), least), read)| Row {
            epoch,
            time_s: took.takes_s,
            bound_s: compute_s.max(least / (f64::from(COLD_MB_PER_S) * 1e6)),
            cold_read_bytes: read.cold_read_bytes,
            least_cold_bytes: least.round(),
        })
        .collect();
    let sum = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>();
    Ok(Training {
        hog: hogging.name(),
        hogged_bytes_max: watched.hogged.iter().map(|it| it.1).max().unwrap_or(0),
        ratio: sum(|row| row.time_s) / sum(|row| row.bound_s),
        epochs: rows,
        order_digest: report.order_digest,
    })
}

fn job_text(data: &Path) -> String {
    format!(
        "name: bench-hogged\n\
         dataset:\n  source: {data}\n  format: image-folder\n\
         \x20 emulate: {{ latency: 1 ms, bandwidth: {COLD_MB_PER_S} MB/s }}\n\
         order: {{ shuffle: torch-distributed, seed: 42, epochs: {EPOCHS} }}\n\
         batch_size: {BATCH}\n\
         step_time: {STEP_MS} ms\n",
        data = data.display(),
    )
}
