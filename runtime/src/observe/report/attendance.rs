//! Which ranks came for their batches.

use serde::Serialize;

/// The ranks of this node, as its agent saw them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Attendance {
    /// Ranks that the job has on this node.
    pub expected: u32,
    /// Those that never connected: each reads the cold store by itself, or was not started.
    pub absent: Vec<u32>,
    /// Connections of processes that were none of the ranks of the job.
    pub turned_away: u64,
    /// What the first of them was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turned_away_because: Option<String>,
}

impl Attendance {
    /// What went wrong, line by line; nothing if every rank came and no other process.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.absent.is_empty() {
            let ranks: Vec<_> = self.absent.iter().map(u32::to_string).collect();
            let (absent, expected) = (self.absent.len(), self.expected);
            lines.push(format!(
                "{absent} of {expected} ranks of this node never connected (rank {}): what they read, they \
                 read without tierfeed",
                ranks.join(", ")
            ));
        }
        if let Some(reason) = &self.turned_away_because {
            lines.push(format!(
                "{} connections were turned away; the first: {reason}",
                self.turned_away
            ));
        }
        lines
    }
}
