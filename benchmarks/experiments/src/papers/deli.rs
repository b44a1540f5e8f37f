//! One of the three nodes of DELI, which reads its part of each epoch from a bucket or from a disk.
//!
//! The bucket serves a request as the paper measured it: as late that one thread reads 49.80 kB/s, and no faster than
//! 281.73 kB/s together, which sixteen threads got. What counts is time on the bucket, so epochs are 25 times shorter
//! than in the paper, and so are batches, caches, fetches and thresholds.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};
use tierfeed_harness::{
    files,
    output::step,
    slow_disk::{SlowDisk, on_slow_disk},
};

use super::{
    file::{Data, SideFile, Trial},
    measure::{Measure, One, Outcome, Ran, Setting},
    sizes::Known,
};
use crate::{
    bucket::{Bucket, Pace},
    document,
    figure::Value,
    machine::Machine,
    stage::Settings,
    training::{Trainer, Training},
};

/// The nodes of the paper; one of them runs here, and reads its part of the bucket.
const NODES: u32 = 3;
/// Samples that a node reads in an epoch, and as many as one of them stands for.
const SAMPLES: u32 = 560;
const SCALE: f64 = 25.0;
/// Bytes of a sample: 28 by 28 pixels.
const SAMPLE: u64 = 784;
const EPOCHS: f64 = 2.0;
/// Threads of the parallel reader of Table I.
const THREADS: u32 = 16;
/// The limit of the disk below the cache and the files of the baseline: the published 18.63 MB/s of samples,
/// each of which takes a block of 4 KiB.
const DISK: BytesPerSecond = BytesPerSecond(97_300_000);

/// Bytes of samples a second, from the disk and from the bucket by one thread and by [`THREADS`].
///
/// # Source
///
/// DELI, Table I.
const DISK_RATE: f64 = 18_630_000.0;
const SEQUENTIAL_RATE: f64 = 49_800.0;
const PARALLEL_RATE: f64 = 281_730.0;
const TOGETHER: BytesPerSecond = BytesPerSecond(281_730);

/// Of MNIST and CIFAR-10: the mean seconds that an epoch took to load sample by sample from the bucket, and those of
/// computing.
///
/// # Source
///
/// DELI, section V-B, and the measurements that its authors published.
const PUBLISHED_S: [[f64; 2]; 2] = [[752.5, 14.7], [640.9, 147.2]];

/// Dollars of an hour of a node, and of a bucket and the disks of the systems in two epochs: the same for all ways.
///
/// # Source
///
/// [`PRICES`], and DELI, Table II.
const VM: f64 = 0.545;
const STORAGE: f64 = 1.93;

/// The prices with which the most cells of DELI's Table II come out: the paper gives those of requests only.
///
/// `vm`: an n1-standard-2 (0.095) with a K80 (0.45). `class_b`: the list price; the text of the paper says 0.002.
/// `system_disk` is chosen to fit.
const PRICES: &str = "\
vm: 0.545 $/h
disk: 0.04 $/GB/month
store: 0.02 $/GB/month
class_a: 0.05 $/10k
class_b: 0.004 $/10k
list_page: 1000
system_disk: 16.07 GB
storage_charged: started-months
";

/// Samples for the stopwatch, and the latency with which it finds out what this machine adds by itself.
const STOPWATCH: u32 = 160;
const TRIAL: Nanoseconds = Nanoseconds(10_000_000);

/// The folders of all samples, and of those for the stopwatch.
const ALL: &str = "all";
const SOME: &str = "some";

/// The sides that stand for the stopwatches, and for reading one by one from the bucket.
const WATCHES: [&str; 3] = ["stopwatch, disk", "stopwatch, one thread", "stopwatch, 16 threads"];
const BUCKET: &str = "objects from the bucket";

struct Node<'a> {
    settings: &'a Settings,
    trainer: Trainer,
    disk: &'a SlowDisk,
    bucket: Bucket,
    latency: Nanoseconds,
}

/// Makes samples, a disk and a bucket that hold them, runs those sides of a trial that are `wanted`, and removes all.
pub(super) fn run(
    settings: &Settings,
    trial: &Trial,
    wanted: &dyn Fn(&SideFile) -> bool,
) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
        let trainer = Trainer::new(&settings.python, &settings.tierfeed, folder)?;
        let samples = folder.join("samples");
        write(&samples, ALL, NODES * SAMPLES)?;
        write(&samples, SOME, STOPWATCH)?;
        step("round trip of the bucket");
        let paced = |latency| {
            let pace = Pace { latency, together: Some(TOGETHER), connection: None };
            Bucket::start(&settings.s3_server, &samples, pace)
        };
        let without_latency = paced(TRIAL)?;
        let read = trainer.times(&Machine::default(), &without_latency.at(SOME), 1)?;
        drop(without_latency);
        let latency = latency(read.seconds / f64::from(STOPWATCH));
        let bucket = paced(latency)?;
        on_slow_disk(folder, Bytes::mib(64), |disk| {
            write(disk.path(), ALL, NODES * SAMPLES)?;
            write(disk.path(), SOME, STOPWATCH)?;
            disk.limit(DISK)?;
            let sides: Vec<&SideFile> = trial.sides.iter().filter(|it| wanted(it)).collect();
            Node { settings, trainer, disk, bucket, latency }.measure(&sides)
        })
    })
}

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
    Nanoseconds(((SAMPLE as f64 / SEQUENTIAL_RATE - own_s).max(0.0) * 1e9) as u64)
}

fn write(folder: &Path, name: &str, count: u32) -> anyhow::Result<()> {
    for number in 0..count {
        let path = folder.join(name).join(format!("{number:05}.bin"));
        files::write_noise(&path, u64::from(number) + 1, SAMPLE)?;
    }
    Ok(())
}

impl Node<'_> {
    /// The turns of all sides, which alternate, with a stopwatch in each round.
    fn measure(&self, sides: &[&SideFile]) -> anyhow::Result<Outcome> {
        let mut turns: BTreeMap<String, Vec<Ran>> = BTreeMap::new();
        let mut ways = BTreeMap::new();
        let rounds = self.settings.rounds;
        for round in 1..=rounds {
            step(&format!("stopwatch on disk and bucket: {round} of {rounds}"));
            let bucket = |threads| self.rate(&Machine::default(), &self.bucket.at(SOME), threads);
            let rates = [
                self.rate(&self.machine(), &self.disk.path().join(ALL), 1)?,
                bucket(1)?,
                bucket(THREADS)?,
            ];
            for (watch, rate) in WATCHES.into_iter().zip(rates) {
                turns.entry(watch.to_owned()).or_default().push(Ran::Rate(rate));
            }
            for side in sides {
                step(&format!("{}: turn {round} of {rounds}", side.name));
                let one = self.turn(side).with_context(|| side.name.clone())?;
                if let (1, Some(run_dir)) = (round, &one.trained.run_dir) {
                    ways.insert(side.name.clone(), requests(&self.settings.tierfeed, run_dir)?);
                }
                turns.entry(side.name.clone()).or_default().push(Ran::One(Box::new(one)));
            }
        }
        let told = self.told(&turns);
        let mut outcome = Outcome { name: String::new(), setting: Setting::default(), told, turns };
        charge(&mut outcome, &ways);
        Ok(outcome)
    }

    fn machine(&self) -> Machine<'_> {
        Machine { disk: Some(self.disk), ..Machine::default() }
    }

    fn rate(&self, machine: &Machine<'_>, data: &Path, threads: u32) -> anyhow::Result<f64> {
        Ok(self.trainer.times(machine, data, threads)?.rate())
    }

    fn turn(&self, side: &SideFile) -> anyhow::Result<One> {
        let cache = self.disk.path().join("cache");
        if cache.exists() {
            fs::remove_dir_all(&cache)?;
        }
        fs::create_dir(&cache)?;
        let mut job = side.job.clone();
        let known =
            Known { data: Bytes(0), images: SAMPLES, staged: Bytes(0), folder: self.disk.path() };
        known.in_job(&mut job)?;
        let is_far = side.data == Some(Data::Bucket);
        let training = Training {
            loader: side.loader.clone(),
            data: if is_far { self.bucket.at(ALL) } else { self.disk.path().join(ALL) },
            batch_size: side.batch_size,
            epochs: side.epochs,
            step_s: side.step_s,
            workers: side.workers,
            decode: side.decode,
            job,
        };
        let trained = self.trainer.train(&self.machine(), &training)?;
        let all = u64::from(SAMPLES);
        ensure!(trained.images.iter().all(|it| *it == all), "epochs of {:?}", trained.images);
        let missed = trained.run_dir.as_deref().map(missed).transpose()?.unwrap_or_default();
        Ok(One { trained, copy_s: 0.0, missed, dollars: [0.0; 2] })
    }

    fn told(&self, turns: &BTreeMap<String, Vec<Ran>>) -> BTreeMap<&'static str, String> {
        let watched = WATCHES.map(|watch| {
            let rates = turns.get(watch).into_iter().flatten();
            let rates: Vec<f64> = rates
                .filter_map(|it| if let Ran::Rate(rate) = it { Some(*rate) } else { None })
                .collect();
            Value::of(&rates).map_or(f64::NAN, |it| it.median)
        });
        let [disk, one, many] = watched;
        BTreeMap::from([
            ("latency", self.latency.to_string()),
            ("together", TOGETHER.to_string()),
            ("disk", DISK.to_string()),
            ("one", format!("{:.1}", one / 1e3)),
            ("one_checked", checked(one, SEQUENTIAL_RATE)),
            ("many", format!("{:.1}", many / 1e3)),
            ("many_checked", checked(many, PARALLEL_RATE)),
            ("disk_read", format!("{:.2}", disk / 1e6)),
            ("disk_checked", checked(disk, DISK_RATE)),
        ])
    }
}

/// Puts what two epochs cost into the turns: requests, storage and machines of all nodes.
///
/// Runs here are shorter than those of the paper. A second counts as many as the paper needed to load one by one for
/// each that it took here, and a request as many as the paper has samples for each of here; the bill is the paper's.
fn charge(outcome: &mut Outcome, ways: &BTreeMap<String, [f64; 2]>) {
    let of_bucket = outcome.values(BUCKET, Measure::WaitedS).first().copied().flatten();
    let (Some(bucket), Some([direct, _])) = (of_bucket, ways.values().next()) else { return };
    for (name, turns) in &mut outcome.turns {
        for turn in turns {
            let Ran::One(one) = turn else { continue };
            let loading_s: f64 = one.trained.waits.iter().flatten().sum();
            one.dollars = PUBLISHED_S.map(|[published_s, computing_s]| {
                let longer = published_s * EPOCHS / bucket.median;
                let (requests, total_s) = if let Some([_, planned]) = ways.get(name) {
                    (planned, one.trained.total_s())
                } else {
                    // One by one, loading takes as long however long a step is; the steps come on top.
                    let sequential_s = f64::from(SAMPLES) * SAMPLE_BYTES / SEQUENTIAL_RATE;
                    let computing_s = sequential_s * computing_s / published_s;
                    (direct, EPOCHS * computing_s + loading_s)
                };
                let hours = total_s * longer / 3600.0;
                STORAGE + SCALE * requests + f64::from(NODES) * VM * hours
            });
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "few bytes")]
const SAMPLE_BYTES: f64 = SAMPLE as f64;

/// The largest relative difference between an emulated rate and the published one.
const TOLERANCE: f64 = 0.05;

/// Compares a rate of the emulation with the published one.
fn checked(here: f64, published: f64) -> String {
    let off = here / published - 1.0;
    if off.abs() <= TOLERANCE {
        return "as published, within 5 %".to_owned();
    }
    format!("not as published, but {:+.0} %: other work on this machine, or its disk", 100.0 * off)
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
    let report: Report = document::read(&run_dir.join("report.json"))?;
    Ok(report.epochs.iter().map(|epoch| 1.0 - epoch.hit_ratio).collect())
}

/// The dollars of all requests of a run by `tierfeed plan --cost`: if every sample is read when it is needed, and as
/// planned.
fn requests(tierfeed: &Path, run_dir: &Path) -> anyhow::Result<[f64; 2]> {
    #[derive(Deserialize)]
    struct Bill {
        charges: Vec<Charge>,
    }
    #[derive(Deserialize)]
    struct Charge {
        way: String,
        api_usd: f64,
    }
    let prices = run_dir.join("prices.yaml");
    fs::write(&prices, PRICES)?;
    let mut plan = Command::new(tierfeed);
    plan.arg("plan").arg(run_dir.join("job.yaml")).arg("--json").arg("--cost").arg(&prices);
    let bill: Bill = document::printed(&mut plan)?;
    let of = |way: &str| {
        let charge = bill.charges.iter().find(|it| it.way == way);
        charge.map(|it| it.api_usd).with_context(|| format!("the bill has no way {way}"))
    };
    Ok([of("direct")?, of("planned")?])
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
    fn a_bucket_that_is_faster_than_published_is_not_the_published_one() {
        assert_eq!(checked(48.0, 50.0), "as published, within 5 %");
        assert!(checked(53.0, 50.0).starts_with("not as published, but +6 %"));
        assert!(checked(40.0, 50.0).starts_with("not as published, but -20 %"));
    }
}
