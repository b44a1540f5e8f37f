//! What the last report of the probe decides about the tiers of a job.
//!
//! The plan of a job and the agent that runs it ask here, so that the one says what the other does.

use tierfeed_core::units::Bytes;
use tierfeed_resource_gatherer::Report;
use tierfeed_workload_analyzer::Job;

use super::{Layout, Node};

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
