//! Reads `/proc/meminfo` and its copy in every NUMA node.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::gpu_memory;
use crate::sysroot::{ReadError, Sysroot, field_bytes, malformed, optional};

/// The memory of the whole host, without that of its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Memory that the kernel manages (`MemTotal`).
    pub total_bytes: u64,
    /// Page cache does not count as free (`MemFree`).
    pub free_bytes: u64,
    /// Memory that a new program could take without swapping (`MemAvailable`).
    pub available_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NodeMemory {
    pub(crate) total_bytes: u64,
    pub(crate) free_bytes: u64,
}

pub(crate) fn read(sysroot: Sysroot<'_>) -> Result<Memory, ReadError> {
    read_without(sysroot, &gpu_memory::nodes(sysroot))
}

/// The memory of the host, without that of the nodes `apart`: the kernel counts it too.
pub(crate) fn read_without(sysroot: Sysroot<'_>, apart: &[u32]) -> Result<Memory, ReadError> {
    let mut memory = read_all(sysroot)?;
    for node in apart {
        let node = sysroot.join(format!("sys/devices/system/node/node{node}/meminfo"));
        let NodeMemory { total_bytes, free_bytes } = read_node(&node)?;
        memory.total_bytes = memory.total_bytes.saturating_sub(total_bytes);
        memory.free_bytes = memory.free_bytes.saturating_sub(free_bytes);
        memory.available_bytes = memory.available_bytes.saturating_sub(free_bytes);
    }
    Ok(memory)
}

fn read_all(sysroot: Sysroot<'_>) -> Result<Memory, ReadError> {
    let text = sysroot.require("proc/meminfo")?;
    let value = |key| field_bytes(&text, key);
    let (Some(total_bytes), Some(free_bytes)) = (value("MemTotal:"), value("MemFree:")) else {
        return Err(malformed(sysroot.join("proc/meminfo"), &text, "MemTotal and MemFree in kB"));
    };
    // Kernels before 3.14 have no MemAvailable; what is free is a lower bound of it.
    let available_bytes = value("MemAvailable:").unwrap_or(free_bytes);
    Ok(Memory { total_bytes, free_bytes, available_bytes })
}

/// The memory of the node whose `meminfo` this is. A node without the file has no memory.
pub(crate) fn read_node(path: &Path) -> Result<NodeMemory, ReadError> {
    let Some(text) = optional(path) else { return Ok(NodeMemory::default()) };
    match (field_bytes(&text, "MemTotal:"), field_bytes(&text, "MemFree:")) {
        (Some(total_bytes), Some(free_bytes)) => Ok(NodeMemory { total_bytes, free_bytes }),
        _ => Err(malformed(path.to_owned(), &text, "MemTotal and MemFree in kB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_host_and_of_a_node_are_read_alike() {
        assert_eq!(field_bytes("MemTotal:  24684092 kB\nMemFree: 8 kB", "MemFree:"), Some(8192));
        assert_eq!(
            field_bytes("Node 0 MemTotal:  4 kB\nNode 0 MemFree: 2 kB", "MemFree:"),
            Some(2048)
        );
    }

    #[test]
    fn a_key_is_not_found_inside_another() {
        assert_eq!(field_bytes("SecMemTotal: 1 kB\n", "MemTotal:"), None);
    }
}
