//! Trainings of several ranks on several nodes, which all wait for each other after every step.
//!
//! A node is a control group on this host, with a disk of its own that all nodes see at the same place, and with
//! memory of its own. `tierfeed run` starts the ranks of tierfeed, and `benchmarks/peers/ranks.py` those of others.

mod ranked;

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context as _, anyhow, ensure};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tierfeed_core::units::{Bytes, BytesPerSecond};
use tierfeed_harness::{
    output::step,
    slow_disk::{AHEAD, SlowDisk, on_slow_disk},
};

pub(crate) use self::ranked::Ranked;
use self::ranked::{Report, mean};
use crate::{
    document,
    figure::Prediction,
    machine::Machine,
    prediction::Simulation,
    stage::{self, Settings, Stage},
    training::{Trainer, Training},
};

/// Batches that are staged ahead of each rank: as many as two workers of a `DataLoader` have in work.
const STAGED: u32 = 4;
const CHUNK: Bytes = Bytes::mib(1);
/// The folder of a tenth of the photographs.
const TIMED: &str = "class0";
/// The first epoch whose time is predicted: agents read from their start on, and the ranks meet some time later.
const WARM: usize = 1;
/// Bytes of a row, which is a sample after the crop.
const ROW: u64 = 3 * 224 * 224;

pub(crate) struct Nodes<'a> {
    settings: &'a Settings,
    trainer: &'a Trainer,
    disks: &'a [&'a SlowDisk],
    /// The path at which each node sees its disk.
    place: PathBuf,
    pub(crate) dataset: Bytes,
    rate: BytesPerSecond,
    pub(crate) stopwatch: String,
    predictions: Vec<Prediction>,
    /// Bytes that tierfeed stages on a node, by nodes and ranks of a node.
    staged: BTreeMap<(u32, u32), Bytes>,
}

#[derive(Debug, Clone)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) nodes: u32,
    pub(crate) ranks_per_node: u32,
    /// The training of each rank; for tierfeed, `job` has further keys of the job file.
    pub(crate) training: Training,
    /// Memory of a node for page cache or tiers, beside the need of its processes.
    pub(crate) room: Bytes,
}

/// Makes `count` nodes whose disks have `rate`, runs `experiment`, and removes all disks but the first.
pub(crate) fn on_nodes<T>(
    stage: &mut Stage<'_>,
    count: usize,
    rate: BytesPerSecond,
    experiment: impl FnOnce(&mut Nodes<'_>) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let folder = stage.trainer.folder();
    let place = folder.join("dataset");
    fs::create_dir_all(&place)?;
    let (outcome, predictions) = with_disks(stage, count, &[stage.disk], |disks| {
        let mut nodes = Nodes {
            settings: stage.settings,
            trainer: &stage.trainer,
            disks,
            place,
            dataset: stage.dataset,
            rate,
            stopwatch: limit(disks, rate)?,
            predictions: Vec::new(),
            staged: BTreeMap::new(),
        };
        Ok((experiment(&mut nodes)?, nodes.predictions))
    })?;
    stage.add_predictions(predictions);
    Ok(outcome)
}

/// Limits the disks of all nodes, and reads a part of the photographs from all at a time, by a stopwatch.
fn limit(disks: &[&SlowDisk], rate: BytesPerSecond) -> anyhow::Result<String> {
    let limited = |disk: &SlowDisk| {
        let part = disk.path().join("photographs").join(TIMED);
        let bytes = Bytes(stage::bytes_below(&part)?);
        stage::limited(disk, rate, &part, bytes)
    };
    let rates = thread::scope(|scope| {
        let timed: Vec<_> = disks.iter().map(|disk| scope.spawn(|| limited(disk))).collect();
        let ended =
            timed.into_iter().map(|it| it.join().map_err(|_| anyhow!("a stopwatch failed"))?);
        ended.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let of_disk = |[through, past]: &[BytesPerSecond; 2]| format!("{through} and {past}");
    let all = rates.iter().map(of_disk).collect::<Vec<_>>().join(", ");
    Ok(format!(
        "the disk of a node is a loop device whose reads the kernel limits to {rate}; a stopwatch read a tenth of the \
         photographs from all of them at a time, through the page cache, which was empty, and past it, at {all}"
    ))
}

fn with_disks<T, F: FnOnce(&[&SlowDisk]) -> anyhow::Result<T>>(
    stage: &Stage<'_>,
    count: usize,
    made: &[&SlowDisk],
    experiment: F,
) -> anyhow::Result<T> {
    if made.len() >= count {
        return experiment(made);
    }
    let folder = stage.trainer.folder().join(format!("node-{}", made.len()));
    fs::create_dir_all(&folder)?;
    on_slow_disk(&folder, stage.dataset, |disk| {
        stage::copy_below(&stage.made, &disk.path().join("photographs"))?;
        let all: Vec<_> = made.iter().copied().chain([disk]).collect();
        with_disks(stage, count, &all, experiment)
    })
}

impl Nodes<'_> {
    pub(crate) fn photographs(&self) -> PathBuf {
        self.place.join("photographs")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.trainer.folder()
    }

    pub(crate) fn photographs_count(&self) -> u32 {
        self.settings.photographs
    }

    /// The turns of the sides alternate.
    pub(crate) fn turns(&mut self, sides: &[Side]) -> anyhow::Result<Vec<Vec<Ranked>>> {
        let rounds = self.settings.rounds;
        let mut turns: Vec<Vec<Ranked>> = sides.iter().map(|_| Vec::new()).collect();
        for side in sides.iter().filter(|it| it.training.loader != "tierfeed") {
            step(&format!("{}: its programs come into memory", side.name));
            self.load_programs(side)?;
        }
        for round in 1..=rounds {
            for (side, turns) in sides.iter().zip(&mut turns) {
                step(&format!("{}: turn {round} of {rounds}", side.name));
                turns.push(self.train(side)?);
            }
        }
        for (side, turns) in sides.iter().zip(&turns) {
            if side.training.loader == "tierfeed" {
                let prediction = self.predict(side, turns)?;
                self.predictions.push(prediction);
            }
        }
        Ok(turns)
    }

    /// Predicts the turn with the median time, without its first epoch. The simulator gets the time that a
    /// step computes, as it was set, and the measured time of the transform of a sample.
    fn predict(&mut self, side: &Side, turns: &[Ranked]) -> anyhow::Result<Prediction> {
        let mut turns: Vec<&Ranked> = turns.iter().collect();
        turns.sort_by(|a, b| a.total_s().total_cmp(&b.total_s()));
        let ran = turns.get(turns.len() / 2).context("a side has turns")?;
        let main_memory = self.main_memory(side)?;
        let mut job = self.job(side, main_memory);
        // Where this process sees it.
        job["dataset"]["source"] = json!(self.disks[0].path().join("photographs"));
        let path = self.trainer.folder().join("predicted.json");
        fs::write(&path, serde_json::to_string_pretty(&job)?)?;
        let transforms: Option<Vec<f64>> =
            ran.reports.iter().map(|report| report.run.transform_s()).collect();
        let step_s = side.training.step_s;
        let nodes = match (side.nodes, job["policy"].as_str()) {
            (1, _) => None,
            (_, Some("partitioned")) => Some("--whole-job"),
            _ => Some("--all-nodes"),
        };
        let simulation = Simulation {
            job: &path,
            cold: self.rate,
            step_s,
            transform_s: transforms.map(|of_nodes| mean(of_nodes.into_iter())),
            cold_burst: Some(AHEAD),
            // What is read ahead into tiers carries it into later epochs.
            head_start_s: Some(mean(ran.reports.iter().map(|report| report.run.head_start_s()))),
            nodes,
        };
        let epochs = simulation.epochs(&self.settings.tierfeed);
        let epochs = epochs.with_context(|| side.name.clone())?;
        let later = epochs.get(WARM..).unwrap_or_default();
        let seconds = ran.ranks[0][WARM..].iter().map(|epoch| epoch.seconds).sum();
        Ok(Prediction {
            run: format!("{}, from the second epoch on", side.name),
            predicted_cold_bytes: later.iter().map(|it| it.cold_read_bytes).sum(),
            cold_bytes: ran.reports.iter().map(|report| report.cold_bytes(WARM)).sum(),
            self_read_bytes: 0,
            predicted_s: later.iter().map(|it| it.duration_s).sum(),
            seconds,
            predicted_stall_s: later.iter().map(|it| it.stall_s).sum(),
            stall_s: seconds - step_s * ran.steps_count(WARM),
        })
    }

    /// Trains for an epoch without a limit of the page cache: programs that are already in memory are not
    /// charged to the nodes of later trainings, so that their room is for photographs alone.
    fn load_programs(&self, side: &Side) -> anyhow::Result<()> {
        let training = Training { epochs: 1, step_s: 0.0, ..side.training.clone() };
        let side = Side { training, room: Bytes(u64::MAX), ..side.clone() };
        self.run(&side, Bytes(0)).with_context(|| side.name.clone()).map(drop)
    }

    /// Main memory of tierfeed on a node: the room of a side in whole chunks, and the staging.
    fn main_memory(&mut self, side: &Side) -> anyhow::Result<Bytes> {
        Ok(Bytes(side.room.0 / CHUNK.0 * CHUNK.0 + self.staged_by(side)?.0))
    }

    fn train(&mut self, side: &Side) -> anyhow::Result<Ranked> {
        let main_memory = self.main_memory(side)?;
        let ranked = self.run(side, main_memory);
        let ranked = ranked.with_context(|| side.name.clone())?;
        for number in 0..usize::try_from(side.training.epochs)? {
            let images = ranked.ranks.iter().map(|rank| rank.get(number).map_or(0, |it| it.images));
            let (images, all) = (images.sum::<u64>(), u64::from(self.settings.photographs));
            ensure!(images >= all, "{}: an epoch of {images} images of {all}", side.name);
        }
        let more =
            ranked.reports.iter().map(Report::cached_in_main_memory).find(|it| *it > side.room);
        ensure!(more.is_none(), "{}: a cache of {more:?} instead of {}", side.name, side.room);
        Ok(ranked)
    }

    /// Bytes that tierfeed stages on a node of a side, as its agent reports it.
    fn staged_by(&mut self, side: &Side) -> anyhow::Result<Bytes> {
        let key = (side.nodes, side.ranks_per_node);
        if side.training.loader != "tierfeed" {
            return Ok(Bytes(0));
        }
        if let Some(staged) = self.staged.get(&key) {
            return Ok(*staged);
        }
        let training = Training { epochs: 1, step_s: 0.0, ..side.training.clone() };
        let alone = Side { training, ..side.clone() };
        let main_memory = staged_at_most(side);
        let ran = self.run(&alone, main_memory).with_context(|| side.name.clone())?;
        let report = ran.reports.first().context("an agent reports")?;
        let staged = Bytes(main_memory.0 - report.cached_in_main_memory().0);
        self.staged.insert(key, staged);
        Ok(staged)
    }

    fn run(&self, side: &Side, main_memory: Bytes) -> anyhow::Result<Ranked> {
        let folder = self.trainer.folder();
        let [settings, result, began, job, runs] =
            ["settings.json", "result.json", "result.json.began", "job.json", "run"]
                .map(|name| folder.join(name));
        let Side { nodes, ranks_per_node, .. } = *side;
        let keys = RankSettings { training: &side.training, nodes, ranks_per_node };
        fs::write(&settings, serde_json::to_string(&keys)?)?;
        fs::write(&job, serde_json::to_string_pretty(&self.job(side, main_memory))?)?;
        let count = usize::try_from(nodes)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let logs: Vec<_> = (0..count).map(|node| folder.join(format!("messages-{node}"))).collect();
        let files: Vec<_> = logs.iter().map(fs::File::create).collect::<Result<_, _>>()?;
        let mut files = files.into_iter();
        let is_tierfeed = side.training.loader == "tierfeed";
        // tierfeed reads past the page cache, and its budget holds for the rest.
        let page_cache = (!is_tierfeed).then_some((side.room, began.as_path()));
        let seen_at = Some(self.place.as_path());
        let on = |disk| Machine { disk: Some(disk), seen_at, page_cache, memory: None };
        let machines: Vec<_> = self.disks[..count].iter().map(|disk| on(disk)).collect();
        let (python, script) = (self.trainer.python(), folder.join("ranks.py"));
        let program = if is_tierfeed { self.trainer.tierfeed() } else { python };
        let start = |node: usize, command: &mut Command| {
            if is_tierfeed {
                command.arg("run").arg(&job).args(["--node", &node.to_string()]);
                command.args(["--nodes", &count.to_string()]).arg("--run-dir").arg(&runs);
                command.arg("--").arg(python).arg(&script).arg("rank").args([&settings, &result]);
            } else {
                command.arg(&script).arg("node").args([&settings, &result]).arg(node.to_string());
            }
            command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
            self.trainer.arrange(command).stdout(Stdio::null());
            if let Some(file) = files.next() {
                command.stderr(file);
            }
        };
        let used = Machine::run_all(&machines, program, start).with_context(|| {
            let said = logs.iter().map(|log| fs::read_to_string(log).unwrap_or_default());
            format!("the ranks said:\n{}", said.collect::<Vec<_>>().join("\n"))
        })?;
        fs::remove_file(&began)?;
        let ranks =
            (0..nodes * ranks_per_node).map(|rank| document::read(&numbered(&result, rank)));
        let ranks = ranks.collect::<anyhow::Result<_>>()?;
        let mut reports = Vec::new();
        if is_tierfeed {
            for node in 0..nodes {
                let of_node =
                    if nodes == 1 { runs.clone() } else { runs.join(format!("node-{node}")) };
                reports.push(document::read(&of_node.join("report.json"))?);
            }
            fs::remove_dir_all(&runs)?;
        }
        Ok(Ranked { ranks, used, reports })
    }

    fn job(&self, side: &Side, main_memory: Bytes) -> Json {
        let Training { batch_size, epochs, workers, .. } = side.training;
        let mut job = json!({
            "name": "ranks",
            "batch_size": batch_size,
            "world": { "nodes": side.nodes, "ranks_per_node": side.ranks_per_node },
            "chunk": format!("{} B", CHUNK.0),
            "prefetch": { "batches": STAGED },
            "tiers": { "main-memory": { "size": format!("{} B", main_memory.0) } },
            "dataset": {
                "source": self.photographs(),
                "format": "files",
                "glob": "**/*.jpg",
                "page_cache": "off",
            },
            "order": { "shuffle": "torch-distributed", "seed": 1, "epochs": epochs },
        });
        if side.training.decode {
            let steps = json!([{ "random_resized_crop": 224 }, { "random_horizontal_flip": 0.5 }]);
            job["transform"] = json!({ "steps": steps });
            job["threads"] = json!(workers * side.ranks_per_node);
        }
        stage::extend(&mut job, &side.training.job);
        job
    }
}

/// The most bytes of [`STAGED`] batches of all ranks of a node: the rows, and the stored samples that they
/// are made of.
fn staged_at_most(side: &Side) -> Bytes {
    let samples = u64::from(STAGED * side.training.batch_size * side.ranks_per_node);
    Bytes(samples * ROW * 2)
}

#[derive(Serialize)]
struct RankSettings<'a> {
    #[serde(flatten)]
    training: &'a Training,
    nodes: u32,
    ranks_per_node: u32,
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number}", path.display()))
}
