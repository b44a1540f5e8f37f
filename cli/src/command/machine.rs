//! The machine that a job is planned for: this host, or that of a probe report.

use std::{fs, num::NonZeroU32, path::Path};

use anyhow::anyhow;
use clap::Args;
use serde::Serialize;
use tierfeed_core::fleet::schedule::TransformOffer;
use tierfeed_dataset::Index;
use tierfeed_resource_gatherer::{Report, report};
use tierfeed_runtime::{
    dataset::measured_transforms::MeasuredTransforms,
    layout::{Found, Layout, LayoutError, Measured, Node, Overcommit, SavedReport},
    schedule,
};
use tierfeed_workload_analyzer::demand::Demand;

use super::nodes_report::NodesReport;
use crate::{environment, failure::Failure, jobs::JobFile};

/// The machines that a job is planned for, if not this one.
#[derive(Debug, Args)]
pub(crate) struct MachineReports {
    /// The report of `tiers probe` from the machine that the job will run on, instead of this one. For
    /// several kinds of nodes, several times with the nodes before it: 0-3,8=FILE.
    #[arg(long, value_name = "[NODES=]FILE")]
    pub(crate) tiers: Vec<NodesReport>,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) node: Node,
    measured: Measured,
    /// The agent's measurements of the job's transform; `None` if there are none.
    transform: Option<TransformOffer>,
    /// `None` for this host.
    pub(crate) name: Option<MachineName>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MachineName {
    host: String,
    report: String,
    /// The nodes of the job that are like it; all if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<String>,
    /// As a sentence.
    #[serde(skip)]
    pub(crate) text: String,
}

impl Machine {
    pub(crate) fn of_node(
        file: &JobFile,
        reports: &MachineReports,
        number: u32,
    ) -> Result<Self, Failure> {
        require_nodes(file, reports)?;
        let mut of_node = reports.tiers.iter().filter(|report| report.covers(number));
        match (of_node.next(), of_node.next()) {
            (Some(one), Some(other)) => Err(Failure::Input(anyhow!(
                "--tiers {one} and --tiers {other} both name node {number}; name each node once"
            ))),
            (Some(report), None) => Self::reported(file, report),
            (None, _) if reports.tiers.is_empty() => Self::here(file),
            (None, _) => Err(Failure::Input(anyhow!(
                "--tiers names no machine for node {number}; add `--tiers {number}=FILE`"
            ))),
        }
    }

    /// Each kind of machine of a job, in the order of the command line.
    pub(crate) fn kinds(file: &JobFile, reports: &MachineReports) -> Result<Vec<Self>, Failure> {
        require_nodes(file, reports)?;
        match reports.tiers.as_slice() {
            [] => Ok(vec![Self::here(file)?]),
            reports => reports.iter().map(|report| Self::reported(file, report)).collect(),
        }
    }

    fn here(file: &JobFile) -> Result<Self, Failure> {
        let node = Node::read(&file.job, environment::job_memory())
            .map_err(|error| placed(file, error.into()))?;
        let path = environment::tiers_report(None).ok();
        let measured = path.map(|path| Measured::saved(&path, node.host())).unwrap_or_default();
        Ok(Self { node, measured, transform: None, name: None })
    }

    fn reported(file: &JobFile, of: &NodesReport) -> Result<Self, Failure> {
        let saved = read(&of.file)?;
        let node = Node::reported(&saved.report, &file.job)
            .map_err(|error| Failure::Input(anyhow!("{}: {error}", of.file.display())))?;
        let nodes = of.nodes().map(|nodes| format!(" as nodes {nodes}")).unwrap_or_default();
        let name = MachineName {
            host: saved.report.host.clone(),
            report: of.file.display().to_string(),
            nodes: of.nodes(),
            text: format!("planned for host {}{nodes}, by {saved}", saved.report.host),
        };
        Ok(Self { node, measured: saved.into(), transform: None, name: Some(name) })
    }

    /// The figures of the machine, if it was measured.
    pub(crate) fn measured(&self) -> Option<&Report> {
        self.measured.report(&self.node)
    }

    pub(crate) fn layout(&self, file: &JobFile, demand: &Demand) -> Result<Layout, Failure> {
        let found = self.found(file, demand)?;
        let schedule = schedule::of(&file.job, demand, &found.offer())
            .map_err(|error| self.placed(file, error.into()))?;
        Ok(found.layout(demand, &self.node, &schedule))
    }

    /// Adds the measurements of the last agent on this host for the samples of an index. Of another machine
    /// nothing is known.
    pub(crate) fn with_measured_transform(self, file: &JobFile, index: Option<&Index>) -> Self {
        let transform = file.job.transform.as_ref().filter(|_| self.name.is_none());
        let Some((transform, index)) = transform.zip(index) else { return self };
        let bare = TransformOffer::of_threads(NonZeroU32::MIN);
        let records = MeasuredTransforms::new(&environment::indexes_for(&file.path));
        let transform = records.complete(bare, self.node.host(), index, &transform.pipeline);
        Self { transform: Some(transform), ..self }
    }

    pub(crate) fn found(&self, file: &JobFile, demand: &Demand) -> Result<Found, Failure> {
        let measured = &self.measured;
        let found = Found::on(&file.job, demand, &self.node, Overcommit::Refused, measured);
        let found = found.map_err(|error| self.placed(file, error))?;
        Ok(found.with_transform(|offer| {
            if let Some(measured) = &self.transform {
                *offer = TransformOffer { threads: offer.threads, ..measured.clone() };
            }
        }))
    }

    /// An error about the tiers of a job, with its place in the job file and the machine.
    pub(crate) fn placed(&self, file: &JobFile, error: LayoutError) -> Failure {
        match (placed(file, error), &self.name) {
            (Failure::Input(error), Some(name)) => {
                Failure::Input(anyhow!("{error}; {}", name.text))
            }
            (failure, _) => failure,
        }
    }
}

fn require_nodes(file: &JobFile, reports: &MachineReports) -> Result<(), Failure> {
    let nodes = file.job.world.nodes;
    let is_beyond = |report: &&NodesReport| report.last().is_some_and(|last| last >= nodes);
    match reports.tiers.iter().find(is_beyond) {
        None => Ok(()),
        Some(report) => Err(Failure::Input(anyhow!(
            "--tiers {report}: the job has {nodes} nodes, numbered from 0 to {}",
            nodes - 1
        ))),
    }
}

fn read(path: &Path) -> Result<SavedReport, Failure> {
    let report = report::read(path).map_err(Failure::input)?;
    let written = fs::metadata(path).and_then(|file| file.modified()).ok();
    Ok(SavedReport { report, file: path.to_owned(), written })
}

/// An error about the tiers of a job, with its place in the job file.
fn placed(file: &JobFile, error: LayoutError) -> Failure {
    let keys = error.keys();
    Failure::input(file.placed(&keys, error))
}
