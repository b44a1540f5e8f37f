//! The directories of a run: that of the job, where its nodes meet, and that of this node.

use std::{
    path::PathBuf,
    time::{Duration, SystemTime},
};

use anyhow::anyhow;
use tierfeed_core::fleet::launch::{Identity, ProcessPlacement, Task};
use tierfeed_runtime::run_dir::RunDir;
use tierfeed_workload_analyzer::Job;

use super::{
    FIRST, Run, meeting,
    run_name::{RunName, run_name},
};
use crate::{environment, failure::Failure};

#[derive(Debug)]
pub(crate) enum Place {
    /// In this directory, which the user named for it: a job that has begun there goes on.
    Named(PathBuf),
    /// In a directory of its own below this one, or below the usual one.
    Below {
        runs: Option<PathBuf>,
        /// Runs of one process with one job are numbered from 1.
        number: u32,
    },
    /// In the directory of an agent of the same run that has died.
    Again(PathBuf),
}

/// The directories of a run, which are the same for a job of one node.
#[derive(Debug)]
pub(super) struct Dirs {
    pub(super) job: RunDir,
    pub(super) node: RunDir,
    /// When this process began, or the training that it is beside, by the clock of the file system; `None` in a
    /// directory that only this run has.
    pub(super) arrived: Option<SystemTime>,
    /// The name of this run among its processes, one word; another run has the same only if nothing tells
    /// them apart.
    pub(super) run: String,
    /// Whether a job that has begun here goes on.
    pub(super) goes_on: bool,
}

impl Dirs {
    pub(super) fn create(
        arguments: &Run,
        place: Place,
        job: &Job,
        identity: &Identity,
        seat: ProcessPlacement,
        began: Duration,
    ) -> Result<Self, Failure> {
        let nodes = job.world.nodes;
        let is_alone = nodes == 1 && seat.task == Task::Node;
        let met_at = arguments.place.manager.as_ref().filter(|_| !is_alone);
        let name = run_name(identity, nodes, meeting::typed(met_at)?.as_deref());
        let run = name.as_ref().map_or_else(|| "unnamed".to_owned(), |name| name.text.clone());
        let create = |path: PathBuf| RunDir::create(&path).map_err(Failure::input);
        let goes_on = !matches!(place, Place::Below { .. });
        let is_of_one_run =
            is_alone || (!goes_on && name.as_ref().is_some_and(|name| name.is_unique));
        let job_dir = match place {
            Place::Named(path) => create(path)?,
            Place::Again(node) if nodes == 1 => create(node)?,
            Place::Again(_) if seat.node == FIRST => {
                return Err(Failure::Input(anyhow!(
                    "node 0 of several had the manager, so its agent is not started again"
                )));
            }
            Place::Again(node) => create(node.parent().unwrap_or(&node).to_owned())?,
            Place::Below { runs, number } => {
                let label = match number {
                    0 | 1 => job.name.clone(),
                    _ => format!("{}.{number}", job.name),
                };
                match (is_alone, name) {
                    (true, _) => environment::own_run_dir(runs.as_deref(), &label)?,
                    (false, name) => shared(runs, &label, name, seat)?,
                }
            }
        };
        let node_dir = match nodes {
            1 => job_dir.clone(),
            _ => create(job_dir.of_node(seat.node.0))?,
        };
        let arrived = if is_of_one_run { None } else { Some(meeting::arrival(&node_dir)?) };
        let arrived = arrived.and_then(|time| time.checked_sub(began));
        Ok(Self { job: job_dir, node: node_dir, arrived, run, goes_on })
    }
}

/// The directory below `runs`, or below the usual one, in which the processes of a run meet.
fn shared(
    runs: Option<PathBuf>,
    label: &str,
    name: Option<RunName>,
    seat: ProcessPlacement,
) -> Result<RunDir, Failure> {
    if seat.node == FIRST && runs.is_none() {
        environment::prune_runs();
    }
    match (name, runs) {
        (Some(name), runs) => environment::shared_run_dir(runs.as_deref(), label, &name.text),
        (None, Some(runs)) => RunDir::create(&runs.join(label)).map_err(Failure::input),
        (None, None) => Err(nowhere()),
    }
}

fn nowhere() -> Failure {
    Failure::Input(anyhow!(
        "nothing says where the processes of this run meet: give all of them a directory that they share (--run-dir \
         DIR or $TIERFEED_RUN_DIR), or an address of node 0 (--manager HOST:PORT or $TIERFEED_MANAGER) and the same \
         token ($TIERFEED_TOKEN)"
    ))
}
