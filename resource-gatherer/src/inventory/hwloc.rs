//! Fills what sysfs leaves open from hwloc, on the machine that the process runs on.
//!
//! hwloc never measures: its memory attributes are the firmware's, or what an operator injected
//! through its XML files. That injection is the one thing it knows and sysfs does not.

use hwlocality::{
    Topology,
    memory::attribute::MemoryAttribute,
    object::{
        TopologyObject,
        attributes::ObjectAttributes,
        types::{CacheType, ObjectType},
    },
};

use super::{Inventory, attributes::Rated, cache::Cache};

/// `inventory` with caches and rated values that it had none of. Without a topology it stays as it is.
pub(crate) fn complete(mut inventory: Inventory) -> Inventory {
    let Ok(topology) = Topology::new() else { return inventory };
    inventory.hwloc = true;
    if inventory.caches.is_empty() {
        inventory.caches = caches(&topology);
    }
    for object in topology.objects_with_type(ObjectType::NUMANode) {
        let node =
            inventory.nodes.iter_mut().find(|node| object.os_index() == Some(node.id as usize));
        if let Some(node) = node.filter(|node| node.rated.is_none()) {
            node.rated = Some(rated(&topology, object)).filter(|rated| !rated.is_empty());
        }
    }
    inventory
}

fn caches(topology: &Topology) -> Vec<Cache> {
    let mut caches: Vec<Cache> = topology.objects().filter_map(cache).collect();
    caches.sort_unstable();
    caches.dedup();
    caches
}

fn cache(object: &TopologyObject) -> Option<Cache> {
    let Some(ObjectAttributes::Cache(attributes)) = object.attributes() else { return None };
    if attributes.cache_type() == CacheType::Instruction {
        return None;
    }
    let cpus = object.cpuset()?;
    Some(Cache {
        level: u8::try_from(attributes.depth()).ok()?,
        size_bytes: attributes.size()?.get(),
        cpus: cpus.iter_set().filter_map(|cpu| u32::try_from(usize::from(cpu)).ok()).collect(),
    })
}

/// Only the best initiator counts, as with the files of sysfs. hwloc gives MiB/s and ns.
fn rated(topology: &Topology, node: &TopologyObject) -> Rated {
    let lowest = |attribute: MemoryAttribute<'_>| known(&attribute, node).into_iter().min();
    let highest = |attribute: MemoryAttribute<'_>| {
        known(&attribute, node).into_iter().max()?.checked_mul(1 << 20)
    };
    Rated {
        initiators: Vec::new(),
        read_latency_ns: lowest(MemoryAttribute::read_latency(topology)),
        write_latency_ns: lowest(MemoryAttribute::write_latency(topology)),
        read_bytes_per_s: highest(MemoryAttribute::read_bandwidth(topology)),
        write_bytes_per_s: highest(MemoryAttribute::write_bandwidth(topology)),
    }
}

fn known(attribute: &MemoryAttribute<'_>, node: &TopologyObject) -> Vec<u64> {
    let values = attribute.initiators(node).map(|(_, values)| values).unwrap_or_default();
    values.into_iter().filter(|value| *value > 0).collect()
}
