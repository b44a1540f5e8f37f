//! Reads the NUMA nodes: what memory each has, of which kind, and from where it is reached best.
//!
//! Numbers may have gaps. Distances are read by row, from the node that reads, and never mirrored:
//! the row of a CPU-less node may be `255 255 255 255 10` while its column says 50.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tierfeed_core::{tier::Kind, units::Bytes};

use super::{attributes, attributes::Rated, dax, meminfo, number_list};
use crate::sysroot::{ReadError, Sysroot, malformed, numbered_entries, optional, optional_number};

/// What the memory of a node is made of, as far as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// The node has CPUs: ordinary main memory.
    Dram,
    /// A CXL device that the kernel took as memory.
    Cxl,
    /// Memory that the firmware set apart (`hmem`): often high-bandwidth or CXL memory.
    SpecificPurpose,
    /// Persistent memory used as ordinary memory.
    Persistent,
    /// No CPUs, and no device that would tell more.
    CpuLess,
}

impl MemoryKind {
    /// The kind of tier that such memory makes.
    #[must_use]
    pub fn tier_kind(self) -> Kind {
        match self {
            Self::Dram => Kind::MainMemory,
            Self::Cxl | Self::SpecificPurpose | Self::Persistent | Self::CpuLess => Kind::CxlMemory,
        }
    }
}

/// How far another node is, in the kernel's relative unit (10 is local).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Distance {
    /// The other node.
    pub to: u32,
    /// From this node to the other; `None` where the firmware says unreachable (255).
    pub relative: Option<u8>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its number, as in `/sys/devices/system/node/node<N>`.
    pub id: u32,
    /// What its memory is.
    pub kind: MemoryKind,
    /// Its CPUs; empty for a node that only has memory.
    pub cpus: Vec<u32>,
    /// All its memory; zero for a node that only has CPUs.
    pub memory_total_bytes: u64,
    /// What of it no one uses, page cache not counted as free.
    pub memory_free_bytes: u64,
    /// The DRAM that the hardware uses as a cache in front of this node, if any.
    pub memory_side_cache_bytes: u64,
    /// Distances from this node to the others.
    pub distances: Vec<Distance>,
    /// What the firmware rates it at.
    pub rated: Option<Rated>,
}

impl Node {
    /// How far `other` is from here, `None` where unknown or unreachable.
    #[must_use]
    pub fn distance_to(&self, other: u32) -> Option<u8> {
        self.distances.iter().find(|distance| distance.to == other)?.relative
    }
}

/// All online nodes in ascending order.
pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Result<Vec<Node>, ReadError> {
    let root = sysroot.join("sys/devices/system/node");
    let ids = match optional(&root.join("online")) {
        Some(text) => number_list::parse(&text).ok_or_else(|| {
            malformed(root.join("online"), &text, "a list of nodes such as 0-1,3")
        })?,
        None => numbered_entries(&root, "node"),
    };
    let kinds = dax::kinds(sysroot);
    ids.iter()
        .map(|&id| {
            let mut node = read_one(&root.join(format!("node{id}")), id, &ids)?;
            if node.cpus.is_empty() {
                node.kind = kinds.get(&id).copied().unwrap_or(MemoryKind::CpuLess);
            }
            Ok(node)
        })
        .collect()
}

/// What no one uses on node `id`.
pub(crate) fn free(sysroot: Sysroot<'_>, id: u32) -> Result<Bytes, ReadError> {
    let path = sysroot.join(format!("sys/devices/system/node/node{id}/meminfo"));
    Ok(Bytes(meminfo::read_node(&path)?.free_bytes))
}

fn read_one(directory: &Path, id: u32, online: &[u32]) -> Result<Node, ReadError> {
    let cpulist = directory.join("cpulist");
    let text = optional(&cpulist).unwrap_or_default();
    let cpus = number_list::parse(&text)
        .ok_or_else(|| malformed(cpulist, &text, "a list of CPUs such as 0-3,8"))?;
    let memory = meminfo::read_node(&directory.join("meminfo"))?;
    Ok(Node {
        id,
        kind: MemoryKind::Dram,
        cpus,
        memory_total_bytes: memory.total_bytes,
        memory_free_bytes: memory.free_bytes,
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
        .sum()
}
