//! Reads how the kernel itself places and moves pages: it may work with a tier or against it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::sysroot::{ReadError, Sysroot, numbered_entries, parsed};

/// The kernel's settings; each is `None` on a kernel without the feature.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Placement {
    /// Whether reclaim moves pages to slower nodes instead of dropping them.
    pub demotion: Option<bool>,
    /// Whether pages are moved towards the CPUs that use them.
    pub balancing: Option<Balancing>,
    /// Of the weighted interleave; node by node, ascending. A node may be listed that is not online.
    pub interleave_weights: Option<Vec<Weight>>,
}

/// The value of `/proc/sys/kernel/numa_balancing`; its two bits are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Balancing {
    Off,
    /// Between nodes with CPUs.
    Nodes,
    /// From slow tiers to fast ones.
    Tiers,
    NodesAndTiers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weight {
    pub node: u32,
    /// Pages per round, 1 to 255.
    pub pages: u8,
}

pub(crate) fn read(sysroot: Sysroot<'_>) -> Result<Placement, ReadError> {
    let demotion = sysroot.join("sys/kernel/mm/numa/demotion_enabled");
    let balancing = sysroot.join("proc/sys/kernel/numa_balancing");
    Ok(Placement {
        demotion: parsed(&demotion, "true or false", switch)?,
        balancing: parsed(&balancing, "a number from 0 to 3", mode)?,
        interleave_weights: weights(&sysroot.join("sys/kernel/mm/mempolicy/weighted_interleave"))?,
    })
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "Y" => Some(true),
        "false" | "0" | "N" => Some(false),
        _ => None,
    }
}

fn mode(text: &str) -> Option<Balancing> {
    match text {
        "0" => Some(Balancing::Off),
        "1" => Some(Balancing::Nodes),
        "2" => Some(Balancing::Tiers),
        "3" => Some(Balancing::NodesAndTiers),
        _ => None,
    }
}

fn weights(directory: &Path) -> Result<Option<Vec<Weight>>, ReadError> {
    if !directory.is_dir() {
        return Ok(None);
    }
    let mut weights = Vec::new();
    for node in numbered_entries(directory, "node") {
        let path = directory.join(format!("node{node}"));
        let weight = |text: &str| text.parse().ok().filter(|pages: &u8| *pages > 0);
        if let Some(pages) = parsed(&path, "a weight from 1 to 255", weight)? {
            weights.push(Weight { node, pages });
        }
    }
    Ok(Some(weights))
}
