//! All nodes of a job as a text table.

use std::fmt::{self, Display};

use tierfeed_core::units::Bytes;

use super::{ChangeEntry, Figures, Slowest, WholeJobPlan};

impl Display for WholeJobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} nodes of {} ranks keep {} together, {} batches of each rank are staged ahead",
            self.nodes,
            self.ranks_per_node,
            Bytes(self.capacity_bytes),
            self.staged_batches,
        )?;
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        writeln!(
            f,
            "\n{:>6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12}  slowest",
            "epoch",
            "cold",
            "least cold",
            "of lost",
            "from tiers",
            "from peers",
            "sends most",
            "stall s",
            "takes s",
        )?;
        for epoch in &self.epochs {
            row(f, &epoch.epoch.to_string(), &epoch.figures)?;
            match &epoch.slowest {
                Some(slowest) => writeln!(f, "  {slowest}")?,
                None => writeln!(f, "  -")?,
            }
        }
        row(f, "all", &self.total)?;
        writeln!(f)
    }
}

impl Display for ChangeEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, change, epoch, step, felt_epoch, felt_step, divided_epoch } = self;
        let verb = if *change == "lost" { "is lost" } else { "comes back" };
        write!(
            f,
            "node {node} {verb} in epoch {epoch} before step {step}; reads for step {felt_step} of epoch \
             {felt_epoch} feel it first, and "
        )?;
        match divided_epoch {
            Some(epoch) => write!(f, "from epoch {epoch} on the nodes hold by it"),
            None => write!(f, "no later epoch is divided by it"),
        }
    }
}

impl Display for Slowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.node {
            Some(node) => write!(f, "node {node}, {}: {:.3} s", self.link, self.stall_s),
            None => write!(f, "{}: {:.3} s", self.link, self.stall_s),
        }
    }
}

fn row(f: &mut fmt::Formatter<'_>, epoch: &str, figures: &Figures) -> fmt::Result {
    let size = |bytes: u64| Bytes(bytes).to_string();
    write!(
        f,
        "{epoch:>6}{:>12}{:>12}{:>12}{:>12}{:>12}{:>12.3}{:>12.3}{:>12.3}",
        size(figures.cold_read_bytes),
        size(figures.minimal_cold_bytes),
        size(figures.lost_read_bytes + figures.unattended_read_bytes),
        size(figures.tier_read_bytes.values().sum()),
        size(figures.peer_read_bytes),
        figures.sent_imbalance,
        figures.stall_s,
        figures.duration_s,
    )
}
