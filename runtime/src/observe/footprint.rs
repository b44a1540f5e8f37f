//! The memory and the disk space that this process holds, now and at its peak.
//!
//! A process holds its own memory (anonymous and file pages), its memfds and its files on RAM disks. Mapped
//! memfds would count twice in `VmRSS`, so `RssShmem` is not counted.

mod timeline;

use std::fs;

use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_prefetcher::{plane::Usage, tier::Medium};

pub use timeline::{MemoryState, Timeline, TimelinePoint};

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Footprint {
    /// The memory budget of the job, RAM disks included.
    pub budget_bytes: u64,
    /// Bytes that the job held at the last measurement: staging, tiers in memory, memory lent to workloads,
    /// RAM disks.
    #[serde(skip)]
    pub job_bytes: u64,
    /// The process's own memory at the last measurement.
    #[serde(skip)]
    pub own_bytes: u64,
    /// The peak of `job_bytes`, which the budget covers.
    pub peak_job_bytes: u64,
    /// The peak of all memory together, including the process's own, which the budget does not cover.
    pub peak_bytes: u64,
    /// The peak of anonymous memory and file pages of the process itself.
    pub peak_own_bytes: u64,
    /// The peak of staging, memory tiers and memory lent to workloads.
    pub peak_memfd_bytes: u64,
    pub peak_tmpfs_bytes: u64,
    pub peak_disk_bytes: u64,
    pub timeline: Timeline,
}

impl Footprint {
    /// Records what is held now: `usage` by the data plane, `lent` to workloads.
    pub fn note(&mut self, usage: &Usage, lent: Bytes) {
        let own = own_memory().0;
        let memfd = usage.on(Medium::Memory).0 + lent.0;
        let tmpfs = usage.on(Medium::Tmpfs).0;
        (self.job_bytes, self.own_bytes) = (memfd + tmpfs, own);
        self.peak_job_bytes = self.peak_job_bytes.max(memfd + tmpfs);
        self.peak_bytes = self.peak_bytes.max(own + memfd + tmpfs);
        self.peak_own_bytes = self.peak_own_bytes.max(own);
        self.peak_memfd_bytes = self.peak_memfd_bytes.max(memfd);
        self.peak_tmpfs_bytes = self.peak_tmpfs_bytes.max(tmpfs);
        self.peak_disk_bytes = self.peak_disk_bytes.max(usage.on(Medium::Disk).0);
    }
}

/// Anonymous memory and pages of files of this process; 0 where `/proc` is missing.
fn own_memory() -> Bytes {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = |name| field(&status, name).unwrap_or(0);
    Bytes((value("RssAnon:") + value("RssFile:")) * 1024)
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_budget_does_not_hold_is_not_compared_with_it() {
        let mut footprint = Footprint::default();
        let usage = Usage { arenas: Bytes::mib(3), tiers: Vec::new() };
        footprint.note(&usage, Bytes::mib(2));
        footprint.note(&usage, Bytes(0));
        assert_eq!(footprint.peak_job_bytes, 5 << 20);
        assert_eq!(footprint.job_bytes, 3 << 20);
        assert!(footprint.peak_own_bytes > 0);
        assert!(footprint.peak_bytes > footprint.peak_job_bytes);
    }

    #[test]
    fn the_status_of_a_process_is_read_by_name() {
        let status = "VmRSS:\t  9 kB\nRssAnon:\t  123 kB\nRssFile:\t 4 kB\n";
        assert_eq!(field(status, "RssAnon:"), Some(123));
        assert_eq!(field(status, "RssShmem:"), None);
        assert!(own_memory() > Bytes::mib(1));
    }
}
