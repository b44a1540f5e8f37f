//! The directories of a run: that of the job, where its nodes meet, and that of this node.

use std::{path::PathBuf, time::SystemTime};

use anyhow::anyhow;
use tierfeed_core::fleet::launch::{Identity, Launcher, Seat, Task};
use tierfeed_runtime::run_dir::RunDir;
use tierfeed_workload_analyzer::Job;

use super::{FIRST, meeting};
use crate::{arguments::Run, environment, failure::Failure};

/// The directories of a run, which are the same for a job of one node.
#[derive(Debug)]
pub(super) struct Dirs {
    pub(super) job: RunDir,
    pub(super) node: RunDir,
    /// When this node began, by the clock of the file system; `None` in a directory that only this run has.
    pub(super) arrived: Option<SystemTime>,
}

impl Dirs {
    /// In `given`, if the user chose a directory.
    pub(super) fn create(
        arguments: &Run,
        given: Option<PathBuf>,
        job: &Job,
        identity: &Identity,
        seat: Seat,
    ) -> Result<Self, Failure> {
        if job.world.nodes == 1 && seat.task == Task::Node {
            let job_dir = environment::new_run_dir(given, &job.name)?;
            return Ok(Self { job: job_dir.clone(), node: job_dir, arrived: None });
        }
        if seat.node == FIRST && given.is_none() {
            environment::prune_runs();
        }
        // Slurm never gives a job, step and restart their numbers again.
        let is_of_one_run = given.is_none() && identity.launcher() == Some(Launcher::Slurm);
        let met_at = meeting::typed(arguments.place.manager.as_ref())?;
        let shared = environment::shared_run_dir(given, &job.name, identity, met_at.as_deref())?;
        let job_dir = shared.ok_or_else(|| {
            Failure::Input(anyhow!(
                "nothing says where the processes of this run meet: give all of them a directory that they \
                 share (--run-dir DIR or $TIERFEED_RUN_DIR), or an address of node 0 (--manager HOST:PORT or \
                 $TIERFEED_MANAGER) and the same token ($TIERFEED_TOKEN)"
            ))
        })?;
        let node: PathBuf = job_dir.of_node(seat.node.0);
        let node_dir = match job.world.nodes {
            1 => job_dir.clone(),
            _ => RunDir::create(&node).map_err(Failure::input)?,
        };
        let arrived = if is_of_one_run { None } else { Some(meeting::arrival(&node_dir)) };
        let arrived = arrived.transpose().map_err(Failure::work)?;
        Ok(Self { job: job_dir, node: node_dir, arrived })
    }
}
