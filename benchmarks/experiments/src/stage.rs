//! The base of real experiments: photographs on a slow disk, trainings in turns, and the needs of their
//! loaders.

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
    bench::Folder,
    failure::Failure,
    files,
    output::step,
    programs::{self, Programs},
    slow_disk::{SLICE, SlowDisk, on_slow_disk},
};

use crate::{
    document,
    figure::Prediction,
    machine::{Machine, OutOfMemory},
    prediction::predict,
    training::{Trained, Trainer, Training},
};

pub(crate) const BATCH: u32 = 16;
/// The longer side of a photograph, in pixels.
const SIDE: u32 = 500;
/// Decoded images that tierfeed stages beside its tiers, to a whole chunk; less if they are not decoded, see
/// [`Stage::staged`].
pub(crate) const STAGING: Bytes = Bytes::mib(16);
/// More than any job of an experiment stages.
const MORE_THAN_STAGED: Bytes = Bytes::mib(64);
/// Room beside the measured need, for kernel memory and variation. Page cache may fill the rest of it.
const SPARE: Bytes = Bytes::mib(32);

/// A step in which loaders fill what they buffer, in seconds.
const SLOW_STEP_S: f64 = 0.03;
/// Attempts at a training, with more memory each time.
const ATTEMPTS: u32 = 4;

/// The greatest time by which a limited disk may be ahead of its limit: a slice, and the delay of a loaded
/// machine.
const AHEAD_MAX: Nanoseconds = Nanoseconds(2 * SLICE.0);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Extent {
    Full,
    /// The most telling sides of each figure, in a minute or two for a paper: to see what a change broke.
    Quick,
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub extent: Extent,
    /// A Python with the loaders: `scripts/frameworks/setup.sh peers`.
    pub python: PathBuf,
    pub tierfeed: PathBuf,
    pub s3_server: PathBuf,
    /// Parent of the folder with the data, which are removed afterwards.
    pub folder: PathBuf,
    /// A tar of labelled images, each `CLASS/NAME.jpg` below any folder; `None` for generated ones.
    pub labelled: Option<PathBuf>,
    pub photographs: u32,
    pub rounds: usize,
}

impl Settings {
    /// The settings, with the programs that are built beside this one.
    pub(crate) fn find(
        python: &Path,
        folder: &Folder,
        extent: Extent,
        photographs: u32,
        rounds: usize,
    ) -> Result<Self, Failure> {
        Ok(Self {
            extent,
            python: python.to_owned(),
            tierfeed: Programs::find()?.tierfeed,
            s3_server: programs::s3_server(None)?,
            folder: folder.parent(),
            labelled: None,
            photographs,
            rounds,
        })
    }
}

pub(crate) struct Stage<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) trainer: Trainer,
    pub(crate) disk: &'a SlowDisk,
    /// Where the photographs were made; not on the slow disk.
    pub(crate) made: PathBuf,
    pub(crate) dataset: Bytes,
    rate: BytesPerSecond,
    /// The emulation of the disk, and the rate that a stopwatch measured.
    pub(crate) emulated: String,
    /// Memory that the processes of a loader need by themselves.
    held: BTreeMap<String, Bytes>,
    /// Bytes that a job of tierfeed stages, by its batches and whether it decodes.
    staged: BTreeMap<(u32, bool), Bytes>,
    /// Of the turns since the predictions were taken last.
    predictions: Vec<Prediction>,
}

#[derive(Debug, Deserialize)]
struct Report {
    tiers: Vec<Tier>,
}

#[derive(Debug, Deserialize)]
struct Tier {
    name: String,
    cache_bytes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) training: Training,
    /// Memory for page cache or tiers, beside the need of the processes; `None` for all of the machine.
    pub(crate) room: Option<Bytes>,
    /// More of it, which `tierfeed hog` takes before.
    pub(crate) hog: Option<Bytes>,
    /// Whether its data are not on the disk.
    pub(crate) is_far: bool,
}

/// Makes photographs and a disk of `rate` with room for `copies` of them, runs `experiment`, and removes both.
pub(crate) fn on_stage<T>(
    settings: &Settings,
    rate: BytesPerSecond,
    copies: u64,
    experiment: impl FnOnce(&mut Stage<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    files::in_folder(&settings.folder, |folder| {
        let trainer = Trainer::new(&settings.python, &settings.tierfeed, folder)?;
        let made = folder.join("photographs");
        step(&format!("{} photographs", settings.photographs));
        trainer.make("photographs", &made, &[settings.photographs, SIDE])?;
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
            experiment(&mut stage)
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

    pub(crate) fn photographs(&self) -> PathBuf {
        self.disk.path().join("photographs")
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub(crate) fn megabytes(&self) -> f64 {
        self.dataset.0 as f64 / 1e6
    }

    pub(crate) fn percent(&self, percent: u64) -> Bytes {
        Bytes(self.dataset.0 * percent / 100)
    }

    pub(crate) fn rate(&self) -> BytesPerSecond {
        self.rate
    }

    /// Runs `experiment` with another limit of the disk.
    pub(crate) fn with_disk<T>(
        &mut self,
        rate: BytesPerSecond,
        experiment: impl FnOnce(&mut Self) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let before = (self.rate, self.emulated.clone());
        self.limit_disk(rate)?;
        let outcome = experiment(self);
        (self.rate, self.emulated) = before;
        self.disk.limit(self.rate)?;
        outcome
    }

    /// Bytes that a job stages beside its tiers, as a run of one epoch reports it.
    pub(crate) fn staged(&mut self, training: &Training) -> anyhow::Result<Bytes> {
        let key = (training.batch_size, training.decode);
        if let Some(staged) = self.staged.get(&key) {
            return Ok(*staged);
        }
        let mut job = job(MORE_THAN_STAGED);
        job["page_cache"] = "off".into();
        let alone = Training { epochs: 1, step_s: 0.0, job, ..training.clone() };
        let machine = Machine { disk: Some(self.disk), ..Machine::default() };
        let run_dir = self.trainer.train(&machine, &alone)?.run_dir;
        let run_dir = run_dir.context("a run of tierfeed has a directory")?;
        let report: Report = document::read(&run_dir.join("report.json"))?;
        let main = report.tiers.iter().find(|tier| tier.name == "main-memory");
        let staged = Bytes(MORE_THAN_STAGED.0.saturating_sub(main.map_or(0, |it| it.cache_bytes)));
        self.staged.insert(key, staged);
        Ok(staged)
    }

    /// Trains once with the memory of a side. A loader that needs more than it was measured to hold gets more, and so
    /// do its next turns.
    pub(crate) fn train(&mut self, side: &Side) -> anyhow::Result<Trained> {
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

    fn train_with(&self, side: &Side, memory: Option<Bytes>) -> anyhow::Result<Trained> {
        let disk = (!side.is_far).then_some(self.disk);
        let machine = |memory| Machine { disk, memory, ..Machine::default() };
        match side.hog {
            None => self.trainer.train(&machine(memory), &side.training),
            Some(take) => {
                let memory = memory.map(|memory| Bytes(memory.0 + take.0));
                self.trainer.train_beside_hog(&machine(memory), &side.training, take)
            }
        }
    }

    /// The memory of a side: that of its processes, its room, and [`SPARE`].
    fn memory(&mut self, side: &Side) -> anyhow::Result<Option<Bytes>> {
        let Some(room) = side.room else { return Ok(None) };
        Ok(Some(Bytes(self.held_by(side)?.0 + room.0 + SPARE.0)))
    }

    /// The turns of the sides alternate.
    pub(crate) fn turns(&mut self, sides: &[Side]) -> anyhow::Result<Vec<Vec<Trained>>> {
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

    /// Predicts the turn with the median time, where tierfeed trained alone from the disk.
    fn predict(&mut self, side: &Side, turns: &[Trained]) -> anyhow::Result<()> {
        if side.is_far || side.hog.is_some() {
            return Ok(());
        }
        let mut turns: Vec<&Trained> = turns.iter().collect();
        turns.sort_by(|a, b| a.total_s().total_cmp(&b.total_s()));
        let Some(run_dir) = turns.get(turns.len() / 2).and_then(|it| it.run_dir.as_ref()) else {
            return Ok(());
        };
        let tierfeed = &self.settings.tierfeed;
        self.predictions.push(predict(tierfeed, &side.name, run_dir, self.rate)?);
        Ok(())
    }

    pub(crate) fn add_predictions(&mut self, predictions: Vec<Prediction>) {
        self.predictions.extend(predictions);
    }

    /// The predictions of the turns since the last call.
    pub(crate) fn take_predictions(&mut self) -> Vec<Prediction> {
        std::mem::take(&mut self.predictions)
    }

    /// Memory that the processes of a side need without page cache and without tiers, by a run without a
    /// limit, in which steps are so slow that buffers fill.
    fn held_by(&mut self, side: &Side) -> anyhow::Result<&mut Bytes> {
        let Training { loader, workers, decode, .. } = &side.training;
        let key = format!("{loader} {workers} {decode}");
        if !self.held.contains_key(&key) {
            let is_tierfeed = loader.starts_with("tierfeed");
            let mut alone = Training { epochs: 1, step_s: SLOW_STEP_S, ..side.training.clone() };
            if loader == "tierfeed" {
                alone.job = job(STAGING);
            } else if is_tierfeed {
                alone.job["tiers"] = job(STAGING)["tiers"].clone();
            }
            let alone = Side { training: alone, hog: None, ..side.clone() };
            let used = self.train_with(&alone, None)?.used;
            let used = used.context("a training says what it used")?.memory;
            let tiers = if is_tierfeed { STAGING } else { Bytes(0) };
            self.held.insert(key.clone(), Bytes(used.0.saturating_sub(tiers.0)));
        }
        self.held.get_mut(&key).context("it was inserted")
    }
}

/// Limits the reads of a disk, and reads `files` of `bytes` by a stopwatch; returns the rates through the
/// page
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

/// A job without its data, whose main memory includes the staging.
pub(crate) fn job(main_memory: Bytes) -> Json {
    let size = format!("{} B", main_memory.0);
    json!({ "chunk": "1 MiB", "tiers": { "main-memory": { "size": size } } })
}

/// Adds keys to a job; keys of a mapping that the job has are added to that mapping.
pub(crate) fn extend(job: &mut Json, more: &Json) {
    for (key, value) in more.as_object().into_iter().flatten() {
        match (job.get_mut(key), value) {
            (Some(Json::Object(old)), Json::Object(new)) => old.extend(new.clone()),
            _ => job[key] = value.clone(),
        }
    }
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
