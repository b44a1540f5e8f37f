//! Figures of a directory: RAM disk, SSD, network file system.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use crate::inventory::mount::Medium;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    pub path: PathBuf,
    pub medium: Medium,
    pub engine: Engine,
    pub access: Access,
    pub file_bytes: u64,
    /// Reads of 4 KiB at random places, one entry for each depth.
    pub random_reads: Vec<RandomAccess>,
    /// Reads of 1 MiB in order, several in flight.
    pub sequential_read_bytes_per_s: Option<Estimate>,
    /// Writes of 1 MiB in order to blocks not written before, several in flight.
    pub sequential_write_bytes_per_s: Option<Estimate>,
    /// One chunk from the directory into main memory, as promotion does it.
    pub chunk_read_bytes_per_s: Option<Estimate>,
    pub chunk_bytes: u64,
    pub remarks: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    IoUring,
    Threads,
}

/// Requests of 4 KiB at random places.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RandomAccess {
    pub depth: u32,
    pub iops: Estimate,
    pub latency: Percentiles,
    /// Whether the rate had settled before it was taken.
    pub is_steady: bool,
}

/// A distribution of times; `None` where too few samples support the figure (fewer than 10 beyond it).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    pub samples: u64,
    pub p50_ns: Option<f64>,
    pub p90_ns: Option<f64>,
    pub p99_ns: Option<f64>,
    pub p999_ns: Option<f64>,
    pub max_ns: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    Direct,
    /// Through the page cache, dropped before each read; slower devices look faster than they are.
    Buffered,
}
