//! One of three nodes that reads its part of each epoch, from a bucket or from a disk.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, Nanoseconds};
use tierfeed_harness::{
    files,
    output::step,
    slow_disk::{SlowDisk, on_slow_disk},
};

use super::{
    measured::{Measured, Turn},
    requests::requests,
    setting::{
        BATCH_PUBLISHED, CHUNK, DISK, EPOCHS, NODES, PUBLISHED, Reader, Run, SAMPLE, SAMPLES,
        THREADS, bytes_of, chunks, scaled, step_s, together,
    },
};
use crate::{
    bucket::{Bucket, Pace},
    machine::Machine,
    stage::Settings,
    training::{Trainer, Training},
};

const STOPWATCH: u32 = 160;
/// The latency with which the stopwatch finds out what this machine adds by itself.
const TRIAL: Nanoseconds = Nanoseconds(10_000_000);

/// The latency that the bucket has to add, so that one thread gets the published rate, if a sample took
/// `trial_s` with [`TRIAL`].
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
    experiment: impl FnOnce(&mut Node<'_>) -> anyhow::Result<T>,
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
            experiment(&mut Node { settings, trainer, disk, bucket, latency })
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
    pub(super) fn measure(&self, runs: &BTreeSet<Run>) -> anyhow::Result<Measured> {
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

    /// The rate of one thread that reads files.
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

/// The keys of a job for tierfeed, and the number of nodes for all loaders.
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
    let chunks = chunks(samples);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_adds_what_is_missing_to_the_published_time_of_a_request() {
        // 784 B at 49.8 kB/s are 15.743 ms.
        assert_eq!(latency(0.013).0 / 10_000, 1_274);
        assert_eq!(latency(0.030), Nanoseconds(0), "a machine that is too slow already");
    }
}
