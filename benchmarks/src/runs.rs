//! Runs of jobs, whose ranks are one `tierfeed-bench reader`, with what the product reports and predicts of them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, de::DeserializeOwned};

use tierfeed_harness::programs::Programs;

/// What benches read of `report.json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Report {
    pub(crate) cold_read_bytes: u64,
    pub(crate) epochs: Vec<Epoch>,
    pub(crate) order_digest: Option<String>,
    pub(crate) page_cache: Option<PageCache>,
    pub(crate) staging: Staging,
    pub(crate) tiers: Vec<Tier>,
}

#[derive(Debug, Clone, Deserialize)]
#[expect(clippy::struct_field_names, reason = "keys of the report name their units")]
pub(crate) struct Epoch {
    pub(crate) cold_read_bytes: u64,
    pub(crate) look_ahead_room_bytes: Option<u64>,
    pub(crate) peer_read_bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct PageCache {
    pub(crate) read_bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Staging {
    pub(crate) parts: Vec<StagingPart>,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StagingPart {
    pub(crate) bytes: u64,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Tier {
    pub(crate) cache_bytes: u64,
}

/// What `tierfeed plan --simulate` says of an epoch.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Predicted {
    pub(crate) steps: u32,
    pub(crate) demand_bytes: u64,
    pub(crate) cold_read_bytes: u64,
    pub(crate) minimal_cold_bytes: u64,
    pub(crate) duration_s: f64,
}

impl Report {
    pub(crate) fn read(run_dir: &Path) -> anyhow::Result<Self> {
        read_json(&run_dir.join("report.json"))
    }
}

/// A document in JSON.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| format!("{}: another form", path.display()))
}

/// The epochs of a job, as predicted.
pub(crate) fn predict(programs: &Programs, job: &Path) -> anyhow::Result<Vec<Predicted>> {
    #[derive(Deserialize)]
    struct Prediction {
        epochs: Vec<Predicted>,
    }
    let mut plan = Command::new(&programs.tierfeed);
    plan.arg("plan").arg(job).args(["--simulate", "--json"]).stderr(Stdio::inherit());
    let output = plan.output().with_context(|| programs.tierfeed.display().to_string())?;
    ensure!(output.status.success(), "`tierfeed plan` failed ({})", output.status);
    let prediction: Prediction = serde_json::from_slice(&output.stdout)
        .context("`tierfeed plan` printed another document than expected")?;
    Ok(prediction.epochs)
}

/// A run whose ranks are one `tierfeed-bench reader`.
pub(crate) struct ReaderRun<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) job: &'a Path,
    pub(crate) run_dir: PathBuf,
    /// Of the reader.
    pub(crate) options: &'a [&'a str],
}

impl ReaderRun<'_> {
    /// The file that gets the seconds of each epoch, when the reader has read the last batch.
    pub(crate) fn times(&self) -> PathBuf {
        self.run_dir.with_extension("times")
    }

    /// Its command, by one that starts the product, as in a control group.
    pub(crate) fn command(&self, mut tierfeed: Command) -> Command {
        tierfeed.args(["run", "--launch", "once", "--run-dir"]).arg(&self.run_dir).arg(self.job);
        tierfeed.arg("--").arg(&self.programs.own).arg("reader").args(self.options);
        tierfeed.arg("--record").arg(self.times()).stdout(io::stderr());
        tierfeed
    }

    /// Returns the report, and the seconds of each epoch.
    pub(crate) fn finish(&self, tierfeed: Command) -> anyhow::Result<(Report, Vec<f64>)> {
        let mut run = self.command(tierfeed);
        let status = run.status().context(run.get_program().display().to_string())?;
        self.outcome(status)
    }

    /// As [`Self::finish`], of a run that has ended.
    pub(crate) fn outcome(&self, status: ExitStatus) -> anyhow::Result<(Report, Vec<f64>)> {
        let place = self.run_dir.display();
        ensure!(status.success(), "the run in {place} failed ({status}); its messages are above");
        let report = Report::read(&self.run_dir)?;
        let seconds: Vec<f64> = read_json(&self.times())?;
        fs::remove_file(self.times())?;
        let (ran, timed) = (report.epochs.len(), seconds.len());
        ensure!(ran == timed, "{timed} epochs were timed, and {ran} reported");
        Ok((report, seconds))
    }
}
