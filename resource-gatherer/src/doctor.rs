//! Says what of this node tierfeed can use, what not, and the exact fix.
//!
//! [`Facts::gather`] looks and tries, [`diagnose`] judges: a pure function, so that machines in every bad
//! state are a few lines in a test. Each file below does both for one subject. A finding that is not all
//! right says what tierfeed does then; a fix is a command or a setting, never advice to read something.

mod attempts;
mod calls;
mod cold;
mod cxl;
mod directories;
mod facts;
mod host;
mod limits;
mod memory;
#[cfg(test)]
mod tests;
mod transforms;

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_file_io::Unavailable;
pub use tierfeed_numa_memory::policy_probe::Call;

pub use self::{
    attempts::Attempt,
    cold::ColdFiles,
    directories::{Directory, SocketFolder},
    limits::Limit,
    memory::Pool,
    transforms::TransformWorker,
};
use crate::inventory::Inventory;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Facts {
    pub inventory: Inventory,
    /// The version of the kernel, for instance `6.12.0`.
    pub kernel: String,
    pub in_container: bool,
    /// The bits of `CapEff`; `None` if `/proc` does not say.
    pub capabilities: Option<u64>,
    pub calls: BTreeMap<Call, Attempt>,
    pub memfd: Attempt,
    pub pidfd: Attempt,
    /// `None` if they were not tried.
    pub rings: Option<Result<(), Unavailable>>,
    pub locked_memory: Limit,
    pub open_files: Limit,
    /// The chosen word of `transparent_hugepage/enabled`.
    pub huge_pages: Option<String>,
    /// The chosen word of `transparent_hugepage/shmem_enabled`.
    pub huge_pages_shared: Option<String>,
    pub huge_page_pools: Vec<Pool>,
    pub swap: Bytes,
    /// Whether the kernel counts stalled time (PSI).
    pub counts_pressure: bool,
    /// `None` if it was not tried.
    pub transform_worker: Option<TransformWorker>,
    /// The value of `vm.overcommit_memory`.
    pub overcommit: Option<u64>,
    /// The value of `vm.memfd_noexec`, `None` before Linux 6.3.
    pub memfd_noexec: Option<u64>,
    /// The kernel's current clock source.
    pub clock: Option<String>,
    pub cpus_online: usize,
    pub has_hwloc: bool,
    /// The RAM disk for the scratch tier; `None` if there is no such directory.
    pub scratch: Option<Directory>,
    /// The directory for storage tiers and temporary files.
    pub storage: Option<Directory>,
    /// The ways to read files of datasets: those of the paths that were asked for, else of the storage
    /// directory.
    pub cold: Vec<ColdFiles>,
    /// The folder for sockets whose path would be too long.
    pub sockets: Option<SocketFolder>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    Ok,
    Degraded,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub state: State,
    pub found: String,
    /// The behaviour of tierfeed in this state; `None` if all is right.
    pub consequence: Option<&'static str>,
    /// Alternatives, of which each is enough; the first is for the place where this process runs.
    pub fixes: Vec<Fix>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fix {
    pub place: FixPlace,
    pub setting: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixPlace {
    /// A shell on the host, as root.
    Host,
    /// The shell that starts tierfeed.
    Shell,
    /// The options of `docker run` and `podman run`.
    Container,
    Kubernetes,
    Systemd,
    /// The options of `sbatch` and `srun`.
    Slurm,
    /// The command line of the kernel.
    Boot,
    /// The job file of tierfeed.
    Job,
    Build,
}

impl FixPlace {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host, as root",
            Self::Shell => "shell",
            Self::Container => "docker run",
            Self::Kubernetes => "Kubernetes",
            Self::Systemd => "systemd unit",
            Self::Slurm => "sbatch",
            Self::Boot => "kernel command line",
            Self::Job => "job file",
            Self::Build => "build",
        }
    }
}

impl Finding {
    fn ok(subject: &'static str, found: impl Into<String>) -> Self {
        let (found, fixes) = (found.into(), Vec::new());
        Self { subject, state: State::Ok, found, consequence: None, fixes }
    }

    fn degraded(self, consequence: &'static str) -> Self {
        Self { state: State::Degraded, consequence: Some(consequence), ..self }
    }

    fn missing(self, consequence: &'static str) -> Self {
        Self { state: State::Missing, consequence: Some(consequence), ..self }
    }

    fn fix(mut self, place: FixPlace, setting: impl Into<String>) -> Self {
        self.fixes.push(Fix { place, setting: setting.into() });
        self
    }

    /// In a container only what is given to the container helps, elsewhere only the rest: so that comes
    /// first.
    fn for_where(mut self, facts: &Facts) -> Self {
        let is_elsewhere = |fix: &Fix| {
            matches!(fix.place, FixPlace::Container | FixPlace::Kubernetes) != facts.in_container
        };
        self.fixes.sort_by_key(is_elsewhere);
        self
    }
}

/// Judges all subjects, in an order for people.
#[must_use]
pub fn diagnose(facts: &Facts) -> Vec<Finding> {
    let subjects = [
        memory::findings(facts),
        cxl::findings(facts),
        calls::findings(facts),
        limits::findings(facts),
        directories::findings(facts),
        cold::findings(facts),
        transforms::findings(facts),
        host::findings(facts),
    ];
    subjects.into_iter().flatten().map(|finding| finding.for_where(facts)).collect()
}
