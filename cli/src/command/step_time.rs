//! How long a training step computes: as an option says, as the job file says, or as a run observed it.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::Context;
use clap::Args;
use tierfeed_core::units::Nanoseconds;
use tierfeed_workload_analyzer::{Job, demand::Observed};

use crate::{environment, failure::Failure};

/// How long a training step computes.
#[derive(Debug, Args)]
pub(crate) struct Steps {
    /// How long a training step computes [default: as the job file says, else as the newest run below
    /// .tierfeed/runs observed it].
    #[arg(long, value_name = "TIME")]
    pub(crate) step_time: Option<Nanoseconds>,
    /// The report.json of an earlier run of the job: its step time is taken instead of the job's.
    #[arg(long, value_name = "FILE", conflicts_with = "step_time")]
    pub(crate) observed: Option<PathBuf>,
}

const REPORT_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct StepTime {
    pub(crate) time: Option<Nanoseconds>,
    pub(crate) observed: Option<(Observed, PathBuf)>,
}

impl StepTime {
    /// The step time of the options, else of the job file, else of the newest report of this job below
    /// `.tierfeed/runs`.
    pub(crate) fn of(told: &Steps, job: &Job) -> Result<Self, Failure> {
        if let Some(path) = &told.observed {
            let observed = read(path, job).with_context(|| path.display().to_string());
            let observed = observed.map_err(Failure::Input)?;
            return Ok(Self { time: observed.step_time, observed: Some((observed, path.clone())) });
        }
        if let Some(time) = told.step_time.or(job.step_time) {
            return Ok(Self { time: Some(time), observed: None });
        }
        let mut newest = reports(Path::new(environment::RUNS)).into_iter();
        let found = newest.find_map(|path| Some((read(&path, job).ok()?, path)));
        Ok(Self { time: found.as_ref().and_then(|(it, _)| it.step_time), observed: found })
    }

    pub(crate) fn note(&self) -> Option<String> {
        let (observed, path) = self.observed.as_ref()?;
        Some(format!("{observed}, by {}", path.display()))
    }
}

fn read(path: &Path, job: &Job) -> anyhow::Result<Observed> {
    let mut text = String::new();
    File::open(path)?.take(REPORT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(Observed::parse(&text, job)?)
}

/// The reports of ended runs, the newest first.
fn reports(runs: &Path) -> Vec<PathBuf> {
    let below = |path: &Path| -> Vec<PathBuf> {
        fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let runs: Vec<_> = below(runs).into_iter().filter(|path| path.is_dir()).collect();
    // Those of the nodes of a job lie one below.
    let nodes = runs.iter().flat_map(|run| below(run)).filter(|path| path.is_dir());
    let written = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let reports = runs.iter().cloned().chain(nodes).map(|run| run.join("report.json"));
    let mut reports: Vec<_> = reports.filter_map(|path| Some((written(&path)?, path))).collect();
    reports.sort();
    reports.into_iter().rev().map(|(_, path)| path).collect()
}
