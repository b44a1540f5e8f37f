//! What the last probe report decides about the tiers of a job.
//!
//! The plan of a job and the agent that runs it both call this, so that they agree.

use std::{io::ErrorKind, path::Path};

use tierfeed_core::units::Bytes;
use tierfeed_resource_gatherer::{
    Report,
    report::{self, StoreError},
};
use tierfeed_workload_analyzer::Job;

use super::{Layout, Node};

/// The report at `path`; `None` if there is none, or if the file is no report, which is logged.
#[must_use]
pub fn report_at(path: &Path) -> Option<Report> {
    match report::read(path) {
        Ok(report) => Some(report),
        Err(StoreError::Unreadable(_, source)) if source.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(%error, "goes on as if nothing was measured");
            None
        }
    }
}

impl Layout {
    /// Chooses by the report how many threads copy to CXL memory, and whether trainers read samples of these
    /// lengths in place. The report of another host is ignored: hosts that share a home directory share its
    /// file.
    #[must_use]
    pub fn with_measured(
        self,
        job: &Job,
        node: &Node,
        sizes: impl Iterator<Item = Bytes>,
        report: Option<&Report>,
    ) -> Self {
        let measured = report.filter(|report| report.host == node.host());
        // The cost of a copy depends on the number of threads.
        self.with_writers(measured).with_direct_use(job, node, sizes, measured)
    }
}
