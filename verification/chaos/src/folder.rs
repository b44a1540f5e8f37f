//! The folder of a campaign, through which its processes know of each other.

use std::path::{Path, PathBuf};

use crate::role::Role;

#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.join("data")
    }

    pub(crate) fn job(&self) -> PathBuf {
        self.join("job.yaml")
    }

    /// The checksum of every sample, as JSON.
    pub(crate) fn sums(&self) -> PathBuf {
        self.join("sums")
    }

    /// The checksum of the row of every sample, as [`Self::sums`]; only if the agent makes rows.
    pub(crate) fn rows(&self) -> PathBuf {
        self.join("rows")
    }

    /// To it a trainer appends each batch that it used.
    pub(crate) fn record(&self, rank: u32) -> PathBuf {
        self.join(&format!("record{rank}"))
    }

    /// Trainers end when this file exists.
    pub(crate) fn stop(&self) -> PathBuf {
        self.join("stop")
    }

    /// A trainer that finds this file removes it, starts a process that keeps its socket, and writes its number
    /// to [`Self::orphan`].
    pub(crate) fn fork(&self, rank: u32) -> PathBuf {
        self.join(&format!("fork{rank}"))
    }

    pub(crate) fn orphan(&self, rank: u32) -> PathBuf {
        self.join(&format!("fork{rank}.pid"))
    }

    /// The run directory of a manager or agent.
    pub(crate) fn run_dir(&self, role: Role) -> PathBuf {
        self.join(&role.to_string())
    }

    /// The file in which a manager or agent gives Prometheus the address of its metrics.
    pub(crate) fn targets(&self, role: Role) -> PathBuf {
        let is_manager = role == Role::Manager;
        let name = if is_manager { "prometheus-manager.json" } else { "prometheus.json" };
        self.run_dir(role).join(name)
    }

    /// The standard error of a process.
    pub(crate) fn log(&self, role: Role) -> PathBuf {
        self.join("logs").join(role.to_string())
    }

    /// The directory of the scratch tier, inside of its disk so that it can be moved away.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.join("scratch/tier")
    }

    /// The file that fills the disk of the scratch tier.
    pub(crate) fn filler(&self) -> PathBuf {
        self.join("scratch/filler")
    }

    pub(crate) fn storage(&self) -> PathBuf {
        self.join("storage")
    }
}
