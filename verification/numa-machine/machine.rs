//! The properties of the machine that `run.sh` starts, and access to its kernel's counters and
//! settings, for the tests that run in it. Each crate with such tests includes this file.
//!
//! A test that is started on another machine fails here: it never passes without checks, and never
//! changes the settings of another machine.

#![allow(dead_code, reason = "each crate uses its part")]

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process,
};

/// The value of `run.sh --topology`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topology {
    /// A memory-only node that the firmware describes.
    Hmat,
    /// A CXL device that the firmware does not describe; its memory is movable.
    Cxl,
    /// A CXL device whose path the firmware describes; node numbers with a hole, ordinary memory.
    CxlGenericPort,
}

impl Topology {
    /// The topology of the machine that the test runs in. Panics on other machines.
    pub(crate) fn here() -> Self {
        let path = "/numa-machine/topology";
        let text = fs::read_to_string(path).unwrap_or_else(|error| {
            panic!("{path}: {error}; this test needs a machine of its own: `make test-numa`")
        });
        match text.trim() {
            "hmat" => Self::Hmat,
            "cxl" => Self::Cxl,
            "cxl-generic-port" => Self::CxlGenericPort,
            other => panic!("{path}: {other:?} is no topology that these tests know"),
        }
    }

    /// The node that has memory and no CPU. The nodes 0 and 1 have both.
    pub(crate) fn far(self) -> u32 {
        match self {
            Self::Hmat | Self::Cxl => 2,
            Self::CxlGenericPort => 3,
        }
    }

    pub(crate) fn nodes(self) -> [u32; 3] {
        [0, 1, self.far()]
    }

    pub(crate) fn has_cxl(self) -> bool {
        self != Self::Hmat
    }
}

/// Pages by node of each mapping whose line contains `name`, from `/proc/<pid>/numa_maps`.
pub(crate) fn pages_by_node(numa_maps: &str, name: &str) -> Vec<BTreeMap<u32, u64>> {
    let node_and_pages = |word: &str| -> Option<(u32, u64)> {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((node.parse().ok()?, pages.parse().ok()?))
    };
    let lines = numa_maps.lines().filter(|line| line.contains(name));
    lines.map(|line| line.split(' ').filter_map(node_and_pages).collect()).collect()
}

/// Number of processes that the kernel killed for lack of memory since it booted.
pub(crate) fn kills_for_memory() -> u64 {
    let statistics = fs::read_to_string("/proc/vmstat").expect("the kernel keeps statistics");
    let line = statistics.lines().find_map(|line| line.strip_prefix("oom_kill "));
    line.and_then(|count| count.parse().ok()).expect("the kernel counts them")
}

/// A setting of the kernel that is restored when dropped.
#[derive(Debug)]
pub(crate) struct Setting {
    path: PathBuf,
    before: String,
}

impl Setting {
    pub(crate) const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

    pub(crate) fn change(path: &str, value: &str) -> Self {
        Self::try_change(path.as_ref(), value).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn try_change(path: &Path, value: &str) -> io::Result<Self> {
        Topology::here();
        let before = fs::read_to_string(path)?;
        fs::write(path, value)?;
        Ok(Self { path: path.to_owned(), before })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        fs::write(&self.path, &self.before).expect("it was written before");
    }
}

/// Takes blocks of a hot-plugged node offline until the settings are dropped, except one and those
/// in which the kernel keeps its own data: filling such a node takes long, because each store is
/// trapped.
pub(crate) fn shrink(topology: Topology) -> Vec<Setting> {
    if !topology.has_cxl() {
        return Vec::new();
    }
    let blocks = blocks(topology);
    let taken_out: Vec<_> =
        blocks.iter().filter_map(|it| take_out(it).ok()).take(blocks.len() - 1).collect();
    assert!(taken_out.len() > 1, "{} of {} blocks", taken_out.len(), blocks.len());
    taken_out
}

/// Takes all blocks of a node offline until the settings are dropped; its memory must be movable.
pub(crate) fn empty(topology: Topology) -> Vec<Setting> {
    let taken_out = blocks(topology).iter().map(|it| take_out(it)).collect::<io::Result<_>>();
    taken_out.expect("movable memory can be taken out")
}

/// The files with the state of each block of the far node.
fn blocks(topology: Topology) -> Vec<PathBuf> {
    let node = format!("/sys/devices/system/node/node{}", topology.far());
    let entries = fs::read_dir(node).expect("the node is there").filter_map(Result::ok);
    entries.map(|it| it.path().join("state")).filter(|it| it.exists()).collect()
}

fn take_out(block: &Path) -> io::Result<Setting> {
    let zones = fs::read_to_string(block.with_file_name("valid_zones"))?;
    let mut state = Setting::try_change(block, "offline")?;
    // `online` alone would bring movable memory back as ordinary memory.
    if zones.trim() == "Movable" {
        state.before = String::from("online_movable");
    }
    Ok(state)
}

/// A control group of version 2 that this process is in until it is dropped.
#[derive(Debug)]
pub(crate) struct Group {
    outer: PathBuf,
}

impl Group {
    const ROOT: &str = "/sys/fs/cgroup";

    /// Enters a group without limits inside a group with `memory_max`, which may be `max`.
    pub(crate) fn enter(memory_max: &str) -> Self {
        Topology::here();
        let group = Self { outer: Path::new(Self::ROOT).join("limited") };
        write(Path::new(Self::ROOT), "cgroup.subtree_control", "+memory");
        fs::create_dir_all(&group.outer).expect("the tests run as root");
        write(&group.outer, "cgroup.subtree_control", "+memory");
        write(&group.outer, "memory.max", memory_max);
        fs::create_dir_all(group.inner()).expect("the tests run as root");
        write(&group.inner(), "cgroup.procs", &process::id().to_string());
        group
    }

    fn inner(&self) -> PathBuf {
        self.outer.join("inner")
    }

    /// Makes the kernel reclaim memory of the group, where that is possible.
    pub(crate) fn reclaim(&self, bytes: u64) {
        // A partial reclaim is an error too, and harmless.
        let _ = fs::write(self.inner().join("memory.reclaim"), bytes.to_string());
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        write(Path::new(Self::ROOT), "cgroup.procs", &process::id().to_string());
        fs::remove_dir(self.inner()).expect("no process is left in it");
        fs::remove_dir(&self.outer).expect("no process is left in it");
    }
}

fn write(directory: &Path, file: &str, text: &str) {
    let path = directory.join(file);
    fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
