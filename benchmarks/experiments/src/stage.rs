//! What real experiments stand on: photographs on a slow disk, trainings in turns, and what their loaders need.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};
use tierfeed_harness::{
    files,
    slow_disk::{SLICE, SlowDisk, on_slow_disk},
};

use crate::{
    figure::{Along, Chart, Figure, Prediction, Series, Source, Value},
    machine::{Machine, OutOfMemory},
    prediction::predict,
    training::{Trained, Trainer, Training},
};

/// Samples of a batch.
pub(crate) const BATCH: u32 = 16;
/// The longer side of a photograph, in pixels.
const SIDE: u32 = 500;
/// What tierfeed stages of decoded images beside its tiers, to a whole chunk; less of bytes, see [`Stage::memory_for`].
pub(crate) const STAGING: Bytes = Bytes::mib(16);
/// More than any job of an experiment stages.
const MORE_THAN_STAGED: Bytes = Bytes::mib(64);
/// Tiers have whole chunks.
const CHUNK: Bytes = Bytes::mib(1);
/// Room beside what was measured, for kernel memory and what varies. Page cache may fill the rest of it.
pub(crate) const SPARE: Bytes = Bytes::mib(32);

/// A step in which loaders fill what they buffer, in seconds.
const SLOW_STEP_S: f64 = 0.03;
/// How often a training is tried, with more memory each time.
const ATTEMPTS: u32 = 4;

/// A limited disk may be ahead of its limit by so much: a slice, and what a loaded machine adds.
const AHEAD_MAX: Nanoseconds = Nanoseconds(2 * SLICE.0);

/// How much of an experiment runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of it, as figures are quoted.
    Full,
    /// The sides of each figure that tell most, in a minute or two for a paper: to see what a change broke.
    Quick,
}

/// The settings of real experiments.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How much of each figure runs.
    pub extent: Extent,
    /// A Python with the loaders: `scripts/frameworks/setup.sh peers`.
    pub python: PathBuf,
    /// The path of the `tierfeed` binary.
    pub tierfeed: PathBuf,
    /// The path of the S3 server.
    pub s3_server: PathBuf,
    /// Where data are made, and removed afterwards.
    pub folder: PathBuf,
    /// A tar of labelled images, each `CLASS/NAME.jpg` below any folder; generated ones without.
    pub labelled: Option<PathBuf>,
    /// How many photographs there are.
    pub photographs: u32,
    /// Turns of each side.
    pub rounds: usize,
}

/// Photographs on a disk, and what trains over them.
pub(crate) struct Stage<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) trainer: Trainer,
    pub(crate) disk: &'a SlowDisk,
    /// Where the photographs were made; not on the slow disk.
    pub(crate) made: PathBuf,
    /// Bytes of the photographs.
    pub(crate) dataset: Bytes,
    /// How fast the disk is read.
    rate: BytesPerSecond,
    /// How the disk is emulated, and what a stopwatch said of it.
    pub(crate) emulated: String,
    /// What the processes of a loader hold by themselves.
    held: BTreeMap<String, Bytes>,
    /// What a job of tierfeed stages, by its batches and whether it decodes.
    staged: BTreeMap<(u32, bool), Bytes>,
    /// Of the turns since they were taken.
    predictions: Vec<Prediction>,
}

/// Of the report of a run.
#[derive(Debug, Deserialize)]
struct Report {
    tiers: Vec<Tier>,
}

#[derive(Debug, Deserialize)]
struct Tier {
    name: String,
    cache_bytes: u64,
}

/// One side of a comparison.
#[derive(Debug, Clone)]
pub(crate) struct Side<'a> {
    /// Its name in tables and charts.
    pub(crate) name: String,
    pub(crate) training: Training<'a>,
    /// Memory for page cache or tiers, beside what the processes need; `None` for all of the machine.
    pub(crate) room: Option<Bytes>,
}

/// Makes photographs and a disk of `rate` with room for `copies` of them, runs `experiment`, and removes both.
pub(crate) fn on_stage<T>(
    settings: &Settings,
    rate: BytesPerSecond,
    copies: u64,
    step: &mut dyn FnMut(&str),
    experiment: impl FnOnce(&mut Stage<'_>, &mut dyn FnMut(&str)) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    files::in_folder(&settings.folder, |folder| {
        let trainer = Trainer::new(&settings.python, &settings.tierfeed, folder)?;
        let made = folder.join("photographs");
        step(&format!("{} photographs", settings.photographs));
        trainer.write_photographs(&made, settings.photographs, SIDE)?;
        let dataset = Bytes(bytes_below(&made)?);
        on_slow_disk(folder, Bytes(dataset.0 * copies), |disk| {
            copy_below(&made, &disk.path().join("photographs"))?;
            let mut stage = Stage {
                settings,
                trainer,
                disk,
                made,
                dataset,
                rate,
                emulated: String::new(),
                held: BTreeMap::new(),
                staged: BTreeMap::new(),
                predictions: Vec::new(),
            };
            stage.limit_disk(rate)?;
            experiment(&mut stage, step)
        })
    })
}

impl Stage<'_> {
    /// Limits the reads of the disk, and reads the photographs by a stopwatch.
    ///
    /// # Errors
    ///
    /// If the disk is faster than its limit: nothing that is measured on it would be true.
    pub(crate) fn limit_disk(&mut self, rate: BytesPerSecond) -> anyhow::Result<()> {
        let [through, past] = limited(self.disk, rate, &self.photographs(), self.dataset)?;
        self.rate = rate;
        self.emulated = format!(
            "the disk is a loop device whose reads the kernel limits to {rate}; a stopwatch read all photographs at \
             {through} through the page cache, which was empty, and as much at {past} past it"
        );
        Ok(())
    }

    /// The photographs on the slow disk.
    pub(crate) fn photographs(&self) -> PathBuf {
        self.disk.path().join("photographs")
    }

    /// Megabytes of the photographs.
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn megabytes(&self) -> f64 {
        self.dataset.0 as f64 / 1e6
    }

    /// A part of the dataset.
    pub(crate) fn percent(&self, percent: u64) -> Bytes {
        Bytes(self.dataset.0 * percent / 100)
    }

    /// The main memory with which the cache of a job holds so much, in whole chunks: beside it is what the job stages,
    /// as a run of one epoch reports it.
    pub(crate) fn memory_for(
        &mut self,
        cached: Bytes,
        training: &Training<'_>,
    ) -> anyhow::Result<Bytes> {
        let key = (training.batch_size, training.decode);
        if !self.staged.contains_key(&key) {
            let job = job(MORE_THAN_STAGED, &[("page_cache", "off".into())]);
            let alone = Training { epochs: 1, step_s: 0.0, job, ..training.clone() };
            let machine = Machine { disk: Some(self.disk), ..Machine::default() };
            let run_dir = self.trainer.train(&machine, &alone)?.run_dir;
            let path = run_dir.context("a run of tierfeed has a directory")?.join("report.json");
            let report = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let report: Report = serde_json::from_str(&report)?;
            let main = report.tiers.iter().find(|tier| tier.name == "main-memory");
            let staged = MORE_THAN_STAGED.0.saturating_sub(main.map_or(0, |it| it.cache_bytes));
            self.staged.insert(key, Bytes(staged));
        }
        Ok(Bytes(cached.0 / CHUNK.0 * CHUNK.0 + self.staged[&key].0))
    }

    /// Trains once with the memory of a side and so much more, which `tierfeed hog` takes before.
    pub(crate) fn train_beside_hog(
        &mut self,
        side: &Side<'_>,
        take: Bytes,
    ) -> anyhow::Result<Trained> {
        let memory = self.memory(side)?.map(|memory| Bytes(memory.0 + take.0));
        let machine = Machine { disk: Some(self.disk), memory, ..Machine::default() };
        self.trainer.train_beside_hog(&machine, &side.training, take)
    }

    /// Trains once with the memory of a side. A loader that needs more than it was measured to hold gets more, and so
    /// do its next turns.
    pub(crate) fn train(&mut self, side: &Side<'_>) -> anyhow::Result<Trained> {
        let mut attempts = ATTEMPTS;
        let trained = loop {
            let memory = self.memory(side)?;
            match self.train_with(side, memory) {
                Err(error) if error.is::<OutOfMemory>() && attempts > 1 => {
                    attempts -= 1;
                    self.held_by(side)?.0 += SPARE.0;
                }
                trained => break trained.with_context(|| side.name.clone())?,
            }
        };
        let all = u64::from(self.settings.photographs);
        let short = trained.images.iter().find(|images| **images < all);
        ensure!(short.is_none(), "{}: an epoch of {short:?} images of {all}", side.name);
        Ok(trained)
    }

    fn train_with(&self, side: &Side<'_>, memory: Option<Bytes>) -> anyhow::Result<Trained> {
        let machine = Machine { disk: Some(self.disk), memory, ..Machine::default() };
        self.trainer.train(&machine, &side.training)
    }

    /// The memory of a side: what its processes hold, its room, and something to spare.
    fn memory(&mut self, side: &Side<'_>) -> anyhow::Result<Option<Bytes>> {
        let Some(room) = side.room else { return Ok(None) };
        Ok(Some(Bytes(self.held_by(side)?.0 + room.0 + SPARE.0)))
    }

    /// The turns of all sides, which alternate.
    pub(crate) fn turns(
        &mut self,
        sides: &[Side<'_>],
        step: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Vec<Vec<Trained>>> {
        let rounds = self.settings.rounds;
        let mut turns: Vec<Vec<Trained>> = sides.iter().map(|_| Vec::new()).collect();
        for round in 1..=rounds {
            for (side, turns) in sides.iter().zip(&mut turns) {
                step(&format!("{}: turn {round} of {rounds}", side.name));
                turns.push(self.train(side)?);
            }
        }
        for (side, turns) in sides.iter().zip(&turns) {
            self.predict(side, turns)?;
        }
        Ok(turns)
    }

    /// What the simulator says of the turn with the median time, where tierfeed trained.
    fn predict(&mut self, side: &Side<'_>, turns: &[Trained]) -> anyhow::Result<()> {
        let mut turns: Vec<&Trained> = turns.iter().collect();
        turns.sort_by(|a, b| a.total_s().total_cmp(&b.total_s()));
        let Some(run_dir) = turns.get(turns.len() / 2).and_then(|it| it.run_dir.as_ref()) else {
            return Ok(());
        };
        let tierfeed = &self.settings.tierfeed;
        self.predictions.push(predict(tierfeed, &side.name, run_dir, self.rate)?);
        Ok(())
    }

    /// Repeats a figure, with what the simulator says of its turns.
    pub(crate) fn repeat(
        &mut self,
        repeat: impl FnOnce(&mut Self, &mut dyn FnMut(&str)) -> anyhow::Result<Figure>,
        step: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Figure> {
        let figure = repeat(self, step)?;
        Ok(Figure { predictions: self.take_predictions(), ..figure })
    }

    /// Adds what the simulator says of turns.
    pub(crate) fn add_predictions(&mut self, predictions: Vec<Prediction>) {
        self.predictions.extend(predictions);
    }

    /// What the simulator said of the turns since this was asked last.
    pub(crate) fn take_predictions(&mut self) -> Vec<Prediction> {
        std::mem::take(&mut self.predictions)
    }

    /// Runs all sides in turns, and draws `figure` of each: a series for each row, along all of `along`.
    pub(crate) fn chart(
        &mut self,
        (x, y): (&str, &str),
        along: Along,
        rows: Vec<(String, Vec<Side<'_>>)>,
        figure: impl Fn(&Trained) -> f64,
        step: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Chart> {
        let sides: Vec<Side<'_>> = rows.iter().flat_map(|(_, sides)| sides.clone()).collect();
        let mut turns = self.turns(&sides, step)?.into_iter();
        let series = rows.into_iter().map(|(name, sides)| Series {
            name,
            source: Source::Measured,
            values: turns.by_ref().take(sides.len()).map(|it| value(&it, &figure)).collect(),
        });
        let series = series.collect();
        Ok(Chart { title: String::new(), x: x.to_owned(), y: y.to_owned(), along, series })
    }

    /// What the processes of a side hold without page cache and without tiers, by a run without a limit, in which steps
    /// are so slow that buffers fill.
    fn held_by(&mut self, side: &Side<'_>) -> anyhow::Result<&mut Bytes> {
        let Training { loader, workers, decode, .. } = side.training;
        let key = format!("{loader} {workers} {decode}");
        if !self.held.contains_key(&key) {
            let is_tierfeed = loader.starts_with("tierfeed");
            let mut alone = Training { epochs: 1, step_s: SLOW_STEP_S, ..side.training.clone() };
            if loader == "tierfeed" {
                alone.job = job(STAGING, &[]);
            } else if is_tierfeed {
                alone.job["tiers"] = job(STAGING, &[])["tiers"].clone();
            }
            let alone = Side { training: alone, ..side.clone() };
            let used = self.train_with(&alone, None)?.used;
            let used = used.context("a training says what it used")?.memory;
            let tiers = if is_tierfeed { STAGING } else { Bytes(0) };
            self.held.insert(key.clone(), Bytes(used.0.saturating_sub(tiers.0)));
        }
        self.held.get_mut(&key).context("it was inserted")
    }
}

/// Limits the reads of a disk, and reads files of so many bytes by a stopwatch; returns the rates through the page
/// cache and past it.
///
/// # Errors
///
/// If the disk is faster than its limit: nothing that is measured on it would be true.
pub(crate) fn limited(
    disk: &SlowDisk,
    rate: BytesPerSecond,
    files: &Path,
    bytes: Bytes,
) -> anyhow::Result<[BytesPerSecond; 2]> {
    disk.limit(rate)?;
    let rates = disk.stopwatch(files)?;
    for read in rates {
        let is_true = read.time_for(bytes).0 + AHEAD_MAX.0 >= rate.time_for(bytes).0;
        ensure!(is_true, "a disk that is limited to {rate} delivers {read}");
    }
    Ok(rates)
}

/// What tierfeed needs to know beside the data: main memory with what is staged, and further keys.
pub(crate) fn job(main_memory: Bytes, more: &[(&str, Json)]) -> Json {
    let size = format!("{} B", main_memory.0);
    let mut job = json!({ "chunk": "1 MiB", "tiers": { "main-memory": { "size": size } } });
    for (key, value) in more {
        extend(&mut job, &json!({ *key: value }));
    }
    job
}

/// Adds keys to a job; those of mappings that it has go into them.
pub(crate) fn extend(job: &mut Json, more: &Json) {
    for (key, value) in more.as_object().into_iter().flatten() {
        match (job.get_mut(key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => old.extend(new.clone()),
            _ => job[key] = value.clone(),
        }
    }
}

/// Emulated CXL memory, as a tier of a job.
pub(crate) fn cxl_memory(size: Bytes) -> Json {
    let emulate = json!({ "latency": "350 ns", "bandwidth": "20 GB/s" });
    json!({ "cxl-memory": { "size": format!("{} B", size.0), "emulate": emulate } })
}

/// The median of a figure of all turns, with its range.
pub(crate) fn value(turns: &[Trained], figure: impl Fn(&Trained) -> f64) -> Option<Value> {
    Value::of(&turns.iter().map(figure).collect::<Vec<_>>())
}

pub(crate) fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        bytes += if is_folder { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// Copies a folder, with the times at which its files changed: all copies are the same dataset.
pub(crate) fn copy_below(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_below(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
            let modified = entry.metadata()?.modified()?;
            fs::File::options().write(true).open(target)?.set_modified(modified)?;
        }
    }
    fs::File::open(to)?.set_modified(fs::metadata(from)?.modified()?)?;
    Ok(())
}
