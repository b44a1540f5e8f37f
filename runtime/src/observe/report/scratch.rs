//! The directory for the trainer's own files, as the report tells it.

use std::path::PathBuf;

use serde::Serialize;

/// What holds the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// A RAM disk of its own: more cannot be written.
    Mount,
    /// The agent looks from time to time.
    Watch,
}

/// The scratch of a job as the report tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScratchEntry {
    /// The directory.
    pub path: PathBuf,
    /// What might be written there.
    pub size_bytes: u64,
    /// The most that was seen there.
    pub peak_bytes: u64,
    /// What holds the size.
    pub held_by: HeldBy,
    /// Whether more was written than allowed: an error of the job.
    pub is_exceeded: bool,
    /// Whether it is still there.
    pub is_kept: bool,
}
