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

use super::{Inventory, Node, attributes::Rated, cache::Cache, node::MemoryKind};

/// `inventory` with what hwloc knows of this machine. Without a topology it stays as it is.
pub(crate) fn complete(inventory: Inventory) -> Inventory {
    match Topology::new() {
        Ok(topology) => complete_from(inventory, &topology),
        Err(_) => inventory,
    }
}

fn complete_from(mut inventory: Inventory, topology: &Topology) -> Inventory {
    inventory.hwloc = true;
    if inventory.caches.is_empty() {
        inventory.caches = caches(topology);
    }
    for object in topology.objects_with_type(ObjectType::NUMANode) {
        let is_object = |node: &&mut Node| object.os_index() == Some(node.id as usize);
        let Some(node) = inventory.nodes.iter_mut().find(is_object) else { continue };
        if node.rated.is_none() {
            node.rated = Some(rated(topology, object)).filter(|rated| !rated.is_empty());
        }
        if node.kind == MemoryKind::CpuLess {
            node.kind = kind(object).unwrap_or(node.kind);
        }
    }
    inventory
}

/// The kind of a DAX device by hwloc's name for it.
fn kind(node: &TopologyObject) -> Option<MemoryKind> {
    if node.info("CXLDevice").is_some() {
        return Some(MemoryKind::Cxl);
    }
    match node.info("DAXType")?.to_str().ok()? {
        "NVM" => Some(MemoryKind::Persistent),
        "SPM" => Some(MemoryKind::SpecificPurpose),
        _ => None,
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::cache::Cache;

    /// Two nodes without CPUs that DAX devices made.
    const XML: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x1" complete_cpuset="0x1" allowed_cpuset="0x1" nodeset="0x7" complete_nodeset="0x7" allowed_nodeset="0x7" gp_index="1">
  <object type="NUMANode" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1" gp_index="2" local_memory="4096"/>
  <object type="NUMANode" os_index="1" cpuset="0x0" complete_cpuset="0x0" nodeset="0x2" complete_nodeset="0x2" gp_index="3" local_memory="4096"><info name="DAXType" value="NVM"/></object>
  <object type="NUMANode" os_index="2" cpuset="0x0" complete_cpuset="0x0" nodeset="0x4" complete_nodeset="0x4" gp_index="4" local_memory="4096"><info name="CXLDevice" value="0000:01:00.0"/></object>
  <object type="Package" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x7" complete_nodeset="0x7" gp_index="5">
   <object type="L3Cache" cpuset="0x1" complete_cpuset="0x1" nodeset="0x7" complete_nodeset="0x7" gp_index="6" cache_size="1048576" depth="3" cache_linesize="64" cache_associativity="16" cache_type="0">
    <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x7" complete_nodeset="0x7" gp_index="7"/>
   </object>
  </object>
 </object>
</topology>
"#;

    fn topology() -> Topology {
        hwlocality::topology::builder::TopologyBuilder::new()
            .from_xml(XML)
            .unwrap()
            .build()
            .unwrap()
    }

    fn nodes() -> Vec<Node> {
        let node = |(id, kind)| Node { id, kind, ..Node::default() };
        let kinds = [MemoryKind::Dram, MemoryKind::CpuLess, MemoryKind::CpuLess];
        (0..).zip(kinds).map(node).collect()
    }

    #[test]
    fn hwloc_tells_what_sysfs_left_open() {
        let inventory = Inventory { nodes: nodes(), ..Inventory::default() };
        let complete = complete_from(inventory, &topology());
        let kinds = complete.nodes.iter().map(|node| node.kind).collect::<Vec<_>>();
        assert_eq!(kinds, [MemoryKind::Dram, MemoryKind::Persistent, MemoryKind::Cxl]);
        assert_eq!(complete.caches, [Cache { level: 3, size_bytes: 1 << 20, cpus: vec![0] }]);
        assert!(complete.hwloc);
    }

    #[test]
    fn hwloc_overrules_nothing() {
        let mut inventory = Inventory { nodes: nodes(), ..Inventory::default() };
        inventory.nodes[1].kind = MemoryKind::SpecificPurpose;
        inventory.nodes[2].rated = Some(Rated { read_latency_ns: Some(1), ..Rated::default() });
        inventory.caches = vec![Cache { level: 2, size_bytes: 1, cpus: vec![0] }];
        let complete = complete_from(inventory.clone(), &topology());
        assert_eq!(complete.nodes[1], inventory.nodes[1]);
        assert_eq!(complete.nodes[2].rated, inventory.nodes[2].rated);
        assert_eq!(complete.caches, inventory.caches);
    }
}
