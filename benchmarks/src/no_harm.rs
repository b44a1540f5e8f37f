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
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use tierfeed_core::units::{Bytes, BytesPerSecond};
use tierfeed_harness::{
    clock::pause,
    files,
    judgement::Judgement,
    memory_group::MemoryGroup,
    programs::Programs,
    slow_disk::{SlowDisk, on_slow_disk},
    statistics::percentile,
};

const SCRIPT: &str = include_str!("../peers/no_harm.py");

/// The largest difference by which tierfeed's utilisation may lie below that of `DataLoader`, in points of
/// percent.
pub const POINTS_MAX: f64 = 1.0;
/// The least throughput over that of `DataLoader` where the page cache has no room.
pub const RATIO_MIN: f64 = 1.5;
/// With a lower utilisation of `DataLoader` with the page cache, the machine was too busy to tell.
const QUIET_MIN: f64 = 90.0;

/// Room of the group beside the measured need, for kernel memory and variation.
const SPARE: Bytes = Bytes::mib(16);

/// Steps in the group are shorter by this factor.
const SHORTER: u32 = 10;

#[derive(Debug, Clone)]
pub struct Settings {
    pub programs: Programs,
    pub python: PathBuf,
    pub folder: PathBuf,
    pub files: u64,
    pub file: Bytes,
    pub batch_size: u64,
    pub step: Duration,
    pub rate: BytesPerSecond,
    /// The size of each of the two tiers.
    pub tier: Bytes,
    /// Epochs of a turn, at least 2.
    pub epochs: u32,
    pub rounds: usize,
    pub workers: usize,
}

#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub dataset_bytes: u64,
    pub throttle: &'static str,
    /// With memory to spare.
    pub roomy: Comparison,
    /// In a group that has no room for page cache beside tierfeed's tiers; `None` where no group can be made.
    pub tight: Option<Tight>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    pub tierfeed: Side,
    pub dataloader: Side,
}

#[derive(Debug, Clone, Serialize)]
pub struct Tight {
    pub limit_bytes: u64,
    pub sides: Comparison,
    /// tierfeed's throughput over that of `DataLoader`, from the second epoch on.
    pub ratio: f64,
}

/// One side, medians over its turns.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// The utilisation of the accelerator in each epoch, in percent.
    pub utilisation_percent: Vec<f64>,
    /// The same from the second epoch on.
    pub later_percent: f64,
    /// Seconds of an epoch from the second one on.
    pub later_s: f64,
    /// Bytes that tierfeed's page cache served, by its report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache_read_bytes: Option<u64>,
}

struct Turn {
    epochs_s: Vec<f64>,
    page_cache_read: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Report {
    page_cache: PageCache,
}

#[derive(Debug, Deserialize)]
struct PageCache {
    read_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Tierfeed,
    DataLoader,
}

impl Outcome {
    #[must_use]
    pub fn judged(&self) -> Judgement {
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

/// Writes the files to a slow disk, trains in turns, and removes the disk.
///
/// # Errors
///
/// If the disk cannot be made (this needs root) or a turn fails.
pub fn run(settings: &Settings, step: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
    files::in_folder(&settings.folder, |folder| {
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
            Bench { settings, folder, disk, data, script, job }.run(dataset, step)
        })
    })
}

struct Bench<'a> {
    settings: &'a Settings,
    folder: &'a Path,
    disk: &'a SlowDisk,
    data: PathBuf,
    script: PathBuf,
    job: PathBuf,
}

impl Bench<'_> {
    fn run(&self, dataset: Bytes, step: &mut dyn FnMut(&str)) -> anyhow::Result<Outcome> {
        let Settings { step: computes, .. } = self.settings;
        let roomy = self.compare("memory to spare", None, *computes, step)?;
        let tight = match MemoryGroup::make(Some(self.disk)) {
            Ok(group) => Some(self.in_group(&group, step)?),
            Err(error) => {
                step(&format!("no memory group: {error:#}"));
                None
            }
        };
        let throttle = self.disk.throttle();
        Ok(Outcome { dataset_bytes: dataset.0, throttle, roomy, tight })
    }

    /// Measures the need of tierfeed, and gives both sides that much and no more.
    fn in_group(&self, group: &MemoryGroup, step: &mut dyn FnMut(&str)) -> anyhow::Result<Tight> {
        step("what tierfeed needs beside page cache");
        let mut most = Bytes(0);
        let computes = self.settings.step / SHORTER;
        let mut watch = |group: &MemoryGroup| most = most.max(group.held());
        self.turn(Reader::Tierfeed, Some(group), computes, &mut watch)?;
        let limit = Bytes((most.0 + SPARE.0) / 100 * 106);
        group.limit(limit)?;
        let sides = self.compare(&format!("a group of {limit}"), Some(group), computes, step)?;
        let ratio = sides.dataloader.later_s / sides.tierfeed.later_s;
        Ok(Tight { limit_bytes: limit.0, sides, ratio })
    }

    fn compare(
        &self,
        title: &str,
        group: Option<&MemoryGroup>,
        computes: Duration,
        step: &mut dyn FnMut(&str),
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
                let mut run = self.command(group, &self.settings.programs.tierfeed);
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
        let epochs_s: Vec<f64> = serde_json::from_str(&fs::read_to_string(&result)?)?;
        ensure!(epochs_s.len() >= 2, "a turn of fewer than two epochs");
        fs::remove_file(&result)?;
        let page_cache_read = match reader {
            Reader::Tierfeed => {
                let text = fs::read_to_string(run_dir.join("report.json"))?;
                let report: Report = serde_json::from_str(&text)?;
                fs::remove_dir_all(&run_dir)?;
                Some(report.page_cache.read_bytes)
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

#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let dataset = Bytes(outcome.dataset_bytes);
    _ = writeln!(text, "dataset {dataset}; reads are throttled by {}", outcome.throttle);
    add(&mut text, "with memory to spare", &outcome.roomy);
    let below = outcome.roomy.dataloader.later_percent - outcome.roomy.tierfeed.later_percent;
    _ = writeln!(text, "tierfeed lies {below:.2} points below DataLoader with the page cache");
    if let Some(tight) = &outcome.tight {
        add(&mut text, &format!("in a group of {}", Bytes(tight.limit_bytes)), &tight.sides);
        _ = writeln!(text, "tierfeed has {:.2} x the throughput of DataLoader", tight.ratio);
    }
    text
}

fn add(text: &mut String, title: &str, sides: &Comparison) {
    _ = writeln!(text, "{title:<34}{:>12}{:>12}  utilisation by epoch", "later %", "epoch s");
    for (name, side) in [("tierfeed", &sides.tierfeed), ("DataLoader", &sides.dataloader)] {
        let epochs: Vec<_> = side.utilisation_percent.iter().map(|it| format!("{it:.1}")).collect();
        _ = write!(
            text,
            "  {name:<32}{:>12.1}{:>12.2}  {}",
            side.later_percent,
            side.later_s,
            epochs.join(" ")
        );
        _ = match side.page_cache_read_bytes {
            Some(read) => writeln!(text, "  (page cache served {})", Bytes(read)),
            None => writeln!(text),
        };
    }
}
