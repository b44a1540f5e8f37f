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

/// Why a run cannot be repeated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The log of schedules cannot be read.
    #[error("{path}: {source}; name the run directory of a run, or of its manager")]
    Log {
        /// The path of the log.
        path: String,
        /// The error of the system, or of the line that is none.
        source: io::Error,
    },
    /// The log has no schedule of the node.
    #[error("no schedule of node {node} is recorded; its nodes are {known:?}")]
    NoNode {
        /// The number of the node.
        node: u32,
        /// The nodes that are recorded.
        known: Vec<u32>,
    },
    /// A tier in the log has a name that does not exist.
    #[error("{name} in the log is no kind of tier; the log is of another version")]
    UnknownTier {
        /// The name.
        name: String,
    },
}

/// What the log says of one node, since its last process began.
#[derive(Debug)]
pub struct Recorded {
    node: u32,
    first: ScheduleEntry,
    later: Vec<ScheduleEntry>,
    applied: Vec<Applied>,
}

/// The replay of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replay {
    /// The number of the node.
    pub node: u32,
    /// All generations of its schedule.
    pub generations: Vec<GenerationEntry>,
    /// The digest of the decisions of the replay.
    pub decisions_digest: String,
    /// That of the run, by its report; `None` without one.
    pub run_decisions_digest: Option<String>,
    /// Whether they are equal; `None` without a report.
    pub equal: Option<bool>,
    /// Bytes that the replay read from the cold store, by epoch.
    pub cold_read_bytes: Vec<u64>,
    /// What the replay assumes of the lengths of prepared samples, if it does not know them.
    pub assumed: Option<String>,
}

impl Recorded {
    /// Reads what the log at `path` says of a node.
    ///
    /// # Errors
    ///
    /// [`ReplayError`]
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
        self.entries().map(|it| GenerationEntry::from(it).applied(&self.applied)).collect()
    }

    /// The node as it was scheduled at first.
    ///
    /// # Errors
    ///
    /// [`ReplayError::UnknownTier`] if the log names a tier that does not exist.
    pub fn site(&self, demand: &Demand, cold: Speed) -> Result<NodeModel, ReplayError> {
        NodeModel::scheduled(demand, &self.first, cold)
            .map_err(|name| ReplayError::UnknownTier { name })
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
    /// The replay as lines of text.
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
