//! `tierfeed-bench decode`: photographs decoded, cropped and resized by tierfeed, torchvision, Pillow, DALI, SPDL and
//! the workers of a `DataLoader`, turn by turn.
//!
//! A turn is all photographs once, with one thread or two. The peers are processes that live through all turns, so
//! that no turn pays for an import; the first turn of each is not measured. tierfeed's side is what the transform
//! worker of an agent does to a sample.
//!
//! Whole loaders are compared besides ([`loader`]).

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod loader;

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, anyhow, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use nix::sys::resource::UsageWho;
use serde::{Deserialize, Serialize};
use tierfeed_harness::{
    bench::{Bench, Folder},
    clock::now,
    failure::Failure,
    judgement::{Judged, Judgement},
    output::step,
    programs::Programs,
    statistics::percentile,
    talking::Talking,
};
use tierfeed_images::{Decoder, Image, Region, Settings as ImageSettings};
use tierfeed_transform::{Pipeline, PipelineFile, worker_protocol::InputForm};
use tierfeed_transform_worker::{Input, Transform};

use self::loader::Loaders;
use crate::cpu_time::cpu_time;

const STORED: &str = "TierLoader, images kept as stored";
const BY_DEFAULT: &str = "TierLoader";
const DATA_LOADER: &str = "DataLoader";

const SCRIPT: &str = include_str!("../peers/decode.py");

const GENERATED: usize = 96;
/// Photographs and turns of a quick run.
const IMAGES_QUICK: usize = 96;
const ROUNDS_QUICK: usize = 3;

/// The least ratio for crops in exact mode, over torchvision with one thread.
pub(crate) const CROP_RATIO_MIN: f64 = 1.5;
/// The least ratio for crops in exact mode, over DALI with one thread.
pub(crate) const DALI_RATIO_MIN: f64 = 1.7;
/// The least ratio for whole images, over torchvision with one thread.
pub(crate) const WHOLE_RATIO_MIN: f64 = 1.0;
/// The least ratio of a `TierLoader` with two threads over a `DataLoader` with two workers.
pub(crate) const LOADER_RATIO_MIN: f64 = 1.6;

const CROP: &str = r#"{"random_resized_crop": 224}, {"random_horizontal_flip": 0.5}"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Work {
    /// A random crop of 224 by 224 pixels, mirrored or not.
    Crop,
    Decode,
}

impl Work {
    fn name(self) -> &'static str {
        match self {
            Self::Crop => "crop",
            Self::Decode => "decode",
        }
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// A Python with torchvision, Pillow and tierfeed: target/frameworks/newest/bin/python after
    /// `make test-frameworks`. DALI and SPDL are measured if it has them (nvidia-dali-cuda120, spdl).
    #[arg(long, value_name = "FILE")]
    pub(crate) python: PathBuf,
    /// A folder of photographs (*.JPEG), beside generated ones.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) photographs: Option<PathBuf>,
    /// How many photographs are taken at most.
    #[arg(long, value_name = "NUMBER", default_value_t = 256,
          value_parser = RangedU64ValueParser::<usize>::new().range(32..=1_000_000))]
    pub(crate) images: usize,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 5,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// Fewer photographs and turns: less than three minutes.
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) comparisons: Vec<Comparison>,
    pub(crate) loaders: Vec<Side>,
    /// Peers that are not installed, with the reason.
    pub(crate) absent: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    /// `photographs` or `generated`.
    pub(crate) images: &'static str,
    pub(crate) work: Work,
    pub(crate) threads: usize,
    /// The first is tierfeed's exact mode.
    pub(crate) sides: Vec<Side>,
}

/// One side, medians over its turns.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) images_per_s: f64,
    /// `None` for workers of a `DataLoader`, whose CPU time is not known.
    pub(crate) images_per_cpu_s: Option<f64>,
    /// tierfeed's images a second over those of this side.
    pub(crate) ratio: f64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Turn {
    pub(crate) seconds: f64,
    cpu_seconds: f64,
    images: usize,
}

impl Judged for Outcome {
    /// The floors for the exact mode over torchvision and, in crops, DALI, with one thread, and for the whole
    /// loader.
    fn judged(&self) -> Judgement {
        let alone = self.comparisons.iter().filter(|it| it.threads == 1);
        let judged = alone.fold(Judgement::default(), |judged, comparison| {
            let what = format!("{} of {}", comparison.work.name(), comparison.images);
            let floors: &[_] = match comparison.work {
                Work::Crop => &[("torchvision", CROP_RATIO_MIN), ("DALI", DALI_RATIO_MIN)],
                Work::Decode => &[("torchvision", WHOLE_RATIO_MIN)],
            };
            floors.iter().fold(judged, |judged, (name, least)| {
                match comparison.sides.iter().find(|it| it.name == *name) {
                    Some(side) => {
                        judged.at_least(&format!("{what}, over {name}"), side.ratio, *least)
                    }
                    None => judged,
                }
            })
        });
        self.loaders.iter().filter(|it| it.name == DATA_LOADER).fold(judged, |judged, side| {
            judged.at_least("whole loader, over DataLoader", side.ratio, LOADER_RATIO_MIN)
        })
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(mut self) -> Result<Outcome, Failure> {
        let tierfeed = Programs::find()?.tierfeed;
        if self.quick {
            (self.images, self.rounds) = (IMAGES_QUICK, ROUNDS_QUICK);
        }
        Ok(self.folder.with_files(|folder| compare(&self, &tierfeed, folder))?)
    }
}

fn compare(settings: &Settings, tierfeed: &Path, folder: &Path) -> anyhow::Result<Outcome> {
    let script = folder.join("decode.py");
    fs::write(&script, SCRIPT)?;
    let python = std::path::absolute(&settings.python)?;
    let mut outcome = Outcome { comparisons: Vec::new(), loaders: Vec::new(), absent: Vec::new() };
    let generated = folder.join("generated");
    fs::create_dir(&generated)?;
    step("making photographs");
    let made = Command::new(&python)
        .arg(&script)
        .args(["prepare".as_ref(), generated.as_os_str()])
        .arg(GENERATED.to_string())
        .status()
        .with_context(|| python.display().to_string())?;
    ensure!(made.success(), "{} could not make photographs", python.display());
    let mut sets = vec![("generated", generated)];
    if let Some(photographs) = &settings.photographs {
        let chosen = folder.join("photographs");
        link_photographs(photographs, &chosen, settings.images)?;
        sets.insert(0, ("photographs", chosen));
    }
    let (_, first) = &sets[0];
    let loaders = Loaders {
        tierfeed,
        python: &python,
        script: &script,
        photographs: first,
        folder,
        rounds: settings.rounds,
    };
    outcome.loaders = loaders.compare()?;
    for (images, folder) in sets {
        let mut sides = Sides::start(&python, &script, &folder)?;
        for work in [Work::Crop, Work::Decode] {
            for threads in [1, 2] {
                step(&format!("{images}: {} with {threads} threads", work.name()));
                let sides = sides.compare(work, threads, settings.rounds)?;
                outcome.comparisons.push(Comparison { images, work, threads, sides });
            }
        }
        outcome.absent = sides.absent;
    }
    Ok(outcome)
}

/// Links photographs, evenly chosen, into a folder.
fn link_photographs(from: &Path, to: &Path, max: usize) -> anyhow::Result<()> {
    fs::create_dir(to)?;
    let paths = photographs(from)?;
    ensure!(!paths.is_empty(), "{} has no *.JPEG", from.display());
    let step = paths.len().div_ceil(max);
    for (number, path) in paths.iter().step_by(step).enumerate() {
        let path = std::path::absolute(path)?;
        std::os::unix::fs::symlink(path, to.join(format!("{number:05}.JPEG")))?;
    }
    Ok(())
}

fn photographs(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "JPEG") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

enum Way {
    /// tierfeed, with steps before the crop.
    Ours(&'static str),
    Peer(Peer),
}

struct Sides {
    paths: Vec<PathBuf>,
    ways: Vec<(&'static str, Way)>,
    absent: Vec<String>,
}

impl Sides {
    fn start(python: &Path, script: &Path, folder: &Path) -> anyhow::Result<Self> {
        let mut ways = vec![
            ("tierfeed", Way::Ours("")),
            ("tierfeed, dct: fast", Way::Ours(r#"{"decode": {"dct": "fast"}},"#)),
            ("tierfeed, scaled: true", Way::Ours(r#"{"decode": {"scaled": true}},"#)),
        ];
        let mut absent = Vec::new();
        for name in ["torchvision", "Pillow", "DALI", "SPDL", "DataLoader"] {
            match Peer::start(python, script, folder, name)? {
                Ok(peer) => ways.push((name, Way::Peer(peer))),
                Err(why) => absent.push(format!("{name} is {why}")),
            }
        }
        Ok(Self { paths: photographs(folder)?, ways, absent })
    }

    fn compare(&mut self, work: Work, threads: usize, rounds: usize) -> anyhow::Result<Vec<Side>> {
        let mut turns: Vec<Vec<Turn>> = self.ways.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            for ((name, way), turns) in self.ways.iter_mut().zip(&mut turns) {
                let turn = match way {
                    Way::Ours(_) if work == Work::Decode && *name != "tierfeed" => continue,
                    Way::Ours(steps) => ours(steps, &self.paths, work, threads),
                    Way::Peer(peer) => peer.turn(work, threads),
                };
                let turn = turn.with_context(|| (*name).to_owned())?;
                if round > 0 && turn.images > 0 {
                    turns.push(turn);
                }
            }
        }
        let names = self.ways.iter().map(|it| it.0);
        let mut sides: Vec<Side> =
            names.zip(&turns).filter_map(|(name, turns)| side(name, turns)).collect();
        let exact = sides.first().map_or(f64::NAN, |it| it.images_per_s);
        for side in &mut sides {
            side.ratio = exact / side.images_per_s;
        }
        Ok(sides)
    }
}

fn side(name: &'static str, turns: &[Turn]) -> Option<Side> {
    let median = |figure: fn(&Turn) -> f64| {
        let figures: Vec<f64> = turns.iter().map(figure).collect();
        percentile(&figures, 50)
    };
    let images_per_s = median(|it| it.images as f64 / it.seconds)?;
    let images_per_cpu_s = median(|it| it.images as f64 / it.cpu_seconds)?;
    let images_per_cpu_s = (name != "DataLoader").then_some(images_per_cpu_s);
    Some(Side { name, images_per_s, images_per_cpu_s, ratio: 1.0 })
}

/// tierfeed's turn, each thread with a worker's memory of its own.
pub(crate) fn ours(
    steps: &str,
    paths: &[PathBuf],
    work: Work,
    threads: usize,
) -> anyhow::Result<Turn> {
    let file: PipelineFile = serde_json::from_str(&format!(r#"{{"steps": [{steps} {CROP}]}}"#))?;
    let pipeline = Pipeline::try_new(&file)?;
    let started = now();
    let cpu = cpu_time(UsageWho::RUSAGE_SELF)?;
    thread::scope(|scope| {
        let parts = (0..threads).map(|part| {
            let paths = paths.iter().enumerate().skip(part).step_by(threads);
            let pipeline = pipeline.clone();
            scope.spawn(move || match work {
                Work::Crop => crops(pipeline, paths),
                Work::Decode => wholes(paths),
            })
        });
        let parts: Vec<_> = parts.collect();
        parts
            .into_iter()
            .try_for_each(|part| part.join().map_err(|_| anyhow!("a thread panicked"))?)
    })?;
    let cpu_seconds = cpu_time(UsageWho::RUSAGE_SELF)?.saturating_sub(cpu).as_secs_f64();
    Ok(Turn { seconds: started.elapsed().as_secs_f64(), cpu_seconds, images: paths.len() })
}

fn crops<'a>(
    pipeline: Pipeline,
    paths: impl Iterator<Item = (usize, &'a PathBuf)>,
) -> anyhow::Result<()> {
    let mut row = vec![0; usize::try_from(pipeline.row_bytes())?];
    let mut transform = Transform::new(pipeline, 7);
    let mut bytes = Vec::new();
    for (sample, path) in paths {
        read(path, &mut bytes)?;
        let sample = sample as u64;
        let input = Input { sample, epoch: 0, form: InputForm::Stored, bytes: &bytes };
        transform.apply(&input, &mut row, None).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Reads into memory that is used again, as workers read from an arena.
fn read(path: &Path, bytes: &mut Vec<u8>) -> anyhow::Result<()> {
    bytes.clear();
    fs::File::open(path)?.read_to_end(bytes)?;
    Ok(())
}

fn wholes<'a>(paths: impl Iterator<Item = (usize, &'a PathBuf)>) -> anyhow::Result<()> {
    let (mut decoder, mut image) = (Decoder::default(), Image::default());
    let mut bytes = Vec::new();
    for (_, path) in paths {
        read(path, &mut bytes)?;
        let header = decoder.header(&bytes, u64::MAX)?;
        let region = Region::whole(header.size);
        decoder
            .decode(&bytes, header, region, &ImageSettings::default(), &mut image)
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// A process that decodes when it is told.
struct Peer(Talking);

impl Peer {
    /// Starts it, or returns the reason why it cannot run.
    fn start(
        python: &Path,
        script: &Path,
        folder: &Path,
        name: &str,
    ) -> anyhow::Result<Result<Self, String>> {
        let mut command = Command::new(python);
        command.arg(script).args([name.as_ref(), folder.as_os_str()]).args(["-W", "ignore"]);
        let mut process = Talking::start(command.stderr(Stdio::null()))?;
        let said = process.hear()?;
        Ok(if said == "ready" { Ok(Self(process)) } else { Err(said) })
    }

    fn turn(&mut self, work: Work, threads: usize) -> anyhow::Result<Turn> {
        self.0.tell(&serde_json::json!([work.name(), threads]).to_string())?;
        let said = self.0.hear()?;
        serde_json::from_str(&said).with_context(|| format!("it said '{said}'"))
    }
}
