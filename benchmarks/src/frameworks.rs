//! `tierfeed-bench frameworks`: samples of one length through tierfeed under each framework, and in the
//! framework's own ways, turn by turn.
//!
//! Each turn is a process of its own that reads every sample in several epochs. Warm: the files lie in the page
//! cache, and for tierfeed in its main memory after the first epoch, which is not measured for any side. Throttled:
//! the files lie on a disk whose reads the kernel limits ([`tierfeed_harness::slow_disk`]), the page cache is emptied
//! before each turn, and the first epoch counts.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use clap::{Args, builder::RangedU64ValueParser};
use serde::{Deserialize, Serialize};
use tierfeed_core::units::{Bytes, BytesPerSecond};
use tierfeed_harness::{
    bench::{Bench, Folder},
    failure::Failure,
    files,
    judgement::{Judged, Judgement},
    output::step,
    programs::Programs,
    slow_disk::{SlowDisk, on_slow_disk},
    statistics::percentile,
};

use crate::{processes::said, runs::read_json};

const SCRIPT: &str = include_str!("../peers/frameworks.py");
const CPU_TIME: &str = include_str!("../peers/cpu_time.py");

/// The least ratio of batches a second of warm samples: half of what is promised.
pub(crate) const WARM_RATIO_MIN: f64 = 1.5;
/// The least ratio from a slow disk. Both sides wait for the same disk in the first epoch, whose rate varies by
/// some per cent from turn to turn.
pub(crate) const THROTTLED_RATIO_MIN: f64 = 0.97;

#[derive(Debug, Clone, Copy)]
struct Framework {
    name: &'static str,
    /// The name of tierfeed's side in the script.
    ours: &'static str,
    own: &'static [&'static str],
}

const FRAMEWORKS: [Framework; 6] = [
    Framework { name: "torch", ours: "torch: tierfeed", own: &["torch: DataLoader, 2 workers"] },
    Framework {
        name: "tensorflow",
        ours: "tensorflow: tierfeed",
        own: &["tensorflow: tf.data over files", "tensorflow: tf.data over TFRecord"],
    },
    Framework { name: "jax", ours: "jax: tierfeed", own: &["jax: Grain over files"] },
    Framework { name: "grain", ours: "grain: tierfeed", own: &["grain: MapDataset over files"] },
    Framework { name: "keras", ours: "keras: tierfeed", own: &["keras: PyDataset, 2 workers"] },
    Framework { name: "fsspec", ours: "fsspec: tierfeed", own: &["fsspec: blockcache"] },
];

#[must_use]
pub(crate) fn names() -> Vec<&'static str> {
    FRAMEWORKS.iter().map(|framework| framework.name).collect()
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// A Python with the frameworks and tierfeed: target/frameworks/newest/bin/python after
    /// `make test-frameworks`.
    #[arg(long, value_name = "FILE")]
    pub(crate) python: PathBuf,
    /// The frameworks that are measured, separated by commas; all unless given.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = names())]
    pub(crate) only: Vec<String>,
    /// How many samples there are.
    #[arg(long, value_name = "NUMBER", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(8..=1_000_000))]
    pub(crate) samples: u64,
    /// The size of a sample.
    #[arg(long, value_name = "SIZE", default_value = "1 MiB")]
    pub(crate) sample: Bytes,
    /// Samples in a batch.
    #[arg(long, value_name = "NUMBER", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) batch_size: u64,
    /// Epochs of a turn.
    #[arg(long, value_name = "NUMBER", default_value_t = 4,
          value_parser = RangedU64ValueParser::<usize>::new().range(2..=1000))]
    pub(crate) epochs: usize,
    /// Turns of each side.
    #[arg(long, value_name = "NUMBER", default_value_t = 3,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) rounds: usize,
    /// How fast the slow disk is read; `0 B/s` measures warm samples only. The disk needs root.
    #[arg(long, value_name = "RATE", default_value = "200 MB/s")]
    pub(crate) rate: BytesPerSecond,
    #[command(flatten)]
    pub(crate) folder: Folder,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Outcome {
    pub(crate) warm: Vec<Comparison>,
    pub(crate) throttled: Vec<Comparison>,
    pub(crate) throttle_bytes_per_s: u64,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Comparison {
    pub(crate) framework: &'static str,
    pub(crate) tierfeed: Side,
    pub(crate) own: Vec<Side>,
}

/// One way to read the samples, medians over its turns.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) batches_per_s: f64,
    pub(crate) batches_per_s_min: f64,
    pub(crate) batches_per_s_max: f64,
    /// CPU seconds for a batch: of the process, its workers and tierfeed's agent.
    pub(crate) cpu_s_per_batch: f64,
    /// tierfeed's batches a second over those of this side.
    pub(crate) ratio: f64,
}

/// The report of the script on a turn, by epoch.
#[derive(Debug, Deserialize)]
struct Turn {
    seconds: Vec<f64>,
    cpu_seconds: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstEpoch {
    Counts,
    WarmsUp,
}

impl Judged for Outcome {
    fn judged(&self) -> Judgement {
        let settings = [
            ("warm", &self.warm, WARM_RATIO_MIN),
            ("throttled", &self.throttled, THROTTLED_RATIO_MIN),
        ];
        settings.into_iter().fold(Judgement::default(), |judged, (setting, frameworks, least)| {
            frameworks.iter().flat_map(|it| &it.own).fold(judged, |judged, side| {
                judged.at_least(&format!("{setting}, over {}", side.name), side.ratio, least)
            })
        })
    }
}

impl Bench for Settings {
    type Outcome = Outcome;

    fn run(self) -> Result<Outcome, Failure> {
        let _watch = self.folder.watch()?;
        let programs = Programs::find()?;
        Ok(self.folder.with_files(|folder| measure(&self, &programs, folder))?)
    }
}

/// Makes the samples, runs all sides in turns, and removes the samples.
fn measure(settings: &Settings, programs: &Programs, folder: &Path) -> anyhow::Result<Outcome> {
    // Not the file that a link of a virtual environment leads to.
    let python = std::path::absolute(&settings.python)?;
    let script = folder.join("frameworks.py");
    let bench = Turns { settings, tierfeed: &programs.tierfeed, folder, script, python };
    fs::write(&bench.script, SCRIPT)?;
    fs::write(bench.script.with_file_name("cpu_time.py"), CPU_TIME)?;
    step("warm samples");
    bench.make_samples(folder)?;
    let warm = bench.compare(folder, None, FirstEpoch::WarmsUp)?;
    fs::remove_dir_all(folder.join("data"))?;
    let throttled = match settings.rate.0 {
        0 => Vec::new(),
        _ => bench.on_slow_disk()?,
    };
    Ok(Outcome { warm, throttled, throttle_bytes_per_s: settings.rate.0 })
}

struct Turns<'a> {
    settings: &'a Settings,
    tierfeed: &'a Path,
    folder: &'a Path,
    script: PathBuf,
    /// The absolute path, as turns start in another folder.
    python: PathBuf,
}

impl Turns<'_> {
    fn make_samples(&self, folder: &Path) -> anyhow::Result<()> {
        for number in 0..self.settings.samples {
            let file = folder.join("data").join(format!("{number:06}.bin"));
            files::write_noise(&file, number, self.settings.sample.0)?;
        }
        if self.frameworks().any(|framework| framework.name == "tensorflow") {
            let mut prepare = Command::new(&self.python);
            self.finish(prepare.arg(&self.script).arg("prepare").arg(folder))?;
        }
        Ok(())
    }

    fn on_slow_disk(&self) -> anyhow::Result<Vec<Comparison>> {
        let dataset = Bytes(2 * self.settings.samples * self.settings.sample.0);
        on_slow_disk(self.folder, dataset, |disk| {
            step("throttled samples");
            self.make_samples(disk.path())?;
            disk.limit(self.settings.rate)?;
            self.compare(disk.path(), Some(disk), FirstEpoch::Counts)
        })
    }

    fn frameworks(&self) -> impl Iterator<Item = &'static Framework> {
        let only = &self.settings.only;
        FRAMEWORKS.iter().filter(|it| only.is_empty() || only.iter().any(|name| name == it.name))
    }

    fn compare(
        &self,
        samples: &Path,
        disk: Option<&SlowDisk>,
        first: FirstEpoch,
    ) -> anyhow::Result<Vec<Comparison>> {
        let mut comparisons = Vec::new();
        for framework in self.frameworks() {
            let names: Vec<_> =
                [framework.ours].into_iter().chain(framework.own.iter().copied()).collect();
            let mut turns: Vec<Vec<Turn>> = names.iter().map(|_| Vec::new()).collect();
            for round in 1..=self.settings.rounds {
                step(&format!("{}: round {round} of {}", framework.name, self.settings.rounds));
                for (&name, turns) in names.iter().zip(&mut turns) {
                    turns.push(self.turn(name, samples, disk)?);
                }
            }
            let sides = names.iter().zip(&turns).map(|(name, turns)| self.side(name, turns, first));
            let mut sides = sides.collect::<anyhow::Result<Vec<_>>>()?;
            let tierfeed = sides.remove(0);
            for side in &mut sides {
                side.ratio = tierfeed.batches_per_s / side.batches_per_s;
            }
            comparisons.push(Comparison { framework: framework.name, tierfeed, own: sides });
        }
        Ok(comparisons)
    }

    fn turn(&self, side: &str, samples: &Path, disk: Option<&SlowDisk>) -> anyhow::Result<Turn> {
        let Settings { batch_size, epochs, .. } = self.settings;
        let mut command = match disk {
            Some(disk) => {
                disk.forget_cached()?;
                disk.enter(&self.python)
            }
            None => Command::new(&self.python),
        };
        let result = self.folder.join("turn.json");
        command.arg(&self.script).arg(side).arg(samples);
        command.args([batch_size.to_string(), epochs.to_string()]).arg(&result);
        // tierfeed's agent keeps its files here.
        self.finish(command.current_dir(self.folder)).with_context(|| side.to_owned())?;
        let turn: Turn = read_json(&result)?;
        fs::remove_file(&result)?;
        Ok(turn)
    }

    fn finish(&self, command: &mut Command) -> anyhow::Result<()> {
        command.env("TIERFEED_EXE", self.tierfeed).env("TF_CPP_MIN_LOG_LEVEL", "2");
        said(command).map(drop)
    }

    fn side(&self, name: &'static str, turns: &[Turn], first: FirstEpoch) -> anyhow::Result<Side> {
        let epoch_batches = self.settings.samples.div_ceil(self.settings.batch_size) as f64;
        let skipped = usize::from(first == FirstEpoch::WarmsUp);
        let per_turn = |figure: fn(&Turn) -> &Vec<f64>| -> Vec<f64> {
            let turns = turns.iter().map(|turn| &figure(turn)[skipped..]);
            turns.map(|epochs| epochs.iter().sum::<f64>() / epochs.len() as f64).collect()
        };
        let at = |values: &[f64], percent| percentile(values, percent).context("no turn");
        let seconds = per_turn(|turn| &turn.seconds);
        let cpu = per_turn(|turn| &turn.cpu_seconds);
        Ok(Side {
            name,
            batches_per_s: epoch_batches / at(&seconds, 50)?,
            batches_per_s_min: epoch_batches / at(&seconds, 100)?,
            batches_per_s_max: epoch_batches / at(&seconds, 1)?,
            cpu_s_per_batch: at(&cpu, 50)? / epoch_batches,
            ratio: 1.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(seconds: &[f64]) -> Turn {
        Turn { seconds: seconds.to_vec(), cpu_seconds: seconds.iter().map(|it| it / 2.0).collect() }
    }

    fn settings() -> Settings {
        Settings {
            python: "python".into(),
            folder: Folder::default(),
            only: Vec::new(),
            samples: 90,
            sample: Bytes::mib(1),
            batch_size: 8,
            epochs: 3,
            rounds: 3,
            rate: BytesPerSecond(0),
        }
    }

    #[test]
    fn a_side_is_the_median_of_its_turns_without_the_epoch_that_warms_up() {
        let settings = settings();
        let bench = Turns {
            settings: &settings,
            tierfeed: Path::new("tierfeed"),
            folder: Path::new("."),
            script: "script".into(),
            python: "python".into(),
        };
        let turns = [turn(&[9.0, 3.0, 1.0]), turn(&[8.0, 1.0, 1.0]), turn(&[9.0, 5.0, 3.0])];

        let side = bench.side("a", &turns, FirstEpoch::WarmsUp).unwrap();
        let figures = [side.batches_per_s_min, side.batches_per_s, side.batches_per_s_max];
        assert_eq!(format!("{figures:?}"), "[3.0, 6.0, 12.0]");
        assert_eq!(format!("{:.4}", side.cpu_s_per_batch), "0.0833");

        let side = bench.side("a", &turns[1..2], FirstEpoch::Counts).unwrap();
        assert_eq!(format!("{:.2}", side.batches_per_s), "3.60");
    }

    #[test]
    fn a_framework_that_is_faster_alone_is_a_missed_promise() {
        let side = |name, ratio| Side {
            name,
            batches_per_s: 1.0,
            batches_per_s_min: 1.0,
            batches_per_s_max: 1.0,
            cpu_s_per_batch: 1.0,
            ratio,
        };
        let comparison = |ratio| Comparison {
            framework: "torch",
            tierfeed: side("ours", 1.0),
            own: vec![side("DataLoader", ratio)],
        };
        let outcome = |warm, throttled| Outcome {
            warm: vec![comparison(warm)],
            throttled: vec![comparison(throttled)],
            throttle_bytes_per_s: 1,
        };
        assert_eq!(outcome(1.5, 1.0).judged(), Judgement::default());
        assert_eq!(outcome(1.4, 0.9).judged().missed.len(), 2);
    }
}
