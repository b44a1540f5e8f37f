//! One of three nodes that reads its part of each epoch, from a bucket or from a disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};
use tierfeed_harness::{
    files,
    slow_disk::{SlowDisk, on_slow_disk},
};

use super::requests::{Requests, requests};
use crate::{
    bucket::{Bucket, Pace},
    figure::Value,
    machine::Machine,
    stage::Settings,
    training::{Trained, Trainer, Training},
};

/// The nodes of the paper; one of them runs here, and reads its part of the bucket.
pub(super) const NODES: u32 = 3;
/// Samples that a node reads in an epoch.
const SAMPLES: u32 = 700;
/// The same in the paper, with MNIST.
const SAMPLES_PUBLISHED: u32 = 14_000;
/// Samples of the paper for each of here.
pub(super) const SCALE: u32 = SAMPLES_PUBLISHED / SAMPLES;
/// Bytes of a sample: 28 by 28 pixels.
const SAMPLE: u64 = 784;
/// Samples of a batch in the paper.
const BATCH_PUBLISHED: u32 = 512;
pub(super) const EPOCHS: u32 = 2;
/// Samples of the stopwatch.
const STOPWATCH: u32 = 160;
/// Threads of the parallel reader of Table I.
const THREADS: u32 = 16;
/// The unit of the cache.
const CHUNK: Bytes = Bytes(64 << 10);
/// What the disk below the cache and the files of the baseline is limited to: the published 18.63 MB/s of samples, each
/// of which takes a block of 4 KiB.
const DISK: BytesPerSecond = BytesPerSecond(97_300_000);

/// The read rates of Table I, in bytes per second.
///
/// # Source
///
/// DELI, Table I.
pub(super) const PUBLISHED: Rates =
    Rates { disk: 18_630_000.0, sequential: 49_800.0, parallel: 281_730.0 };

/// Bytes per second of samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) disk: f64,
    pub(super) sequential: f64,
    pub(super) parallel: f64,
}

/// A model that is trained, by how long it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Workload {
    Mnist,
    Cifar,
}

impl Workload {
    pub(super) const ALL: [Self; 2] = [Self::Mnist, Self::Cifar];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Mnist => "MNIST",
            Self::Cifar => "CIFAR-10",
        }
    }

    /// Seconds of computing over seconds of loading from the bucket, in an epoch.
    ///
    /// # Source
    ///
    /// DELI, section V-B, and the mean of the loading times that it published.
    fn computing(self) -> f64 {
        match self {
            Self::Mnist => 14.7 / self.published_bucket_s(),
            Self::Cifar => 147.2 / self.published_bucket_s(),
        }
    }

    /// Seconds of computing in an epoch here.
    pub(super) fn computing_s(self) -> f64 {
        step_s(self) * f64::from(steps())
    }

    /// Mean seconds that an epoch took to load sample by sample from the bucket.
    ///
    /// # Source
    ///
    /// The measurements that the authors of DELI published.
    pub(super) const fn published_bucket_s(self) -> f64 {
        match self {
            Self::Mnist => 752.5,
            Self::Cifar => 640.9,
        }
    }
}

/// What reads. Sizes are in samples of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reader {
    /// `DataLoader`, file by file from the disk.
    Disk,
    /// `DataLoader`, object by object from the bucket.
    Bucket,
    /// tierfeed with the cache and prefetching of DELI.
    Deli { cache: u32, fetch: u32, threshold: u32 },
    /// tierfeed with a cache of what was read last, without fetching ahead into it.
    Fifo { cache: u32 },
    /// tierfeed with its own policy.
    Gap { cache: u32 },
}

/// A cache that holds more than a node reads.
pub(super) const UNLIMITED: u32 = NODES * SAMPLES_PUBLISHED;

/// A side of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) workload: Workload,
    pub(super) reader: Reader,
}

impl Run {
    pub(super) const fn new(workload: Workload, reader: Reader) -> Self {
        Self { workload, reader }
    }

    /// The same over files or objects one by one: it loads nothing while it computes, so how long that takes makes no
    /// difference, and one workload stands for both.
    pub(super) const fn baseline(reader: Reader) -> Self {
        Self { workload: Workload::Mnist, reader }
    }

    fn name(self) -> String {
        let name = match self.reader {
            Reader::Disk => return "files from the disk".to_owned(),
            Reader::Bucket => return "objects from the bucket".to_owned(),
            Reader::Deli { cache, fetch, threshold } => {
                format!("deli, cache {cache}, fetch {fetch}, threshold {threshold}")
            }
            Reader::Fifo { cache } => format!("fifo, cache {cache}"),
            Reader::Gap { cache } => format!("gap, cache {cache}"),
        };
        format!("{}, {name}", self.workload.name())
    }
}

/// A turn of a run.
#[derive(Debug, Clone)]
pub(super) struct Turn {
    /// Seconds that training waited for data, by epoch.
    pub(super) loading_s: Vec<f64>,
    /// The share of samples that no cache held, by epoch; of tierfeed only.
    pub(super) missed: Vec<f64>,
    /// Seconds of both epochs.
    pub(super) total_s: f64,
    /// Of tierfeed.
    run_dir: Option<PathBuf>,
}

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) turns: BTreeMap<Run, Vec<Turn>>,
    /// The stopwatch on disk and bucket, in bytes per second.
    pub(super) disk: Vec<f64>,
    pub(super) sequential: Vec<f64>,
    pub(super) parallel: Vec<f64>,
    /// What the requests of the jobs of tierfeed cost.
    pub(super) requests: BTreeMap<Run, Requests>,
    /// What the bucket adds to the round trip.
    latency: Nanoseconds,
}

impl Measured {
    /// A figure of the turns of a run.
    pub(super) fn value(&self, run: Run, figure: impl Fn(&Turn) -> f64) -> Option<Value> {
        Value::of(&self.turns.get(&run)?.iter().map(figure).collect::<Vec<_>>())
    }

    /// Seconds that a run waited for data in both epochs.
    pub(super) fn loading(&self, run: Run) -> Option<Value> {
        self.value(run, |turn| turn.loading_s.iter().sum())
    }

    /// The same in per cent of what one thread needs from the bucket.
    pub(super) fn loading_percent(&self, run: Run) -> Option<Value> {
        let bucket = self.loading(Run::baseline(Reader::Bucket))?.median;
        self.value(run, |turn| 100.0 * turn.loading_s.iter().sum::<f64>() / bucket)
    }

    pub(super) fn setting() -> String {
        let steps = Workload::ALL.map(|it| format!("{:.0} ms ({})", 1e3 * step_s(it), it.name()));
        format!(
            "One of {NODES} nodes reads {SAMPLES} of {} samples of {SAMPLE} B in each of {EPOCHS} epochs, in batches \
             of {}; steps of {}, as in the paper in proportion to loading one by one. Caches, fetches and thresholds \
             are told in samples of the paper, {SCALE} of which are one here. The cache of tierfeed is on a local disk, as \
             DELI's; what it stages ahead, four batches at most, is in memory. Loading time is what training waits for.",
            NODES * SAMPLES,
            scaled(BATCH_PUBLISHED),
            steps.join(" and "),
        )
    }

    pub(super) fn emulated(&self) -> Vec<String> {
        let rate = |turns: &[f64]| Value::of(turns).map_or(f64::NAN, |it| it.median / 1e3);
        vec![
            format!(
                "the bucket is an S3 server on loopback whose answers are {} late, and whose bodies share {}; a \
                 stopwatch read {:.1} kB/s by one thread and {:.1} kB/s by {THREADS} (published: 49.8 and 281.7)",
                self.latency,
                together(),
                rate(&self.sequential),
                rate(&self.parallel)
            ),
            format!(
                "the disk is a loop device whose reads the kernel limits to {DISK}; a stopwatch read {:.2} MB/s of \
                 samples (published: 18.63)",
                rate(&self.disk) / 1e3
            ),
        ]
    }
}

/// A number of samples of the paper, as many here.
pub(super) const fn scaled(samples: u32) -> u32 {
    (samples * SAMPLES + SAMPLES_PUBLISHED / 2) / SAMPLES_PUBLISHED
}

fn steps() -> u32 {
    SAMPLES.div_ceil(scaled(BATCH_PUBLISHED))
}

/// Seconds that one thread needs for the samples of an epoch.
fn sequential_s() -> f64 {
    bytes_of(SAMPLES) / PUBLISHED.sequential
}

fn step_s(workload: Workload) -> f64 {
    sequential_s() * workload.computing() / f64::from(steps())
}

#[expect(clippy::cast_precision_loss, reason = "few bytes")]
fn bytes_of(samples: u32) -> f64 {
    (u64::from(samples) * SAMPLE) as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive rate")]
fn together() -> BytesPerSecond {
    BytesPerSecond(PUBLISHED.parallel as u64)
}

/// The pace by which the stopwatch finds out what this machine adds by itself.
const TRIAL: Nanoseconds = Nanoseconds(10_000_000);

/// What the bucket has to add, so that one thread gets the published rate, if a sample took `trial_s` with [`TRIAL`].
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "some milliseconds"
)]
fn latency(trial_s: f64) -> Nanoseconds {
    let own_s = trial_s - TRIAL.0 as f64 / 1e9;
    Nanoseconds(((bytes_of(1) / PUBLISHED.sequential - own_s).max(0.0) * 1e9) as u64)
}

/// A node with what it reads from.
pub(super) struct Node<'a> {
    settings: &'a Settings,
    trainer: Trainer,
    disk: &'a SlowDisk,
    bucket: Bucket,
    latency: Nanoseconds,
}

const ALL: &str = "all";
const SOME: &str = "some";

/// Makes samples, a disk and a bucket that hold them, runs `experiment`, and removes all.
pub(super) fn on_node<T>(
    settings: &Settings,
    step: &mut dyn FnMut(&str),
    experiment: impl FnOnce(&mut Node<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    files::in_folder(&settings.folder, |folder| {
        let trainer = Trainer::new(&settings.python, &settings.tierfeed, folder)?;
        let samples = folder.join("samples");
        write(&samples, ALL, NODES * SAMPLES)?;
        write(&samples, SOME, STOPWATCH)?;
        step("round trip of the bucket");
        let paced = |latency| {
            let pace = Pace { latency, together: Some(together()), connection: None };
            Bucket::start(&settings.s3_server, &samples, pace)
        };
        let trial = paced(TRIAL)?;
        let read = trainer.times(&Machine::default(), &trial.at(SOME), 1)?;
        drop(trial);
        let latency = latency(read.seconds / f64::from(STOPWATCH));
        let bucket = paced(latency)?;
        on_slow_disk(folder, Bytes::mib(64), |disk| {
            write(disk.path(), ALL, NODES * SAMPLES)?;
            write(disk.path(), SOME, STOPWATCH)?;
            disk.limit(DISK)?;
            experiment(&mut Node { settings, trainer, disk, bucket, latency }, step)
        })
    })
}

fn write(folder: &Path, name: &str, count: u32) -> anyhow::Result<()> {
    for number in 0..count {
        let path = folder.join(name).join(format!("{number:05}.bin"));
        files::write_noise(&path, u64::from(number) + 1, SAMPLE)?;
    }
    Ok(())
}

impl Node<'_> {
    /// The turns of all runs, which alternate, with a stopwatch in each round.
    pub(super) fn measure(
        &self,
        runs: &BTreeSet<Run>,
        step: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Measured> {
        let mut measured = Measured { latency: self.latency, ..Measured::default() };
        let rounds = self.settings.rounds;
        for round in 1..=rounds {
            step(&format!("stopwatch on disk and bucket: {round} of {rounds}"));
            measured.disk.push(self.disk_rate()?);
            measured.sequential.push(self.bucket_rate(1)?);
            measured.parallel.push(self.bucket_rate(THREADS)?);
            for run in runs {
                step(&format!("{}: turn {round} of {rounds}", run.name()));
                let turn = self.turn(*run).with_context(|| run.name())?;
                if let (1, Some(run_dir)) = (round, &turn.run_dir) {
                    let requests = requests(&self.settings.tierfeed, run_dir)?;
                    measured.requests.insert(*run, requests);
                }
                measured.turns.entry(*run).or_default().push(turn);
            }
        }
        Ok(measured)
    }

    /// Of one thread that reads files.
    fn disk_rate(&self) -> anyhow::Result<f64> {
        let machine = Machine { disk: Some(self.disk), ..Machine::default() };
        Ok(self.trainer.times(&machine, &self.disk.path().join(ALL), 1)?.rate())
    }

    fn bucket_rate(&self, threads: u32) -> anyhow::Result<f64> {
        Ok(self.trainer.times(&Machine::default(), &self.bucket.at(SOME), threads)?.rate())
    }

    fn turn(&self, run: Run) -> anyhow::Result<Turn> {
        let disk = self.disk.path().join(ALL);
        let bucket = self.bucket.at(ALL);
        let cache = self.disk.path().join("cache");
        if cache.exists() {
            fs::remove_dir_all(&cache)?;
        }
        fs::create_dir(&cache)?;
        let (loader, data) = match run.reader {
            Reader::Disk => ("one-node-dataloader", &disk),
            Reader::Bucket => ("one-node-dataloader", &bucket),
            _ => ("one-node-tierfeed", &bucket),
        };
        let training = Training {
            loader,
            data,
            batch_size: scaled(BATCH_PUBLISHED),
            epochs: EPOCHS,
            step_s: step_s(run.workload),
            workers: 0,
            decode: false,
            job: job(run.reader, &cache),
        };
        let machine = Machine { disk: Some(self.disk), ..Machine::default() };
        let trained = self.trainer.train(&machine, &training)?;
        let all = u64::from(SAMPLES);
        ensure!(trained.images.iter().all(|it| *it == all), "epochs of {:?}", trained.images);
        Turn::of(&trained)
    }
}

/// The keys of a job for tierfeed, and how many nodes there are for all loaders.
fn job(reader: Reader, cache: &Path) -> Json {
    let world = json!({ "nodes": NODES, "ranks_per_node": 1 });
    let (samples, policy) = match reader {
        Reader::Disk | Reader::Bucket => return json!({ "world": world }),
        Reader::Deli { cache, fetch, threshold } => {
            let deli = json!({ "fetch_size": scaled(fetch), "threshold": scaled(threshold) });
            (cache, json!({ "policy": "deli", "deli": deli, "prefetch": { "batches": 4 } }))
        }
        Reader::Fifo { cache } => {
            let prefetch = json!({ "batches": 4, "look_ahead": "off" });
            (cache, json!({ "policy": "fifo", "prefetch": prefetch }))
        }
        Reader::Gap { cache } => (cache, json!({ "policy": "gap", "prefetch": { "batches": 4 } })),
    };
    // Whole chunks; a sample takes a little more room than its bytes.
    let chunks = (u64::from(scaled(samples)) * SAMPLE).div_ceil(CHUNK.0);
    let mut job = json!({
        "world": world,
        "chunk": format!("{} B", CHUNK.0),
        "anonymous": true,
        "tiers": {
            "main-memory": { "size": format!("{} B", 2 * CHUNK.0) },
            "storage": { "path": cache, "size": format!("{} B", chunks * CHUNK.0) },
        },
    });
    if let (Json::Object(job), Json::Object(policy)) = (&mut job, policy) {
        job.extend(policy);
    }
    job
}

impl Turn {
    fn of(trained: &Trained) -> anyhow::Result<Self> {
        let loading_s = trained.waits.iter().map(|waits| waits.iter().sum()).collect();
        let missed = trained.run_dir.as_ref().map(|it| missed(it)).transpose()?;
        let (missed, run_dir) = (missed.unwrap_or_default(), trained.run_dir.clone());
        Ok(Self { loading_s, missed, total_s: trained.total_s(), run_dir })
    }

    /// Seconds that training waited for data in both epochs.
    pub(super) fn loading_s(&self) -> f64 {
        self.loading_s.iter().sum()
    }
}

/// The share of the bytes of each epoch that were read cold.
fn missed(run_dir: &Path) -> anyhow::Result<Vec<f64>> {
    #[derive(Deserialize)]
    struct Report {
        epochs: Vec<Epoch>,
    }
    #[derive(Deserialize)]
    struct Epoch {
        hit_ratio: f64,
    }
    let path: PathBuf = run_dir.join("report.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let report: Report = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
    Ok(report.epochs.iter().map(|epoch| 1.0 - epoch.hit_ratio).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_adds_what_is_missing_to_the_published_time_of_a_request() {
        // 784 B at 49.8 kB/s are 15.743 ms.
        assert_eq!(latency(0.013).0 / 10_000, 1_274);
        assert_eq!(latency(0.030), Nanoseconds(0), "a machine that is too slow already");
    }

    #[test]
    fn sizes_of_the_paper_are_a_twentieth_here() {
        assert_eq!([512, 1024, 2048].map(scaled), [26, 51, 102]);
        assert_eq!(SCALE, 20);
    }
}
