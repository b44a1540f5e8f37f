//! Chooses where both sides run, and how much memory they need to run past the caches.

use std::{fs, path::Path};

use anyhow::Context as _;
use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{affinity, capacity};
use tierfeed_resource_gatherer::{Inventory, Sysroot};

/// Arrays are multiples of this, so that huge pages cover them.
const UNIT: Bytes = Bytes::mib(2);

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) node: NumaNode,
    /// One CPU of each core of that node that may be used: two threads on a core would measure the core.
    pub(crate) cpus: Vec<usize>,
    /// Memory of that node; anywhere if there is no other.
    pub(crate) locality: Locality,
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
        let cpus = one_of_each_core(&usable(node), siblings);
        Ok(Self { node: NumaNode(node.id), cpus, locality, cache })
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

/// The hardware threads of the core of `cpu`, as the kernel lists them.
fn siblings(cpu: usize) -> Option<String> {
    let topology = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    fs::read_to_string(topology).ok()
}

/// The first CPU of each core; one whose core is not known stands for itself.
fn one_of_each_core(cpus: &[usize], core: impl Fn(usize) -> Option<String>) -> Vec<usize> {
    let mut seen = Vec::new();
    let mut is_first = |cpu: &usize| {
        let core = core(*cpu);
        let is_new = core.is_none() || !seen.contains(&core);
        seen.push(core);
        is_new
    };
    cpus.iter().copied().filter(|cpu| is_first(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_threads_of_a_core_one_runs() {
        let pairs = |cpu: usize| Some(format!("{},{}\n", cpu % 2, cpu % 2 + 2));
        assert_eq!(one_of_each_core(&[0, 1, 2, 3], pairs), [0, 1]);
        assert_eq!(one_of_each_core(&[2, 3], pairs), [2, 3]);
        assert_eq!(one_of_each_core(&[0, 1, 2], |_| None), [0, 1, 2]);
    }

    #[test]
    fn arrays_that_would_hurt_are_refused() {
        let machine = Machine {
            node: NumaNode(0),
            cpus: vec![0],
            locality: Locality::Anywhere,
            cache: Bytes::mib(32),
        };
        assert_eq!(machine.array(None, 1).unwrap(), Bytes::mib(128));
        assert_eq!(machine.array(Some(Bytes(1)), 1).unwrap(), Bytes::mib(2));
        let refused = machine.array(Some(Bytes(1 << 60)), 3).unwrap_err().to_string();
        assert!(refused.contains("--array") && refused.contains("32 MiB"), "{refused}");
    }
}
