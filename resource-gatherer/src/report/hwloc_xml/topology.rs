//! Asks hwloc for the topology of this host.

use hwlocality::{
    Topology,
    object::{TopologyObject, types::ObjectType},
    topology::export::xml::XMLExportFlags,
};

use super::{
    HwlocXmlError,
    attributes::{Named, with_figures},
};
use crate::report::{Pair, Report};

/// The topology of this host with the figures of `report`: bandwidths in MiB/s, latencies in ns.
///
/// # Errors
///
/// hwloc cannot read the topology, the report is of another host, or it has no figures of memory.
pub fn hwloc_xml(report: &Report) -> Result<String, HwlocXmlError> {
    let topology = Topology::new().map_err(|error| HwlocXmlError::Unreadable(error.into()))?;
    let host = topology.root_object().info("HostName").map(|name| name.to_string_lossy());
    if let Some(here) = host.filter(|here| *here != report.host) {
        let here = here.into_owned();
        return Err(HwlocXmlError::OtherHost { report: report.host.clone(), here });
    }
    let usable = report.pairs.iter().filter(|pair| !pair.cache_bound);
    let found: Vec<(&Pair, Vec<usize>, u64)> = usable
        .filter_map(|pair| {
            let initiator = node(&topology, pair.initiator)?;
            let cpus = initiator.cpuset()?.iter_set().map(usize::from).collect();
            Some((pair, cpus, node(&topology, pair.target)?.global_persistent_index()))
        })
        .collect();
    let named: Vec<Named<'_>> =
        found.iter().map(|(pair, cpus, target)| Named { pair, cpus, target: *target }).collect();
    let xml = topology
        .export_xml(XMLExportFlags::empty())
        .map_err(|error| HwlocXmlError::Unreadable(error.into()))?;
    with_figures(&xml, &named).ok_or(HwlocXmlError::NoFigures)
}

fn node(topology: &Topology, number: u32) -> Option<&TopologyObject> {
    let mut nodes = topology.objects_with_type(ObjectType::NUMANode);
    nodes.find(|node| node.os_index() == usize::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use hwlocality::{memory::attribute::MemoryAttribute, topology::builder::TopologyBuilder};
    use tierfeed_test_needs::{Need, skip};

    use super::*;
    use crate::{
        inventory::Inventory,
        report::tests_support::{full, minimal},
        sysroot::Sysroot,
    };

    /// A report of this host with figures for its first node.
    fn of_this_host() -> Report {
        let inventory = Inventory::read(Sysroot::live()).unwrap();
        let node = inventory.nodes[0].id;
        let pair = Pair { initiator: node, target: node, ..full().pairs[0].clone() };
        Report { pairs: vec![pair], ..minimal(&inventory) }
    }

    #[test]
    fn hwloc_reads_the_figures_back() {
        let report = of_this_host();
        let xml = hwloc_xml(&report).unwrap();
        let topology = TopologyBuilder::new().from_xml(&xml).unwrap().build().unwrap();
        let node = node(&topology, report.pairs[0].target).unwrap();
        let values = |attribute: MemoryAttribute<'_>| attribute.initiators(node).unwrap().1;
        assert_eq!(values(MemoryAttribute::latency(&topology)), [108]);
        // 99.8 GB/s in MiB/s.
        assert_eq!(values(MemoryAttribute::read_bandwidth(&topology)), [95_177]);
    }

    #[test]
    fn lstopo_shows_the_figures_where_it_is_installed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("topology.xml");
        std::fs::write(&file, hwloc_xml(&of_this_host()).unwrap()).unwrap();
        let mut lstopo = Command::new("lstopo-no-graphics");
        let shown = match lstopo.arg("--input").arg(&file).arg("--memattrs").output() {
            Ok(shown) => shown,
            Err(error) => return skip(Need::Lstopo, error),
        };
        let text = String::from_utf8_lossy(&shown.stdout);
        assert!(shown.status.success(), "{text}");
        assert!(text.contains("= 108 from") && text.contains("= 95177 from"), "{text}");
    }

    #[test]
    fn another_host_and_no_figures_are_refused() {
        let mut report = of_this_host();
        report.host = "elsewhere".to_owned();
        let error = hwloc_xml(&report).unwrap_err();
        assert!(matches!(error, HwlocXmlError::OtherHost { .. }), "{error}");
        let nothing = minimal(&Inventory::read(Sysroot::live()).unwrap());
        assert!(matches!(hwloc_xml(&nothing), Err(HwlocXmlError::NoFigures)));
    }
}
