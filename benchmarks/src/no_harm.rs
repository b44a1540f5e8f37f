//! `tierfeed-bench no-harm`: a training on a slow disk, through tierfeed and through PyTorch's `DataLoader`
//! with the page cache, turn by turn.
//!
//! The shape is that of DLIO's `UNet3D`: few large files, read whole. They lie on an ext4 image whose reads the
//! kernel throttles ([`tierfeed_harness::slow_disk`]), and the page cache is emptied before each turn. A step takes a
//! fixed time without a processor, as on an accelerator, whose utilisation in an epoch is the share of these steps.
//!
//! With memory to spare, tierfeed must use it as well as the kernel does for `DataLoader`. Then both run in a
//! memory group that holds what tierfeed needs with its tiers, and nothing more, so that the page cache of
//! `DataLoader` has less room than the dataset; steps are short there, so that reading decides.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, builder::RangedU64ValueParser};
use serde::Serialize;
use tierfeed_core::units::{Bytes, BytesPerSecond, Nanoseconds};
use tierfeed_harness::{
    bench::{Bench, Folder},
    clock::pause,
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    memory_group::MemoryGroup,
    output::step,
    programs::Programs,
    slow_disk::{SlowDisk, on_slow_disk},
    statistics::percentile,
};

use crate::runs::{Report, read_json};

const SCRIPT: &str = include_str!("../peers/no_harm.py");

/// The largest difference by which tierfeed's utilisation may lie below that of `DataLoader`, in points of
/// percent.
pub(crate) const POINTS_MAX: f64 = 1.0;
/// The least throughput over that of `DataLoader` where the page cache has no room.
pub(crate) const RATIO_MIN: f64 = 1.5;
/// With a lower utilisation of `DataLoader` with the page cache, the machine was too busy to tell.
const QUIET_MIN: f64 = 90.0;

/// Room of the group beside the measured need, for kernel memory and variation.
const SPARE: Bytes = Bytes::mib(16);

/// Steps in the group are shorter by this factor.
const SHORTER: u32 = 10;

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// A Python with torch and tierfeed.
    #[arg(long, value_name = "FILE", default_value = "python3")]
    pub(crate) python: PathBuf,
    /// One round of three epochs, at twice the rate: it takes less than a minute.
    #[arg(long)]
    pub(crate) quick: bool,
    /// The number of files.
    #[arg(long, value_name = "NUMBER", default_value_t = 96,
          value_parser = clap::value_parser!(u64).range(8..=100_000))]
    pub(crate) files: u64,
    /// The size of a file.
    #[arg(long, value_name = "SIZE", default_value = "4 MB")]
    pub(crate) file: Bytes,
    /// Files in a batch.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) batch_size: u64,
    /// How long a step takes.
    #[arg(long, value_name = "TIME", default_value = "100 ms")]
    pub(crate) step: Nanoseconds,
    /// How fast the disk is read.
    #[arg(long, value_name = "RATE", default_value = "60 MB/s")]
    pub(crate) rate: BytesPerSecond,
    /// The size of main memory and of CXL memory, an emulated one.
    #[arg(long, value_name = "SIZE", default_value = "160 MiB")]
    pub(crate) tier: Bytes,
    /// Epochs of a turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) epochs: u32,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// Workers of DataLoader.
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    pub(crate) workers: usize,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) dataset_bytes: u64,
    pub(crate) throttle: &'static str,
    /// With memory to spare.
    pub(crate) roomy: Comparison,
    /// In a group that has no room for page cache beside tierfeed's tiers; `None` where no group can be made.
    pub(crate) tight: Option<Tight>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) tierfeed: Side,
    pub(crate) dataloader: Side,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Tight {
    pub(crate) limit_bytes: u64,
    pub(crate) sides: Comparison,
    /// tierfeed's throughput over that of `DataLoader`, from the second epoch on.
    pub(crate) ratio: f64,
}

/// One side, medians over its turns.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    /// The utilisation of the accelerator in each epoch, in percent.
    pub(crate) utilisation_percent: Vec<f64>,
    /// The same from the second epoch on.
    pub(crate) later_percent: f64,
    /// Seconds of an epoch from the second one on.
    pub(crate) later_s: f64,
    /// Bytes that tierfeed's page cache served, by its report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) page_cache_read_bytes: Option<u64>,
}

struct Turn {
    epochs_s: Vec<f64>,
    page_cache_read: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Tierfeed,
    DataLoader,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        let (ours, plain) = (&self.roomy.tierfeed, &self.roomy.dataloader);
        let mut judged = Judgement::default();
        if plain.later_percent < QUIET_MIN {
            let what = format!(
                "DataLoader with the page cache reached {:.1} % of the accelerator: the machine is too busy",
                plain.later_percent
            );
            judged = judged.verdict(what, "inconclusive");
        } else {
            let points = plain.later_percent - ours.later_percent;
            judged = judged.at_most("points of utilisation below DataLoader", points, POINTS_MAX);
        }
        match &self.tight {
            Some(tight) => judged.at_least("throughput without page cache", tight.ratio, RATIO_MIN),
            None => judged.verdict("no memory group could be made".to_owned(), "inconclusive"),
        }
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(mut self) -> Result<Outcome, Failure> {
        let _watch = self.folder.watch()?;
        if self.quick {
            self.rate.0 *= 2;
            (self.epochs, self.rounds) = (3, 1);
        }
        let programs = Programs::find()?;
        Ok(self.folder.with_files(|folder| measure(&self, &programs, folder))?)
    }
}

/// Writes the files to a slow disk, trains in turns, and removes the disk.
fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    let dataset = Bytes(settings.files * settings.file.0);
    on_slow_disk(folder, dataset, |disk| {
        let data = disk.path().join("data");
        for number in 0..settings.files {
            let file = data.join(format!("{number:04}.npz"));
            files::write_noise(&file, number, settings.file.0)?;
        }
        disk.limit(settings.rate)?;
        let script = folder.join("no_harm.py");
        fs::write(&script, SCRIPT)?;
        let job = folder.join("job.yaml");
        fs::write(&job, job_text(settings, &data))?;
        Turns { settings, programs, folder, disk, data, script, job }.run(dataset)
    })
}

struct Turns<'a> {
    settings: &'a Settings,
    programs: &'a Programs,
    folder: &'a Path,
    disk: &'a SlowDisk,
    data: PathBuf,
    script: PathBuf,
    job: PathBuf,
}

impl Turns<'_> {
    fn run(&self, dataset: Bytes) -> anyhow::Result<Outcome> {
        let roomy = self.compare("memory to spare", None, self.step())?;
        let tight = match MemoryGroup::make(Some(self.disk)) {
            Ok(group) => Some(self.in_group(&group)?),
            Err(error) => {
                step(&format!("no memory group: {error:#}"));
                None
            }
        };
        let throttle = self.disk.throttle();
        Ok(Outcome { dataset_bytes: dataset.0, throttle, roomy, tight })
    }

    fn step(&self) -> Duration {
        Duration::from_nanos(self.settings.step.0)
    }

    /// Measures the need of tierfeed, and gives both sides that much and no more.
    fn in_group(&self, group: &MemoryGroup) -> anyhow::Result<Tight> {
        step("what tierfeed needs beside page cache");
        let mut most = Bytes(0);
        let computes = self.step() / SHORTER;
        let mut watch = |group: &MemoryGroup| most = most.max(group.held());
        self.turn(Reader::Tierfeed, Some(group), computes, &mut watch)?;
        let limit = Bytes((most.0 + SPARE.0) / 100 * 106);
        group.limit(limit)?;
        let sides = self.compare(&format!("a group of {limit}"), Some(group), computes)?;
        let ratio = sides.dataloader.later_s / sides.tierfeed.later_s;
        Ok(Tight { limit_bytes: limit.0, sides, ratio })
    }

    fn compare(
        &self,
        title: &str,
        group: Option<&MemoryGroup>,
        computes: Duration,
    ) -> anyhow::Result<Comparison> {
        let (mut ours, mut plain) = (Vec::new(), Vec::new());
        for round in 1..=self.settings.rounds {
            step(&format!("{title}: round {round} of {}", self.settings.rounds));
            ours.push(self.turn(Reader::Tierfeed, group, computes, &mut |_| ())?);
            plain.push(self.turn(Reader::DataLoader, group, computes, &mut |_| ())?);
        }
        Ok(Comparison {
            tierfeed: self.side(&ours, computes)?,
            dataloader: self.side(&plain, computes)?,
        })
    }

    fn turn(
        &self,
        reader: Reader,
        group: Option<&MemoryGroup>,
        computes: Duration,
        watch: &mut dyn FnMut(&MemoryGroup),
    ) -> anyhow::Result<Turn> {
        self.disk.forget_cached()?;
        let (result, run_dir) = (self.folder.join("epochs.json"), self.folder.join("run"));
        let python = &self.settings.python;
        let mut command = match reader {
            Reader::Tierfeed => {
                let mut run = self.command(group, &self.programs.tierfeed);
                run.args(["run", "--run-dir"]).arg(&run_dir).arg(&self.job).arg("--").arg(python);
                run
            }
            Reader::DataLoader => self.command(group, python),
        };
        let Settings { batch_size, epochs, workers, .. } = self.settings;
        let step = computes.as_secs_f64();
        command.arg(&self.script).arg(reader.name()).arg(&self.data);
        command.args([batch_size.to_string(), epochs.to_string(), step.to_string()]);
        command.arg(workers.to_string()).arg(&result).stdout(std::io::stderr());
        let child = command.spawn().context("the turn cannot be started")?;
        wait(child, group, watch).with_context(|| format!("a turn of {}", reader.name()))?;
        let epochs_s: Vec<f64> = read_json(&result)?;
        ensure!(epochs_s.len() >= 2, "a turn of fewer than two epochs");
        fs::remove_file(&result)?;
        let page_cache_read = match reader {
            Reader::Tierfeed => {
                let report = Report::read(&run_dir)?;
                fs::remove_dir_all(&run_dir)?;
                report.page_cache.map(|it| it.read_bytes)
            }
            Reader::DataLoader => None,
        };
        Ok(Turn { epochs_s, page_cache_read })
    }

    fn command(&self, group: Option<&MemoryGroup>, program: &Path) -> Command {
        group.map_or_else(|| self.disk.enter(program), |group| group.enter(program))
    }

    fn side(&self, turns: &[Turn], step: Duration) -> anyhow::Result<Side> {
        let Settings { files, batch_size, epochs, .. } = self.settings;
        let computes = files.div_ceil(*batch_size) as f64 * step.as_secs_f64();
        let median = |values: Vec<f64>| percentile(&values, 50).context("a side without a turn");
        let of_epoch = |epoch: usize| {
            let times = turns.iter().filter_map(|turn| turn.epochs_s.get(epoch));
            median(times.map(|time| 100.0 * computes / time).collect())
        };
        let later: Vec<f64> =
            turns.iter().flat_map(|turn| turn.epochs_s.iter().skip(1).copied()).collect();
        let later_s = median(later)?;
        Ok(Side {
            utilisation_percent: (0..*epochs as usize).map(of_epoch).collect::<Result<_, _>>()?,
            later_percent: 100.0 * computes / later_s,
            later_s,
            page_cache_read_bytes: turns.iter().filter_map(|turn| turn.page_cache_read).max(),
        })
    }
}

impl Reader {
    fn name(self) -> &'static str {
        match self {
            Self::Tierfeed => "tierfeed",
            Self::DataLoader => "dataloader",
        }
    }
}

/// Waits for the end of a turn, and looks at its group meanwhile.
fn wait(
    mut child: Child,
    group: Option<&MemoryGroup>,
    watch: &mut dyn FnMut(&MemoryGroup),
) -> anyhow::Result<()> {
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("it failed ({status}); its messages are above");
            }
            return Ok(());
        }
        group.into_iter().for_each(&mut *watch);
        pause(Duration::from_millis(50));
    }
}

fn job_text(settings: &Settings, data: &Path) -> String {
    let Settings { batch_size, epochs, tier, .. } = settings;
    format!(
        "name: bench-no-harm\n\
         dataset: {{ source: {data}, format: files, glob: \"*.npz\" }}\n\
         order: {{ shuffle: torch-distributed, seed: 42, epochs: {epochs} }}\n\
         batch_size: {batch_size}\n\
         chunk: 16 MiB\n\
         tiers:\n\
         \x20 main-memory: {{ size: {tier} }}\n\
         \x20 cxl-memory: {{ size: {tier}, emulate: {{ latency: 350 ns, bandwidth: 20 GB/s }} }}\n",
        data = data.display(),
    )
}
