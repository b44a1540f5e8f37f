//! Which ranks of a node connected, in the report.

use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RanksEntry {
    pub expected: u32,
    /// Ranks that never connected: they read the cold store themselves, or were not started.
    pub absent: Vec<u32>,
    /// Rejected connections of processes that are no ranks of the job.
    pub turned_away: u64,
    /// The message to the first of these processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turned_away_because: Option<String>,
}

impl RanksEntry {
    /// A line for each problem; none if all ranks connected and no other process did.
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
