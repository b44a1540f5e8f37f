//! The directory for the trainer's own files, in the report.

use std::path::PathBuf;

use serde::Serialize;

/// What enforces the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HeldBy {
    /// A RAM disk of its own: writes beyond it fail.
    Mount,
    /// The agent measures the directory from time to time.
    Watch,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScratchEntry {
    pub path: PathBuf,
    pub size_bytes: u64,
    /// The most bytes that were measured there.
    pub peak_bytes: u64,
    pub held_by: HeldBy,
    /// The NUMA node on which its files shall lie, if the tier has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Whether a file that was written there lies on it; `None` if the kernel does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_on_node: Option<bool>,
    pub is_exceeded: bool,
    /// Whether the directory is kept after the run.
    pub is_kept: bool,
}
