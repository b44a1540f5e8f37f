//! Looks at what others can still take where a hog takes memory.

use std::path::PathBuf;

use tierfeed_core::{
    id::NumaNode,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};

use super::{
    decision::Look,
    strain::{self, Gauge},
};
use crate::{
    available::Watch,
    inventory::{cgroup, meminfo, mount},
    sysroot::{ReadError, Sysroot, optional},
};

/// Why a place cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookoutError {
    /// There is no such node.
    #[error("NUMA node {} has no memory on this host; see /sys/devices/system/node/has_memory",
        .node.0)]
    AbsentNode {
        /// The node that was asked for.
        node: NumaNode,
    },
    /// The kernel's files say nothing.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Takes looks at one place; finds the files once.
#[derive(Debug)]
pub struct Lookout {
    root: PathBuf,
    watch: Watch,
    locality: Locality,
    total: Bytes,
    gauge: Gauge,
}

impl Lookout {
    /// Watches `locality` in the tree below `sysroot`.
    ///
    /// # Errors
    ///
    /// The node is not there, or the kernel's report of its memory cannot be read.
    pub fn new(sysroot: Sysroot<'_>, locality: Locality) -> Result<Self, LookoutError> {
        let host = Bytes(meminfo::read(sysroot)?.total_bytes);
        let watch = Watch::new(sysroot)?;
        let place = match locality {
            Locality::Anywhere => host,
            Locality::Numa(node) => {
                let path = format!("sys/devices/system/node/node{}/meminfo", node.0);
                match meminfo::read_node(&sysroot.join(path))?.total_bytes {
                    0 => return Err(LookoutError::AbsentNode { node }),
                    // The node may account for less than it has: see `inventory`.
                    _ if watch.read()?.nodes_free.len() == 1 => host,
                    total => Bytes(total),
                }
            }
        };
        let mounts = mount::read_all(sysroot)?;
        let limit = cgroup::read(sysroot, &mounts)?.and_then(|group| group.limit_bytes);
        let total = limit.map_or(place, |limit| place.min(Bytes(limit)));
        let root = sysroot.0.to_owned();
        Ok(Self { root, watch, locality, total, gauge: Gauge::default() })
    }

    /// All memory of the place.
    #[must_use]
    pub fn total(&self) -> Bytes {
        self.total
    }

    /// Looks at `now`.
    ///
    /// # Errors
    ///
    /// The kernel's report of its memory cannot be read.
    pub fn look(&mut self, now: Nanoseconds) -> Result<Look, ReadError> {
        let available = self.watch.read()?;
        let available = match self.locality {
            Locality::Anywhere => available.bytes(),
            Locality::Numa(node) => available.bytes_on(node).min(available.bytes()),
        };
        let stalled = optional(&Sysroot(&self.root).join("proc/pressure/memory"));
        let strain = self.gauge.read(now, stalled.as_deref().and_then(strain::stalled_us));
        Ok(Look { available, total: self.total, strain })
    }

    /// Notes that memory is taken now, so that waiting for it is not mistaken for need of others.
    pub fn note_taking(&mut self) {
        self.gauge.note_taking();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{hog::decision::Strain, tests_support::FakeSysroot};

    fn lookout(machine: &FakeSysroot, locality: Locality) -> Lookout {
        Lookout::new(Sysroot(machine.path()), locality).unwrap()
    }

    #[test]
    fn the_host_is_watched_within_its_control_group() {
        let machine = FakeSysroot::single_node();
        let mut host = lookout(&machine, Locality::Anywhere);
        assert_eq!(host.total(), Bytes(4096 << 10));
        assert_eq!(host.look(Nanoseconds(0)).unwrap().available, Bytes(2048 << 10));
        machine.write("proc/self/mountinfo", "1 0 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        machine.write("proc/self/cgroup", "0::/job\n");
        machine.write("sys/fs/cgroup/job/memory.max", "1000000\n");
        machine.write("sys/fs/cgroup/job/memory.current", "400000\n");
        let mut group = lookout(&machine, Locality::Anywhere);
        assert_eq!(group.total(), Bytes(1_000_000));
        assert_eq!(group.look(Nanoseconds(0)).unwrap().available, Bytes(600_000));
    }

    #[test]
    fn a_node_is_watched_within_the_host() {
        let machine = FakeSysroot::cxl_node();
        machine.node(2, "", 2048);
        let mut node = lookout(&machine, Locality::Numa(NumaNode(2)));
        assert_eq!(node.total(), Bytes(2048 << 10));
        assert_eq!(node.look(Nanoseconds(0)).unwrap().available, Bytes(1024 << 10));
        machine.write("proc/meminfo", "MemTotal: 4096 kB\nMemFree: 8 kB\nMemAvailable: 16 kB\n");
        assert_eq!(node.look(Nanoseconds(0)).unwrap().available, Bytes(16 << 10));
    }

    #[test]
    fn a_node_without_memory_is_named() {
        let machine = FakeSysroot::single_node();
        let absent = Lookout::new(Sysroot(machine.path()), Locality::Numa(NumaNode(7)));
        assert!(matches!(absent, Err(LookoutError::AbsentNode { node: NumaNode(7) })));
    }

    #[test]
    fn waiting_tasks_are_seen_where_the_kernel_counts_them() {
        let machine = FakeSysroot::single_node();
        let mut host = lookout(&machine, Locality::Anywhere);
        let mut strain = |second: u64, stalled_us: u64| {
            let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={stalled_us}\n");
            machine.write("proc/pressure/memory", &text);
            host.look(Nanoseconds(second * 1_000_000_000)).unwrap().strain
        };
        assert_eq!(strain(0, 0), Strain::None);
        assert_eq!(strain(2, 10_000), Strain::None);
        assert_eq!(strain(4, 900_000), Strain::Others);
    }
}
