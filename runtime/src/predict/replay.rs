//! Repeats a run in the simulator with the schedules that its nodes applied, and compares the decisions.

use std::{fs, io, path::Path};

use serde::Serialize;
use tierfeed_core::{
    fleet::Applied,
    id::{Epoch, NodeId},
    order::Spec,
    session::{self, SetPoints},
    simulator::{Model, simulate_recorded},
    tier::Speed,
};
use tierfeed_workload_analyzer::{Job, demand::Demand};

use super::node_model::NodeModel;
use crate::{
    layout::Lengths,
    observe::schedule::{GenerationEntry, ScheduleEntry},
    run_dir::schedule_log::{self, ScheduleRecord},
};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    #[error("{path}: {source}; name the run directory of a run, or of its manager")]
    Log { path: String, source: io::Error },
    #[error("no schedule of node {node} is recorded; its nodes are {known:?}")]
    NoNode { node: u32, known: Vec<u32> },
}

/// The log's records of one node since its last process began.
#[derive(Debug)]
pub struct Recorded {
    node: u32,
    first: ScheduleEntry,
    later: Vec<ScheduleEntry>,
    applied: Vec<Applied>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replay {
    pub node: u32,
    pub generations: Vec<GenerationEntry>,
    pub decisions_digest: String,
    /// The digest of the run, by its report; `None` without one.
    pub run_decisions_digest: Option<String>,
    /// Whether the digests are equal; `None` without a report.
    pub equal: Option<bool>,
    /// By epoch.
    pub cold_read_bytes: Vec<u64>,
    /// The assumption on the lengths of prepared samples, if the replay does not know them.
    pub assumed: Option<String>,
}

impl Recorded {
    /// Reads the records of a node from the log at `path`.
    pub fn read(path: &Path, node: u32) -> Result<Self, ReplayError> {
        let failed = |source| ReplayError::Log { path: path.display().to_string(), source };
        Self::of(schedule_log::read(path).map_err(failed)?, node)
    }

    fn of(records: Vec<ScheduleRecord>, of: u32) -> Result<Self, ReplayError> {
        let mut known = Vec::new();
        let mut recorded: Option<Self> = None;
        for record in records {
            match record {
                ScheduleRecord::Scheduled { node, schedule, observed, .. } => {
                    known.push(node);
                    match (node == of, observed, &mut recorded) {
                        (false, ..) => (),
                        (true, Some(_), Some(recorded)) => recorded.later.push(*schedule),
                        (true, ..) => {
                            let (first, later, applied) = (*schedule, Vec::new(), Vec::new());
                            recorded = Some(Self { node, first, later, applied });
                        }
                    }
                }
                ScheduleRecord::Applied { node, generation, epoch } if node == of => {
                    let applied = Applied { generation, epoch: Epoch(epoch) };
                    recorded.iter_mut().for_each(|recorded| recorded.applied.push(applied));
                }
                // When within an epoch it came decides what it dropped, and that is not known.
                ScheduleRecord::Applied { .. } | ScheduleRecord::Resized { .. } => (),
            }
        }
        known.sort_unstable();
        known.dedup();
        recorded.ok_or(ReplayError::NoNode { node: of, known })
    }

    fn entries(&self) -> impl Iterator<Item = &ScheduleEntry> {
        [&self.first].into_iter().chain(&self.later)
    }

    /// The applied generations with what each set.
    fn points(&self) -> Vec<(Applied, SetPoints)> {
        let points = |applied: &Applied| {
            let entry = self.entries().find(|it| it.generation == applied.generation)?;
            Some((*applied, entry.points()))
        };
        self.applied.iter().filter_map(points).collect()
    }

    fn generations(&self) -> Vec<GenerationEntry> {
        self.entries().map(|it| it.generation(&self.applied)).collect()
    }

    /// The node as it was scheduled at first.
    #[must_use]
    pub fn site(&self, demand: &Demand, cold: Speed) -> NodeModel {
        NodeModel::scheduled(demand, &self.first, cold)
    }

    /// Repeats the run on `site`, whose links and steps are those of `model`. `report` is the JSON report of the
    /// run.
    #[must_use]
    pub fn replay(
        &self,
        job: &Job,
        order: Spec,
        lengths: Lengths,
        site: &NodeModel,
        model: &Model,
        report: &Path,
    ) -> Replay {
        let assumed = site.assumed_lengths(job, &lengths);
        let settings =
            session::Settings { node: NodeId(self.node), ..site.session(job, lengths, order) };
        let outcome =
            simulate_recorded(&settings, &super::machine(&settings, model), &self.points());
        let digest = format!("{:016x}", outcome.decisions);
        let of_run = run_digest(report, self.node);
        Replay {
            node: self.node,
            generations: self.generations(),
            equal: of_run.as_ref().map(|of_run| *of_run == digest),
            decisions_digest: digest,
            run_decisions_digest: of_run,
            assumed,
            cold_read_bytes: outcome.epochs.iter().map(|epoch| epoch.read.cold.0).collect(),
        }
    }
}

impl Replay {
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.generations.iter().map(GenerationEntry::line).collect();
        lines.push(format!("decisions of the replay {}", self.decisions_digest));
        lines.push(match (&self.run_decisions_digest, self.equal) {
            (Some(of_run), Some(true)) => format!("decisions of the run    {of_run}: equal"),
            (Some(of_run), _) => format!("decisions of the run    {of_run}: they DIFFER"),
            (None, _) => "there is no report of the run to compare with".to_owned(),
        });
        lines.extend(self.assumed.clone());
        lines
    }
}

/// The digest in the report of a run, if it is of this node.
fn run_digest(report: &Path, node: u32) -> Option<String> {
    let report: serde_json::Value = serde_json::from_slice(&fs::read(report).ok()?).ok()?;
    let is_its = report.get("node")?.as_u64() == Some(node.into());
    is_its.then(|| Some(report.get("decisions_digest")?.as_str()?.to_owned()))?
}
