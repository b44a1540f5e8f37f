//! Says what of this node tierfeed can use, what not, and the exact fix.
//!
//! [`facts`] looks and tries, [`diagnose`] judges: a pure function, so that machines in every bad state
//! are a few lines in a test. A finding that is not all right says what tierfeed does then; a fix is a
//! command or a setting, never advice to read something.

mod calls;
mod cold;
mod cxl;
pub mod facts;
mod host;
mod limits;
mod memory;
mod storage;
#[cfg(test)]
mod tests;
mod transforms;

use serde::Serialize;

pub use self::facts::Facts;

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
        Self {
            subject,
            state: State::Ok,
            found: found.into(),
            consequence: None,
            fixes: Vec::new(),
        }
    }

    fn degraded(
        subject: &'static str,
        found: impl Into<String>,
        consequence: &'static str,
    ) -> Self {
        let state = State::Degraded;
        Self { state, consequence: Some(consequence), ..Self::ok(subject, found) }
    }

    fn missing(subject: &'static str, found: impl Into<String>, consequence: &'static str) -> Self {
        let state = State::Missing;
        Self { state, consequence: Some(consequence), ..Self::ok(subject, found) }
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
    [
        memory::findings(facts),
        cxl::findings(facts),
        calls::findings(facts),
        limits::findings(facts),
        storage::findings(facts),
        cold::findings(facts),
        transforms::findings(facts),
        host::findings(facts),
    ]
    .into_iter()
    .flatten()
    .map(|finding| finding.for_where(facts))
    .collect()
}
