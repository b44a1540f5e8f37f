//! Reads the memory tiers that the kernel made, for comparison with the measured ones.
//!
//! They are often wrong: without HMAT every node lands in `memory_tier4`, and they cannot be changed
//! at run time. The code of the kernel names the file `nodelist`, its documentation `nodes`.

use serde::{Deserialize, Serialize};

use super::number_list;
use crate::sysroot::{ReadError, Sysroot, numbered_entries, parsed};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelTier {
    /// The number in `memory_tier<N>`, smaller is faster; ordinary DRAM is 4.
    pub number: u32,
    pub nodes: Vec<u32>,
}

/// All tiers of the kernel, fastest first; none on kernels before 6.1.
pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Result<Vec<KernelTier>, ReadError> {
    const EXPECTED: &str = "a list of nodes such as 0-1,3";
    let root = sysroot.join("sys/devices/virtual/memory_tiering");
    let mut tiers = Vec::new();
    for number in numbered_entries(&root, "memory_tier") {
        let tier = root.join(format!("memory_tier{number}"));
        let nodes = match parsed(&tier.join("nodelist"), EXPECTED, number_list::parse)? {
            None => parsed(&tier.join("nodes"), EXPECTED, number_list::parse)?,
            found => found,
        };
        tiers.extend(nodes.map(|nodes| KernelTier { number, nodes }));
    }
    Ok(tiers)
}
