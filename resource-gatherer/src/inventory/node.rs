//! Reads the NUMA nodes: what memory each has, of which kind, and from where it is reached best.
//!
//! Numbers may have gaps. Distances are read by row, from the node that reads, and never mirrored:
//! the row of a CPU-less node may be `255 255 255 255 10` while its column says 50.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use tierfeed_core::{tier::Kind, units::Bytes};

pub use super::dax::MemoryKind;
use super::{
    attributes::{self, Rated},
    dax::{self, DaxDevice},
    gpu_memory, meminfo, number_list,
};
use crate::sysroot::{
    ReadError, Sysroot, malformed, numbered_entries, optional, optional_number, parsed,
};

/// The distance to another node, in the kernel's relative unit (10 is local).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distance {
    pub to: u32,
    /// From this node to the other; `None` where the firmware says unreachable (255).
    pub relative: Option<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Node {
    /// As in `/sys/devices/system/node/node<N>`.
    pub id: u32,
    pub kind: MemoryKind,
    /// Empty for a node that only has memory.
    pub cpus: Vec<u32>,
    /// Zero for a node that only has CPUs.
    pub memory_total_bytes: u64,
    /// Page cache does not count as free.
    pub memory_free_bytes: u64,
    /// The share of its memory that takes movable pages only: no kernel data and nothing that stays
    /// pinned. `None` where the kernel does not tell.
    pub movable_percent: Option<u8>,
    /// The DRAM that the hardware uses as a cache in front of this node, if any.
    pub memory_side_cache_bytes: u64,
    pub distances: Vec<Distance>,
    pub rated: Option<Rated>,
}

impl Node {
    /// The kind of tier that its memory makes unless the user says otherwise. `None` for memory of a GPU, and
    /// for memory without CPUs of which neither a device nor the firmware says what it is.
    #[must_use]
    pub fn tier_kind(&self) -> Option<Kind> {
        match self.kind {
            MemoryKind::Dram => Some(Kind::MainMemory),
            MemoryKind::Cxl | MemoryKind::SpecificPurpose | MemoryKind::Persistent => {
                Some(Kind::CxlMemory)
            }
            MemoryKind::CpuLess => self.rated.as_ref().map(|_| Kind::CxlMemory),
            MemoryKind::Gpu => None,
        }
    }

    #[must_use]
    pub fn is_gpu(&self) -> bool {
        self.kind == MemoryKind::Gpu
    }

    /// `None` where unknown or unreachable.
    #[must_use]
    pub fn distance_to(&self, other: u32) -> Option<u8> {
        self.distances.iter().find(|distance| distance.to == other)?.relative
    }
}

/// All online nodes in ascending order.
pub(crate) fn read_all(
    sysroot: Sysroot<'_>,
    devices: &[DaxDevice],
) -> Result<Vec<Node>, ReadError> {
    let root = sysroot.join("sys/devices/system/node");
    let online = parsed(&root.join("online"), "a list of nodes such as 0-1,3", number_list::parse)?;
    let ids = online.unwrap_or_else(|| numbered_entries(&root, "node"));
    let kinds = dax::kinds(devices);
    let gpus = gpu_memory::of_devices(sysroot, devices);
    let movable = movable_percent(sysroot);
    ids.iter()
        .map(|&id| {
            let mut node = read_one(&root.join(format!("node{id}")), id, &ids)?;
            if gpus.contains(&id) {
                node.kind = MemoryKind::Gpu;
            } else if node.cpus.is_empty() {
                node.kind = kinds.get(&id).copied().unwrap_or(MemoryKind::CpuLess);
            }
            node.movable_percent = movable.get(&id).copied();
            Ok(node)
        })
        .collect()
}

pub(crate) fn free(sysroot: Sysroot<'_>, id: u32) -> Result<Bytes, ReadError> {
    let path = sysroot.join(format!("sys/devices/system/node/node{id}/meminfo"));
    Ok(Bytes(meminfo::read_node(&path)?.free_bytes))
}

fn read_one(directory: &Path, id: u32, online: &[u32]) -> Result<Node, ReadError> {
    let cpus =
        parsed(&directory.join("cpulist"), "a list of CPUs such as 0-3,8", number_list::parse)?;
    let memory = meminfo::read_node(&directory.join("meminfo"))?;
    Ok(Node {
        id,
        kind: MemoryKind::Dram,
        cpus: cpus.unwrap_or_default(),
        memory_total_bytes: memory.total_bytes,
        memory_free_bytes: memory.free_bytes,
        movable_percent: None,
        memory_side_cache_bytes: memory_side_cache(&directory.join("memory_side_cache")),
        distances: distances(&directory.join("distance"), online)?,
        rated: attributes::read(directory),
    })
}

/// One value per online node, in the order of their numbers.
fn distances(path: &Path, online: &[u32]) -> Result<Vec<Distance>, ReadError> {
    const EXPECTED: &str = "one number from 0 to 255 for each online node";
    let Some(text) = optional(path) else { return Ok(Vec::new()) };
    let row: Result<Vec<u8>, _> = text.split_whitespace().map(str::parse).collect();
    match row {
        Ok(row) if row.len() == online.len() => Ok(row
            .into_iter()
            .zip(online)
            .map(|(value, &to)| Distance { to, relative: (value != UNREACHABLE).then_some(value) })
            .collect()),
        _ => Err(malformed(path.to_owned(), &text, EXPECTED)),
    }
}

const UNREACHABLE: u8 = 255;

fn memory_side_cache(directory: &Path) -> u64 {
    numbered_entries(directory, "index")
        .into_iter()
        .filter_map(|index| optional_number(&directory.join(format!("index{index}/size"))))
        .fold(0, u64::saturating_add)
}

/// The share of movable memory in per cent, by node; empty where the kernel does not tell.
///
/// Distributions bring CXL memory up this way: a kernel without policy then never allocates there, and
/// pages that a network card or a GPU pins are moved away or refused.
fn movable_percent(sysroot: Sysroot<'_>) -> BTreeMap<u32, u8> {
    let text = optional(&sysroot.join("proc/zoneinfo")).unwrap_or_default();
    let mut nodes: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut zone = None;
    for line in text.lines() {
        if let Some(header) = line.strip_prefix("Node ") {
            zone = header_of(header);
        } else if let (Some((node, name)), Some(pages)) = (zone, managed(line)) {
            let (movable, all) = nodes.entry(node).or_default();
            *all = all.saturating_add(pages);
            if name == "Movable" {
                *movable = movable.saturating_add(pages);
            }
        }
    }
    let percent = |movable: u64, all: u64| {
        let share = (u128::from(movable) * 100).checked_div(u128::from(all))?;
        u8::try_from(share).ok().filter(|percent| *percent <= 100)
    };
    let nodes = nodes.into_iter();
    nodes.filter_map(|(node, (movable, all))| Some((node, percent(movable, all)?))).collect()
}

/// `0, zone   Movable`.
fn header_of(text: &str) -> Option<(u32, &str)> {
    let (node, zone) = text.split_once(", zone")?;
    Some((node.parse().ok()?, zone.trim()))
}

/// `        managed  5394266`, in pages; their size cancels out.
fn managed(line: &str) -> Option<u64> {
    line.trim().strip_prefix("managed ")?.trim().parse().ok()
}
