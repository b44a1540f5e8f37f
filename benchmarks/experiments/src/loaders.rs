//! `tierfeed-bench loaders`: the loaders that people use, over the same photographs, turn by turn.
//!
//! Each turn is a process of its own. A loader reads the photographs as files, or in the format that it brings
//! along; writing that format is timed apart. Epochs that are measured: with warm data those after the first;
//! from a slow disk the first, before which the page cache is empty; with memory for a part of the data those
//! after the first, from the slow disk; from a bucket the first, by what the loader has for buckets, or by a client of
//! one where it has nothing.
//!
//! Where memory is short, each loader runs in a control group that has what its processes need by themselves (measured
//! without a limit), and memory for a part of the dataset beside. It holds page cache, or tiers of tierfeed.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures for people"
)]

mod bucket;
mod figure;

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::Context as _;
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;
use tierfeed_core::units::{Bytes, BytesPerSecond};
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    statistics::percentile,
};

use self::bucket::Far;
use crate::{
    figure::Value,
    floors,
    machine::Used,
    papers,
    record::Recording,
    stage::{self, BATCH, Extent, STAGING, Side, Stage, job, on_stage},
    training::{Trained, Training},
};

const EPOCHS: u32 = 3;
const PHOTOGRAPHS_QUICK: u32 = 1000;
/// A quick run has `DataLoader` once, with as many workers as the others.
const WORKERS_QUICK: u32 = 2;
const DISK: BytesPerSecond = BytesPerSecond(80_000_000);

#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// A Python with the loaders: the folder that `scripts/frameworks/setup.sh peers` prints, bin/python.
    #[arg(long, value_name = "FILE")]
    pub python: PathBuf,
    /// How many photographs there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 4000,
          value_parser = clap::value_parser!(u32).range(64..=1_000_000))]
    pub photographs: u32,
    /// Turns of each loader.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub rounds: usize,
    /// The loaders beside tierfeed that are compared, separated by commas; all unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Where the photographs are, separated by commas; everywhere unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = Place::NAMES)]
    pub place: Vec<String>,
    /// Fewer photographs, turns and conditions.
    #[arg(long, conflicts_with_all = ["photographs", "rounds"])]
    pub quick: bool,
    #[command(flatten)]
    pub recording: Recording,
    #[command(flatten)]
    pub folder: Folder,
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let Self { python, photographs, rounds, only, place, quick, recording, folder } = self;
        let _watch = folder.watch()?;
        let floors = recording.floors()?;
        let (extent, photographs, rounds, mut conditions) = if quick {
            (Extent::Quick, PHOTOGRAPHS_QUICK, 1, Condition::QUICK.to_vec())
        } else {
            (Extent::Full, photographs, rounds, Condition::ALL.to_vec())
        };
        conditions
            .retain(|it| place.is_empty() || place.iter().any(|name| name == it.place.name()));
        let stage = stage::Settings::find(&python, &folder, extent, photographs, rounds)?;
        let plan = Plan { stage, only, conditions };
        let outcome = plan.compare()?;
        let figure = [outcome.figure()];
        recording.write(&figure, &papers::machine(&plan.stage), &papers::names())?;
        Ok(Outcome { below_floors: floors::judged(&floors, &figure), ..outcome })
    }
}

struct Plan {
    stage: stage::Settings,
    /// Loaders beside tierfeed, by their names in the script; all if empty.
    only: Vec<String>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy)]
struct Loader {
    /// Its name in tables.
    name: &'static str,
    /// Its name in the script.
    script: &'static str,
    workers: u32,
    /// Whether it reads a format of its own.
    converts: bool,
}

const fn loader(name: &'static str, script: &'static str, workers: u32) -> Loader {
    Loader { name, script, workers, converts: false }
}

impl Loader {
    fn is_ours(&self) -> bool {
        self.script == "tierfeed"
    }

    /// The data that it reads on the slow disk.
    fn data(&self, stage: &Stage<'_>) -> PathBuf {
        if self.converts { stage.disk.path().join(self.script) } else { stage.photographs() }
    }
}

const LOADERS: [Loader; 11] = [
    loader("tierfeed", "tierfeed", 2),
    loader("DataLoader, 0 workers", "dataloader", 0),
    loader("DataLoader, 2 workers", "dataloader", 2),
    loader("DataLoader, 4 workers", "dataloader", 4),
    loader("tf.data", "tf.data", 2),
    Loader { converts: true, ..loader("MosaicML Streaming", "streaming", 2) },
    Loader { converts: true, ..loader("litData", "litdata", 2) },
    Loader { converts: true, ..loader("WebDataset", "webdataset", 2) },
    loader("SPDL", "spdl", 2),
    loader("DALI (CPU)", "dali", 2),
    loader("Grain", "grain", 2),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the page cache, or in tiers.
    Warm,
    /// On a slow disk, and nowhere else.
    SlowDisk,
    /// On a slow disk, with memory for this percentage of them.
    Memory(u32),
    /// In a bucket that is far away, and nowhere else.
    Bucket,
}

impl Place {
    pub const NAMES: [&str; 4] = ["warm", "disk", "memory", "bucket"];

    /// Without the amount of memory.
    #[must_use]
    pub const fn name(self) -> &'static str {
        let [warm, disk, memory, bucket] = Self::NAMES;
        match self {
            Self::Warm => warm,
            Self::SlowDisk => disk,
            Self::Memory(_) => memory,
            Self::Bucket => bucket,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Condition {
    pub place: Place,
    pub decode: bool,
}

impl Condition {
    pub const ALL: [Self; 12] = [
        Self { place: Place::Warm, decode: false },
        Self { place: Place::Warm, decode: true },
        Self { place: Place::SlowDisk, decode: false },
        Self { place: Place::SlowDisk, decode: true },
        Self { place: Place::Memory(100), decode: false },
        Self { place: Place::Memory(100), decode: true },
        Self { place: Place::Memory(50), decode: false },
        Self { place: Place::Memory(50), decode: true },
        Self { place: Place::Memory(25), decode: false },
        Self { place: Place::Memory(25), decode: true },
        Self { place: Place::Bucket, decode: false },
        Self { place: Place::Bucket, decode: true },
    ];

    /// The comparisons of a quick run.
    pub const QUICK: [Self; 3] = [
        Self { place: Place::Warm, decode: true },
        Self { place: Place::SlowDisk, decode: false },
        Self { place: Place::Memory(25), decode: false },
    ];

    const fn first(self) -> usize {
        match self.place {
            Place::SlowDisk | Place::Bucket => 0,
            Place::Warm | Place::Memory(_) => 1,
        }
    }

    const fn epochs(self) -> u32 {
        match self.place {
            Place::SlowDisk | Place::Bucket => 1,
            Place::Warm | Place::Memory(_) => EPOCHS,
        }
    }

    #[must_use]
    pub fn name(self) -> String {
        let place = match self.place {
            Place::Warm => "warm".to_owned(),
            Place::SlowDisk => format!("from a disk of {DISK}"),
            Place::Memory(percent) => format!("memory for {percent} %, disk of {DISK}"),
            Place::Bucket => "from a bucket".to_owned(),
        };
        format!("{place}, {}", if self.decode { "decoded and cropped" } else { "bytes" })
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub dataset_bytes: u64,
    pub photographs: u32,
    pub versions: BTreeMap<String, String>,
    /// Seconds to write the format of a loader.
    pub conversions_s: BTreeMap<String, f64>,
    /// Loaders that could not be compared, with the reason.
    pub absent: BTreeMap<String, String>,
    /// The emulation of the disk, and the rate that a stopwatch measured.
    pub disk: String,
    /// Empty without a bucket.
    pub bucket: String,
    pub comparisons: Vec<Comparison>,
    #[serde(skip)]
    below_floors: Judgement,
}

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub condition: Condition,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub loader: &'static str,
    pub images_per_s: Value,
    pub images_per_cpu_s: f64,
    pub cpu_s_per_batch: f64,
    /// The share of an epoch in which training waits for a batch.
    pub stalled: f64,
    /// From the start of the loader to its first batch.
    pub first_batch_s: f64,
    /// The most memory at a time, without page cache.
    pub memory_bytes: u64,
    /// Read from the slow disk in a turn, over the bytes of the dataset and its epochs.
    pub read: f64,
}

impl Row {
    /// The range of the turns, as a share of the median.
    fn spread(&self) -> f64 {
        let Value { median, least, most } = self.images_per_s;
        (most - least) / median
    }
}

impl Comparison {
    /// The loader beside tierfeed with the most images a second.
    fn fastest_other(&self) -> Option<&Row> {
        let others = self.rows.iter().filter(|row| row.loader != LOADERS[0].name);
        others.max_by(|a, b| a.images_per_s.median.total_cmp(&b.images_per_s.median))
    }

    fn ours(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.loader == LOADERS[0].name)
    }
}

impl Judged for Outcome {
    /// Tierfeed must be first wherever data are cold, memory is short, or samples are decoded.
    fn judged(&self) -> Judgement {
        let mut judged = self.below_floors.clone();
        for comparison in &self.comparisons {
            let Condition { place, decode } = comparison.condition;
            let (Some(ours), Some(other)) = (comparison.ours(), comparison.fastest_other()) else {
                continue;
            };
            if place == Place::Warm && !decode {
                continue;
            }
            let ratio = ours.images_per_s.median / other.images_per_s.median;
            let verdict = match ratio {
                ratio if ratio >= 1.0 => "kept",
                ratio if ratio >= 1.0 - ours.spread().max(other.spread()) => "inconclusive",
                _ => "missed",
            };
            let name = comparison.condition.name();
            let what = format!("{name}: {ratio:.2} x {}, the fastest other", other.loader);
            judged = judged.verdict(what, verdict);
        }
        judged
    }
}

impl Plan {
    /// Makes the photographs, trains with all loaders in turns, and removes them.
    fn compare(&self) -> anyhow::Result<Outcome> {
        // The photographs, three other formats, and what these add.
        let copies = 5;
        on_stage(&self.stage, DISK, copies, |stage| {
            let mut outcome = Outcome {
                dataset_bytes: stage.dataset.0,
                photographs: self.stage.photographs,
                versions: stage.trainer.versions()?,
                conversions_s: BTreeMap::new(),
                absent: BTreeMap::new(),
                disk: stage.emulated.clone(),
                bucket: String::new(),
                comparisons: Vec::new(),
                below_floors: Judgement::default(),
            };
            let loaders = self.prepare(stage, &mut outcome);
            let is_far = self.conditions.iter().any(|it| it.place == Place::Bucket);
            let far = is_far.then(|| far(stage, &loaders, &mut outcome)).transpose()?;
            let mut bench = Turns { stage, loaders, far };
            for condition in &self.conditions {
                let comparison = bench.compare(*condition, &mut outcome.absent)?;
                outcome.comparisons.push(comparison);
            }
            Ok(outcome)
        })
    }

    /// The loaders that can be compared. Writes the photographs in the formats that they bring along.
    fn prepare(&self, stage: &Stage<'_>, outcome: &mut Outcome) -> Vec<Loader> {
        // The bucket has formats of its own photographs.
        let is_near = self.conditions.iter().any(|it| it.place != Place::Bucket);
        let mut loaders = Vec::new();
        for loader in wanted(&self.only, self.stage.extent) {
            if outcome.versions.get(loader.script).is_some_and(|version| version == "absent") {
                outcome.absent.insert(loader.name.to_owned(), "not installed".to_owned());
                continue;
            }
            if loader.converts && is_near {
                step(&format!("{}: its own format", loader.name));
                let made = stage.trainer.convert(loader.script, &stage.made, &loader.data(stage));
                match made {
                    Ok(seconds) => {
                        _ = outcome.conversions_s.insert(loader.name.to_owned(), seconds);
                    }
                    Err(error) => {
                        outcome.absent.insert(loader.name.to_owned(), format!("{error:#}"));
                        continue;
                    }
                }
            }
            loaders.push(*loader);
        }
        loaders
    }
}

/// The loaders that are compared: those of `only`, by their names in the script; without names all, or each once.
fn wanted(only: &[String], extent: Extent) -> impl Iterator<Item = &'static Loader> {
    LOADERS.iter().filter(move |loader| match only {
        [] => extent == Extent::Full || loader.workers == WORKERS_QUICK,
        only => loader.is_ours() || only.iter().any(|name| name == loader.script),
    })
}

fn far(stage: &Stage<'_>, loaders: &[Loader], outcome: &mut Outcome) -> anyhow::Result<Far> {
    step("a bucket with photographs, in all formats");
    for loader in loaders {
        if let Some(reason) = bucket::reason(loader) {
            outcome.absent.insert(bucket::absence(loader), reason.to_owned());
        }
    }
    let folder = stage.made.with_file_name("bucket");
    let far = Far::start(stage, &folder, loaders, &mut outcome.absent)?;
    outcome.bucket = far.checked();
    Ok(far)
}

struct Turns<'a, 'b> {
    stage: &'a mut Stage<'b>,
    loaders: Vec<Loader>,
    /// The bucket, if a condition reads from one.
    far: Option<Far>,
}

impl Turns<'_, '_> {
    fn compare(
        &mut self,
        condition: Condition,
        absent: &mut BTreeMap<String, String>,
    ) -> anyhow::Result<Comparison> {
        let mut turns: BTreeMap<&str, Vec<Trained>> = BTreeMap::new();
        for round in 1..=self.stage.settings.rounds {
            for loader in self.loaders.clone() {
                let absence = match condition.place {
                    Place::Bucket => bucket::absence(&loader),
                    _ => loader.name.to_owned(),
                };
                if absent.contains_key(&absence) {
                    continue;
                }
                let name = condition.name();
                step(&format!(
                    "{name}: {}, {round} of {}",
                    loader.name, self.stage.settings.rounds
                ));
                match self.turn(&loader, condition) {
                    Ok(trained) => turns.entry(loader.name).or_default().push(trained),
                    Err(error) if loader.is_ours() => return Err(error),
                    Err(error) => _ = absent.insert(absence, format!("{error:#}")),
                }
            }
        }
        let rows = LOADERS.iter().filter_map(|loader| {
            let turns = turns.get(loader.name)?;
            Some(self.row(loader, condition, turns))
        });
        Ok(Comparison { condition, rows: rows.collect() })
    }

    fn turn(&mut self, loader: &Loader, condition: Condition) -> anyhow::Result<Trained> {
        let (tiers, room) = match condition.place {
            Place::Warm => (self.stage.percent(125), None),
            Place::SlowDisk => (Bytes(0), None),
            Place::Memory(percent) => {
                let share = self.stage.percent(u64::from(percent));
                (share, Some(Bytes(share.0 + if loader.is_ours() { STAGING.0 } else { 0 })))
            }
            Place::Bucket => {
                let far = self.far.as_ref().context("there is a bucket for this condition")?;
                return far.train(self.stage, loader, condition.decode);
            }
        };
        let training = Training {
            loader: loader.script.to_owned(),
            data: loader.data(self.stage),
            batch_size: BATCH,
            epochs: condition.epochs(),
            step_s: 0.0,
            workers: loader.workers,
            decode: condition.decode,
            job: job(Bytes(tiers.0 + STAGING.0)),
        };
        let name = loader.name.to_owned();
        self.stage.train(&Side { name, training, room, hog: None, is_far: false })
    }

    fn row(&self, loader: &Loader, condition: Condition, turns: &[Trained]) -> Row {
        let first = condition.first();
        let images = match (&self.far, condition.place) {
            (Some(far), Place::Bucket) => far.photographs,
            _ => self.stage.settings.photographs,
        };
        let images = f64::from(images);
        let median = |figure: &dyn Fn(&Trained) -> f64| {
            percentile(&turns.iter().map(figure).collect::<Vec<_>>(), 50).unwrap_or(f64::NAN)
        };
        let rates: Vec<f64> = turns.iter().map(|turn| images / turn.epoch_s(first)).collect();
        let cpu_s = median(&|turn| turn.epoch_cpu_s(first));
        let rates = Value::of(&rates).unwrap_or(Value::exactly(f64::NAN));
        let used = |figure: &dyn Fn(&Used) -> u64| {
            median(&|turn| turn.used.as_ref().map_or(f64::NAN, |used| figure(used) as f64))
        };
        Row {
            loader: loader.name,
            images_per_s: rates,
            images_per_cpu_s: images / cpu_s,
            cpu_s_per_batch: cpu_s * f64::from(BATCH) / images,
            stalled: median(&|turn| turn.stalled_s(first) / turn.epoch_s(first)),
            first_batch_s: median(&|turn| turn.first_batch_s),
            memory_bytes: used(&|used| used.memory.0) as u64,
            read: used(&|used| used.read.0)
                / (self.stage.dataset.0 as f64 * f64::from(condition.epochs())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_has_each_loader_once_and_names_choose_all_its_kinds() {
        let scripts = |only: &[&str], extent| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            wanted(&only, extent).map(|it| it.script).collect::<Vec<_>>()
        };
        let mut quick = scripts(&[], Extent::Quick);
        let count = quick.len();
        quick.dedup();
        assert_eq!((count, quick.len()), (9, 9));
        assert_eq!(scripts(&[], Extent::Full).len(), LOADERS.len());
        let named = ["tierfeed", "dataloader", "dataloader", "dataloader"];
        assert_eq!(scripts(&["dataloader"], Extent::Quick), named);
    }
}
