//! Runs the trials of an experiment on a stage: the turns of their sides, on this host or on nodes of it.

use std::{collections::BTreeMap, path::PathBuf, thread};

use anyhow::Context as _;
use serde_json::json;
use tierfeed_core::units::{Bytes, BytesPerSecond};
use tierfeed_harness::output::step;

use super::{
    file::{Data, Phases, SideFile, Trial},
    measure::{One, Outcome, Ran, SKIPPED, Setting},
    ram_disk::RamDisk,
    sizes::Known,
};
use crate::{
    bucket::{Bucket, Pace},
    machine::Machine,
    ranks::{self, on_nodes},
    stage::{self, Stage, bytes_below, copy_below},
    training::{Trained, Training, mean},
};

/// One of this many photographs is slow to decode, since its longer side has so many pixels.
const SLOW_OF: u32 = 32;
const SLOW_SIDE: u32 = 3200;
/// Copies of the photographs on shared storage: copying them takes seconds, and the room that a training has beside
/// its memory holds only a small part of them.
const SHARED: u32 = 4;
/// The stopwatch of a bucket reads this part, a tenth of the photographs.
const WATCHED: &str = "class0";

/// Runs those of its sides that are `wanted`; `None` if there are none.
pub(super) fn run(
    stage: &mut Stage<'_>,
    trial: &Trial,
    ram_disk: Option<&RamDisk<'_>>,
    wanted: &dyn Fn(&SideFile) -> bool,
) -> anyhow::Result<Option<Outcome>> {
    let sides: Vec<&SideFile> = trial.sides.iter().filter(|it| wanted(it)).collect();
    if trial.only.is_some_and(|only| only != stage.settings.extent) {
        return Ok(None);
    }
    let Some(first) = sides.first() else { return Ok(None) };
    if first.nodes.is_some() {
        let rate = trial.disk.unwrap_or(stage.rate());
        return of_nodes(stage, trial, &sides, rate).map(Some);
    }
    let of_disk = |stage: &mut Stage<'_>| of_stage(stage, trial, &sides, ram_disk);
    match trial.disk {
        Some(rate) => stage.with_disk(rate, of_disk).map(Some),
        None => of_disk(stage).map(Some),
    }
}

fn of_stage(
    stage: &mut Stage<'_>,
    trial: &Trial,
    files: &[&SideFile],
    ram_disk: Option<&RamDisk<'_>>,
) -> anyhow::Result<Outcome> {
    let (data, bytes) = made(trial.data, stage)?;
    let far = Far::start(stage, files)?;
    let mut sides = Vec::new();
    for file in files {
        let data = match (file.data, &file.bucket) {
            (Some(Data::RamDisk), _) => ram_disk.context("there is a RAM disk")?.path.to_owned(),
            (_, Some(pace)) => far.of(*pace)?.all(),
            _ => data.clone(),
        };
        sides.push(side(stage, file, data, bytes)?);
    }
    let mut told = told(stage);
    told.insert("trial", trial.setting.clone());
    let mut setting = Setting {
        photographs: f64::from(stage.settings.photographs),
        megabytes: stage.megabytes(),
        phases: trial.phases.as_ref().map_or(0, |it| it.steps.len()),
        ..Setting::default()
    };
    let slow = if trial.data == Data::WithSlow { stage.settings.photographs / SLOW_OF } else { 0 };
    let steps = (stage.settings.photographs + slow).div_ceil(files[0].batch_size);
    setting.computed_s = files[0].step_s * f64::from(steps);
    if let Some(phases) = &trial.phases {
        let batch_s = in_phases(stage, &mut sides, phases)?;
        told.insert("batch_ms", format!("{:.0}", batch_s * 1e3));
    }
    let turns = stage.turns(&sides)?;
    if let Some(phases) = &trial.phases {
        let timed = sides.iter().position(|it| it.name == phases.of);
        let waits = timed.into_iter().flat_map(|at| &turns[at]).flat_map(|it| &it.waits).flatten();
        let shortest = waits.copied().min_by(f64::total_cmp);
        setting.ready_s = shortest.with_context(|| format!("{} waited for no batch", phases.of))?;
        told.insert("ready_ms", format!("{:.1}", setting.ready_s * 1e3));
    }
    told.extend([
        ("data", bytes.to_string()),
        ("slow", slow.to_string()),
        ("computed_s", format!("{:.2}", setting.computed_s)),
        ("request_ms", far.checked.join(", ")),
    ]);
    if let Some(ram_disk) = ram_disk {
        told.insert("copy_s", format!("{:.1}", ram_disk.copy_s()));
    }
    let turns = files.iter().zip(turns).map(|(file, turns)| {
        let copies = ram_disk.filter(|_| file.data == Some(Data::RamDisk));
        let copies = copies.map_or(&[][..], |it| &it.copies_s);
        let one = |(at, trained): (usize, Trained)| {
            let copy_s = copies.get(at).copied().unwrap_or_default();
            Ran::One(Box::new(One { trained, copy_s, missed: Vec::new(), dollars: [0.0; 2] }))
        };
        (file.name.clone(), turns.into_iter().enumerate().map(one).collect())
    });
    Ok(Outcome { name: trial.name.clone(), setting, told, turns: turns.collect() })
}

/// What texts of all trials may name.
pub(super) fn told(stage: &Stage<'_>) -> BTreeMap<&'static str, String> {
    let read_s = stage.rate().time_for(stage.dataset).0;
    let processors = match thread::available_parallelism().map_or(1, usize::from) {
        1 => "1 processor".to_owned(),
        several => format!("{several} processors"),
    };
    BTreeMap::from([
        ("photographs", stage.settings.photographs.to_string()),
        ("photographs_shared", (stage.settings.photographs * SHARED).to_string()),
        ("dataset", stage.dataset.to_string()),
        ("disk", stage.rate().to_string()),
        ("emulated", stage.emulated.clone()),
        (
            "read_s",
            format!(
                "{:.1}",
                f64::from(u32::try_from(read_s / 1_000_000).unwrap_or(u32::MAX)) / 1e3
            ),
        ),
        ("processors", processors),
    ])
}

/// Makes the data where they lie on the disk, unless they are there; returns their bytes too.
fn made(data: Data, stage: &Stage<'_>) -> anyhow::Result<(PathBuf, Bytes)> {
    let on_disk = |name: &str| stage.disk.path().join(name);
    let path = match data {
        Data::Photographs | Data::RamDisk | Data::Bucket => {
            return Ok((stage.photographs(), stage.dataset));
        }
        Data::WithSlow => {
            let (data, count) = (on_disk("with-slow"), stage.settings.photographs / SLOW_OF);
            step(&format!("{count} photographs that are slow to decode"));
            copy_below(&stage.made, &data)?;
            stage.trainer.make("slow-photographs", &data, &[count, SLOW_SIDE])?;
            data
        }
        Data::Shared => {
            let data = on_disk("shared");
            for time in 0..SHARED {
                copy_below(&stage.made, &data.join(time.to_string()))?;
            }
            return Ok((data, Bytes(stage.dataset.0 * u64::from(SHARED))));
        }
        Data::Recordings => {
            let data = on_disk("recordings");
            if !data.is_dir() {
                stage.trainer.make("recordings", &data, &[stage.settings.photographs])?;
            }
            data
        }
    };
    let bytes = bytes_below(&path)?;
    Ok((path, Bytes(bytes)))
}

fn side(
    stage: &mut Stage<'_>,
    file: &SideFile,
    data: PathBuf,
    bytes: Bytes,
) -> anyhow::Result<stage::Side> {
    let mut training = training(file, data);
    let staged = if training.job.to_string().contains("staged") {
        stage.staged(&training)?
    } else {
        Bytes(0)
    };
    let folder = stage.trainer.folder();
    let known = Known { data: bytes, images: stage.settings.photographs, staged, folder };
    known.in_job(&mut training.job)?;
    let size = |sum: &Option<String>| sum.as_ref().map(|it| known.size(it)).transpose();
    Ok(stage::Side {
        name: file.name.clone(),
        room: size(&file.room)?,
        hog: size(&file.hog)?,
        is_far: file.bucket.is_some(),
        training,
    })
}

fn training(file: &SideFile, data: PathBuf) -> Training {
    Training {
        loader: file.loader.clone(),
        data,
        batch_size: file.batch_size,
        epochs: file.epochs,
        step_s: file.step_s,
        workers: file.workers,
        decode: file.decode,
        job: file.job.clone(),
    }
}

/// Gives all sides the steps of the phases; returns the seconds of a batch where nothing is computed.
fn in_phases(
    stage: &mut Stage<'_>,
    sides: &mut [stage::Side],
    phases: &Phases,
) -> anyhow::Result<f64> {
    let timed = sides.iter().find(|it| it.name == phases.of).context("a side is timed")?;
    step(&format!("{}: a batch", timed.name));
    let waits = stage.train(timed)?.waits;
    let counted = waits.first().and_then(|it| it.get(SKIPPED..)).filter(|it| !it.is_empty());
    let batch_s = mean(counted.context("an epoch has few batches")?);
    let steps_s: Vec<f64> = phases.steps.iter().map(|part| part * batch_s).collect();
    for side in sides {
        let count = stage.settings.photographs / side.training.batch_size;
        let steps = count as usize / steps_s.len();
        side.training.job["phases"] = json!({ "steps": steps, "steps_s": steps_s });
    }
    Ok(batch_s)
}

/// The buckets of a trial, each with all photographs.
struct Far {
    buckets: Vec<(Pace, Bucket)>,
    /// The time of one request to each, by a stopwatch.
    checked: Vec<String>,
}

impl Far {
    fn start(stage: &Stage<'_>, files: &[&SideFile]) -> anyhow::Result<Self> {
        let mut far = Self { buckets: Vec::new(), checked: Vec::new() };
        for pace in files.iter().filter_map(|it| it.bucket) {
            if far.of(pace).is_err() {
                let bucket = Bucket::start(&stage.settings.s3_server, &stage.made, pace)?;
                far.buckets.push((pace, bucket));
            }
        }
        for (_, bucket) in &far.buckets {
            let read = stage.trainer.times(&Machine::default(), &bucket.at(WATCHED), 1)?;
            let requests = f64::from(stage.settings.photographs.div_ceil(10));
            far.checked.push(format!("{:.2} ms", 1e3 * read.seconds / requests));
        }
        Ok(far)
    }

    fn of(&self, pace: Pace) -> anyhow::Result<&Bucket> {
        let found = self.buckets.iter().find(|(it, _)| *it == pace);
        found.map(|(_, bucket)| bucket).context("each pace has its bucket")
    }
}

fn of_nodes(
    stage: &mut Stage<'_>,
    trial: &Trial,
    files: &[&SideFile],
    rate: BytesPerSecond,
) -> anyhow::Result<Outcome> {
    let most = files.iter().filter_map(|it| it.nodes).max().unwrap_or(1);
    let mut told = told(stage);
    let (outcome, stopwatch) = on_nodes(stage, usize::try_from(most)?, rate, |nodes| {
        let setting = setting(nodes, trial, files[0], rate);
        let known = Known {
            data: nodes.dataset,
            images: nodes.photographs_count(),
            staged: Bytes(0),
            folder: nodes.folder(),
        };
        let side = |file: &&SideFile| {
            let mut training = training(file, nodes.photographs());
            if trial.compute_to_load.is_some() {
                training.step_s = setting.step_s;
            }
            known.in_job(&mut training.job)?;
            Ok(ranks::Side {
                name: file.name.clone(),
                nodes: file.nodes.unwrap_or(1),
                ranks_per_node: file.ranks_per_node,
                room: known.size(file.room.as_deref().context("a node has room")?)?,
                training,
            })
        };
        let sides = files.iter().map(side).collect::<anyhow::Result<Vec<_>>>()?;
        let turns = nodes.turns(&sides)?.into_iter();
        let turns = turns.map(|turns| turns.into_iter().map(Ran::Ranks).collect());
        let turns = files.iter().map(|it| it.name.clone()).zip(turns).collect();
        let outcome = Outcome { name: trial.name.clone(), setting, turns, ..Outcome::default() };
        Ok((outcome, nodes.stopwatch.clone()))
    })?;
    stage.disk.limit(stage.rate())?;
    told.extend([
        ("trial", trial.setting.clone()),
        ("disk", rate.to_string()),
        ("stopwatch", stopwatch),
        ("steps", steps(stage.settings.photographs, files[0]).to_string()),
        ("step_ms", format!("{:.0}", outcome.setting.step_s * 1e3)),
    ]);
    Ok(Outcome { told, ..outcome })
}

fn steps(photographs: u32, file: &SideFile) -> u32 {
    photographs.div_ceil(file.batch_size * file.nodes.unwrap_or(1) * file.ranks_per_node)
}

#[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
fn setting(
    nodes: &ranks::Nodes<'_>,
    trial: &Trial,
    file: &SideFile,
    rate: BytesPerSecond,
) -> Setting {
    let count = f64::from(steps(nodes.photographs_count(), file));
    let bytes = nodes.dataset.0 as f64;
    let load_s = bytes / f64::from(file.nodes.unwrap_or(1)) / rate.0 as f64;
    let step_s = trial.compute_to_load.map_or(file.step_s, |part| part * load_s / count);
    Setting {
        megabytes: bytes / 1e6,
        epochs: file.epochs,
        step_s,
        computed_s: step_s * count,
        ..Setting::default()
    }
}
