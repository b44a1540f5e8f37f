//! What the last report of the probe decides about the tiers of a job.
//!
//! The plan of a job and the agent that runs it ask here, so that the one says what the other does.

use std::{io::ErrorKind, path::Path};

use tierfeed_core::units::Bytes;
use tierfeed_resource_gatherer::{
    Report,
    report::{self, StoreError},
};
use tierfeed_workload_analyzer::Job;

use super::{Layout, Node};

/// The report at `path`; `None` if nothing was measured, or if the file is no report, which is said.
#[must_use]
pub fn report_at(path: &Path) -> Option<Report> {
    match report::read(path) {
        Ok(report) => Some(report),
        Err(StoreError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(%error, "goes on as if nothing was measured");
            None
        }
    }
}

impl Layout {
    /// Lets a report choose how many threads copy to memory behind CXL, and whether trainers read samples
    /// of these lengths where they lie. One of another host chooses nothing: hosts that share a home
    /// directory share the file that it is in.
    #[must_use]
    pub fn with_measured(
        self,
        job: &Job,
        node: &Node,
        sizes: impl Iterator<Item = Bytes>,
        report: Option<&Report>,
    ) -> Self {
        let measured = report.filter(|report| report.host == node.host());
        // What a copy costs depends on how many threads make it.
        self.with_writers(measured).with_direct_use(job, node, sizes, measured)
    }
}
