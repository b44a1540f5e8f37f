//! A training with one loader, which `benchmarks/peers/loaders.py` runs.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tierfeed_core::units::Bytes;

use crate::{
    document,
    machine::{Machine, Used},
};

/// The script that trains.
const SCRIPT: &str = "loaders.py";

/// With the modules that it imports, and scripts beside it.
const SCRIPTS: &[(&str, &str)] = &[
    (SCRIPT, include_str!("../../peers/loaders.py")),
    ("accuracy.py", include_str!("../../peers/accuracy.py")),
    ("buckets.py", include_str!("../../peers/buckets.py")),
    ("cpu_time.py", include_str!("../../peers/cpu_time.py")),
    ("dataset_formats.py", include_str!("../../peers/dataset_formats.py")),
    ("network.py", include_str!("../../peers/network.py")),
    ("node_loss.py", include_str!("../../peers/node_loss.py")),
    ("one_node.py", include_str!("../../peers/one_node.py")),
    ("ranks.py", include_str!("../../peers/ranks.py")),
    ("slow_samples.py", include_str!("../../peers/slow_samples.py")),
    ("speech.py", include_str!("../../peers/speech.py")),
    ("staged.py", include_str!("../../peers/staged.py")),
];

#[derive(Debug)]
pub(crate) struct Trainer {
    python: PathBuf,
    tierfeed: PathBuf,
    folder: PathBuf,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Training {
    /// The loader, by its name in the script.
    pub(crate) loader: String,
    /// A folder of photographs, or of what the loader made of them.
    pub(crate) data: PathBuf,
    pub(crate) batch_size: u32,
    pub(crate) epochs: u32,
    /// The time of a step on the accelerator.
    pub(crate) step_s: f64,
    /// Processes or threads of the loader.
    pub(crate) workers: u32,
    /// Whether samples are decoded and cropped, or handed over as stored.
    pub(crate) decode: bool,
    /// More keys of a job; only used by tierfeed.
    pub(crate) job: serde_json::Value,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Trained {
    /// By epoch.
    pub(crate) seconds: Vec<f64>,
    /// Seconds that the training waited for each batch of each epoch.
    pub(crate) waits: Vec<Vec<f64>>,
    pub(crate) images: Vec<u64>,
    /// From the start of the loader to its first batch, in seconds.
    pub(crate) first_batch_s: f64,
    pub(crate) cpu_s: Vec<f64>,
    /// Whether each batch of each epoch holds a sample that is slow to decode; empty where the data have none.
    pub(crate) slow: Vec<Vec<bool>>,
    /// The run directory of tierfeed, below the folder of the experiment.
    #[serde(default)]
    pub(crate) run_dir: Option<PathBuf>,
    /// Seconds from the start of the process to the end of its last epoch.
    pub(crate) job_s: f64,
    #[serde(skip)]
    pub(crate) used: Option<Used>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Times {
    pub(crate) bytes: f64,
    pub(crate) seconds: f64,
}

impl Times {
    pub(crate) fn rate(self) -> f64 {
        self.bytes / self.seconds
    }
}

impl Trained {
    pub(crate) fn total_s(&self) -> f64 {
        self.seconds.iter().sum()
    }

    /// Seconds of the epochs from number `first` on, per epoch.
    pub(crate) fn epoch_s(&self, first: usize) -> f64 {
        mean(self.seconds.get(first..).unwrap_or_default())
    }

    /// CPU seconds of the epochs from number `first` on, per epoch.
    pub(crate) fn epoch_cpu_s(&self, first: usize) -> f64 {
        mean(self.cpu_s.get(first..).unwrap_or_default())
    }

    /// Seconds waited for batches in the epochs from number `first` on, per epoch.
    pub(crate) fn stalled_s(&self, first: usize) -> f64 {
        let sums: Vec<f64> =
            self.waits.iter().skip(first).map(|waits| waits.iter().sum()).collect();
        mean(&sums)
    }
}

#[expect(clippy::cast_precision_loss, reason = "few values")]
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Trainer {
    /// # Errors
    ///
    /// If it cannot be written, or there is no such Python.
    pub(crate) fn new(python: &Path, tierfeed: &Path, folder: &Path) -> anyhow::Result<Self> {
        let [python, tierfeed, folder] = [python, tierfeed, folder].map(std::path::absolute);
        let trainer = Self { python: python?, tierfeed: tierfeed?, folder: folder? };
        ensure!(trainer.python.is_file(), "{}: there is no such file", trainer.python.display());
        for (name, text) in SCRIPTS {
            fs::write(trainer.folder.join(name), text)?;
        }
        Ok(trainer)
    }

    /// The versions of all loaders; `absent` of those that are not installed.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub(crate) fn versions(&self) -> anyhow::Result<BTreeMap<String, String>> {
        self.ask(SCRIPT, &["versions"])
    }

    /// Makes `photographs`, `slow-photographs` or `recordings` in a folder: their count, and the longer side of a
    /// photograph, which is four thirds of the shorter one.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub(crate) fn make(&self, what: &str, folder: &Path, numbers: &[u32]) -> anyhow::Result<()> {
        let mut arguments = vec![what.to_owned(), folder.display().to_string()];
        arguments.extend(numbers.iter().map(u32::to_string));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.output(SCRIPT, &arguments).map(drop)
    }

    /// Writes photographs in the format of a loader; returns how many seconds that took.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub(crate) fn convert(&self, loader: &str, data: &Path, to: &Path) -> anyhow::Result<f64> {
        #[derive(Deserialize)]
        struct Took {
            seconds: f64,
        }
        let (data, to) = (data.display().to_string(), to.display().to_string());
        let took: Took = self.ask(SCRIPT, &["convert", loader, &data, &to])?;
        Ok(took.seconds)
    }

    /// Reads every sample of a folder or bucket by so many threads, under the limits of a machine.
    ///
    /// # Errors
    ///
    /// If the script fails.
    pub(crate) fn times(
        &self,
        machine: &Machine<'_>,
        data: &Path,
        threads: u32,
    ) -> anyhow::Result<Times> {
        let said = self.folder.join("times.json");
        let file = fs::File::create(&said)?;
        machine.run(&self.python, |command| {
            command.arg(self.folder.join("buckets.py")).arg("times").arg(data);
            command.arg(threads.to_string()).current_dir(&self.folder).stdout(file);
        })?;
        document::read(&said)
    }

    /// # Errors
    ///
    /// If the training fails, with its last messages.
    pub(crate) fn train(
        &self,
        machine: &Machine<'_>,
        training: &Training,
    ) -> anyhow::Result<Trained> {
        self.train_by(&self.python, &[], machine, training)
    }

    /// Trains while `tierfeed hog` holds so much of the memory of the machine.
    ///
    /// # Errors
    ///
    /// If the training fails, with its last messages.
    pub(crate) fn train_beside_hog(
        &self,
        machine: &Machine<'_>,
        training: &Training,
        take: Bytes,
    ) -> anyhow::Result<Trained> {
        let take = format!("{} B", take.0);
        let arguments = ["hog", "--take", &take, "--"].map(OsStr::new);
        let arguments: Vec<_> = arguments.into_iter().chain([self.python.as_os_str()]).collect();
        self.train_by(&self.tierfeed, &arguments, machine, training)
    }

    fn train_by(
        &self,
        program: &Path,
        arguments: &[&OsStr],
        machine: &Machine<'_>,
        training: &Training,
    ) -> anyhow::Result<Trained> {
        let [settings, result, messages] =
            ["settings.json", "result.json", "messages"].map(|name| self.folder.join(name));
        fs::write(&settings, serde_json::to_string(training)?)?;
        let log = fs::File::create(&messages)?;
        let ran = machine.run(program, |command| {
            command.args(arguments).arg(self.script());
            self.arrange(command.arg("train").arg(&settings).arg(&result));
            command.stdout(Stdio::null()).stderr(log);
        });
        let used = ran.with_context(|| {
            let said = fs::read_to_string(&messages).unwrap_or_default();
            let lines: Vec<_> = said.lines().rev().take(12).collect();
            let last = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
            format!("the training with {}, whose last messages were:\n{last}", training.loader)
        })?;
        let mut trained: Trained = document::read(&result)?;
        fs::remove_file(&result)?;
        trained.used = Some(used);
        let epochs = usize::try_from(training.epochs)?;
        ensure!(trained.seconds.len() == epochs, "{}: epochs are missing", training.loader);
        Ok(trained)
    }

    fn script(&self) -> PathBuf {
        self.folder.join(SCRIPT)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn python(&self) -> &Path {
        &self.python
    }

    pub(crate) fn tierfeed(&self) -> &Path {
        &self.tierfeed
    }

    pub(crate) fn arrange<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("TIERFEED_EXE", &self.tierfeed).env("PYTHONUNBUFFERED", "1");
        // What other loaders leave among temporary files goes with the folder.
        command.env("TMPDIR", &self.folder);
        command.current_dir(&self.folder)
    }

    /// Runs a script of this folder and parses the last line that it prints as JSON.
    ///
    /// # Errors
    ///
    /// If it fails, or prints something else.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        script: &str,
        arguments: &[&str],
    ) -> anyhow::Result<T> {
        let said = self.output(script, arguments)?;
        let last = said.lines().last().unwrap_or_default();
        serde_json::from_str(last).with_context(|| format!("{script} said: {said}"))
    }

    fn output(&self, script: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let mut command = Command::new(&self.python);
        let command = self.arrange(command.arg(self.folder.join(script)).args(arguments));
        Ok(String::from_utf8_lossy(&document::output(command)?).into_owned())
    }
}
