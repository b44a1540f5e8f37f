//! Figures of a directory: RAM disk, SSD, network file system.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::estimate::Estimate;
use crate::inventory::mount::Medium;

/// Everything that was measured in a directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// The directory that was measured.
    pub path: PathBuf,
    /// What is behind it.
    pub medium: Medium,
    /// How several requests were kept in flight.
    pub engine: Engine,
    /// Whether the page cache was bypassed.
    pub access: Access,
    /// The length of the file that was read.
    pub file_bytes: u64,
    /// What was written to the device altogether; never more than the budget.
    pub written_bytes: u64,
    /// How much might have been written.
    pub write_budget_bytes: u64,
    /// Reads of 4 KiB at random places, one entry for each depth.
    pub random_reads: Vec<RandomAccess>,
    /// Writes of 4 KiB at random places; empty unless asked for.
    pub random_writes: Vec<RandomAccess>,
    /// Reads of 1 MiB in order, several in flight.
    pub sequential_read_bytes_per_s: Option<Estimate>,
    /// Writes of 1 MiB in order to blocks not written before, several in flight.
    pub sequential_write_bytes_per_s: Option<Estimate>,
    /// The same over blocks that were written before; where it differs (memory) it is worth knowing.
    pub rewrite_bytes_per_s: Option<Estimate>,
    /// One chunk from the directory into main memory, as promotion does it.
    pub chunk_read_bytes_per_s: Option<Estimate>,
    /// How long that chunk was.
    pub chunk_bytes: u64,
    /// What a reader of the figures should know.
    pub remarks: Vec<String>,
}

/// How several requests are kept in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// The kernel's rings (`io_uring`).
    IoUring,
    /// One thread for each request.
    Threads,
}

/// Requests of 4 KiB at random places.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RandomAccess {
    /// How many requests are in flight.
    pub depth: u32,
    /// Requests completed per second.
    pub iops: Estimate,
    /// From request to completion.
    pub latency: Percentiles,
    /// Whether the rate had settled before it was taken.
    pub is_steady: bool,
}

/// A distribution of times; `None` where too few samples support the figure (fewer than 10 beyond it).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many times were taken.
    pub samples: u64,
    /// The median latency.
    pub p50_ns: Option<f64>,
    /// 90 % are not slower.
    pub p90_ns: Option<f64>,
    /// 99 % are not slower.
    pub p99_ns: Option<f64>,
    /// 99.9 % are not slower.
    pub p999_ns: Option<f64>,
    /// The slowest of all.
    pub max_ns: Option<f64>,
}

/// How the file of a measurement was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Past the page cache, with `O_DIRECT`.
    Direct,
    /// Through the page cache, dropped before each read; slower devices look faster than they are.
    Buffered,
}
