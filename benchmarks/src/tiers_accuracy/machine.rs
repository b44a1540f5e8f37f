//! Chooses where both sides run, and how much memory they need to run past the caches.

use std::path::Path;

use anyhow::Context as _;
use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{affinity, capacity};
use tierfeed_resource_gatherer::{Inventory, Sysroot};

/// Arrays are multiples of this, so that huge pages cover them.
const UNIT: Bytes = Bytes::mib(2);

/// Where both sides run.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    /// The CPUs of one node that may be used.
    pub(crate) cpus: Vec<usize>,
    /// That node; anywhere if there is no other.
    pub(crate) locality: Locality,
    /// What the last-level caches of these CPUs hold.
    pub(crate) cache: Bytes,
}

impl Machine {
    /// The first node with CPUs that may be used.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let inventory = Inventory::read(Sysroot::live())?;
        let allowed = affinity::allowed_cpus()?;
        let usable = |node: &tierfeed_resource_gatherer::inventory::Node| -> Vec<usize> {
            let here = |cpu: &usize| u32::try_from(*cpu).is_ok_and(|cpu| node.cpus.contains(&cpu));
            allowed.iter().copied().filter(here).collect()
        };
        let node = inventory
            .memory_nodes()
            .find(|node| !usable(node).is_empty())
            .context("no NUMA node has both memory and CPUs that this process may use")?;
        let locality = match inventory.memory_nodes().count() {
            1 => Locality::Anywhere,
            _ => Locality::Numa(NumaNode(node.id)),
        };
        let cache = Bytes(inventory.last_level_cache_bytes(node));
        Ok(Self { cpus: usable(node), locality, cache })
    }

    /// Four times the caches, or what was asked for, in whole huge pages.
    ///
    /// # Errors
    ///
    /// If `arrays` of them would take more than half of what may be taken.
    pub(crate) fn array(&self, asked: Option<Bytes>, arrays: u64) -> anyhow::Result<Bytes> {
        const LEAST: Bytes = Bytes::mib(64);
        let wanted = asked.unwrap_or(Bytes((4 * self.cache.0).max(LEAST.0)));
        let wanted = Bytes(wanted.0.next_multiple_of(UNIT.0).max(UNIT.0));
        let room = capacity::allocatable_bytes(Path::new("/"), self.locality)?;
        let needed = Bytes(wanted.0.saturating_mul(arrays));
        anyhow::ensure!(
            needed.0 <= room.0 / 2,
            "{arrays} arrays of {wanted} are needed, and half of what may be taken is {}; free memory or \
             give a smaller --array, at least four times the last-level cache of {}",
            Bytes(room.0 / 2),
            self.cache
        );
        Ok(wanted)
    }
}
