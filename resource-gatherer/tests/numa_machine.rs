//! What is found and measured on machines with memory-only nodes and CXL devices, of which the kernel
//! and the firmware are real and the memory is emulated: nothing here looks at how fast it is.
//!
//! `make test-numa` runs this in each of the machines of `verification/numa-machine`, one test at a time.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

#[path = "../../verification/numa-machine/machine.rs"]
mod machine;

use std::{fs, sync::LazyLock};

use tierfeed_core::{
    id::NumaNode,
    tier::Kind,
    units::{Bytes, Nanoseconds},
};
use tierfeed_resource_gatherer::{
    Budget, Inventory, ProbeSettings, Report, Sysroot, Watch,
    inventory::node::{MemoryKind, Node},
    probe::{self, Limits},
};

use machine::{Group, Setting, Topology};

fn inventory() -> Inventory {
    Inventory::read(Sysroot::live()).unwrap()
}

fn node(inventory: &Inventory, id: u32) -> &Node {
    inventory.nodes.iter().find(|node| node.id == id).unwrap()
}

#[test]
fn every_node_is_found_with_its_number_and_kind() {
    let topology = Topology::here();
    let inventory = inventory();
    let ids: Vec<_> = inventory.nodes.iter().map(|node| node.id).collect();
    assert_eq!(ids, topology.nodes());
    for near in [0, 1] {
        let node = node(&inventory, near);
        assert_eq!((node.kind, &node.cpus[..]), (MemoryKind::Dram, &[near][..]));
    }
    let far = node(&inventory, topology.far());
    let kind = if topology.has_cxl() { MemoryKind::Cxl } else { MemoryKind::CpuLess };
    assert_eq!((far.kind, far.tier_kind()), (kind, Some(Kind::CxlMemory)));
    assert!(far.cpus.is_empty());
    if topology.has_cxl() {
        assert_eq!(far.memory_total_bytes, 512 << 20, "the whole device");
    }
    assert!(inventory.hwloc, "hwloc reads this machine too");
}

#[test]
fn what_the_firmware_says_of_the_way_is_read_and_nothing_is_made_up() {
    let topology = Topology::here();
    let inventory = inventory();
    let rated = |id| node(&inventory, id).rated.clone();
    for near in [0, 1] {
        let rated = rated(near).unwrap();
        assert_eq!((rated.initiators, rated.read_latency_ns), (vec![near], Some(100)));
        assert_eq!(rated.read_bytes_per_s, Some(80 << 30));
    }
    match (topology, rated(topology.far())) {
        (Topology::Hmat, Some(rated)) => {
            assert_eq!(rated.initiators, [0], "node 1 is further away");
            assert_eq!((rated.read_latency_ns, rated.write_latency_ns), (Some(300), Some(300)));
            assert_eq!(rated.read_bytes_per_s, Some(20 << 30));
        }
        (Topology::Cxl, None) => {}
        (Topology::CxlGenericPort, Some(rated)) => {
            assert!(rated.initiators.is_empty(), "the kernel links none: {:?}", rated.initiators);
            assert!(rated.read_latency_ns > Some(200), "port and device: {rated:?}");
            assert!(rated.read_bytes_per_s.is_some() && rated.write_bytes_per_s.is_some());
        }
        (_, rated) => panic!("{topology:?}: {rated:?}"),
    }
}

#[test]
fn distances_are_those_of_the_firmware() {
    let topology = Topology::here();
    let inventory = inventory();
    let far = topology.far();
    let row = |id| topology.nodes().map(|to| node(&inventory, id).distance_to(to).unwrap());
    let expected = match topology {
        Topology::Hmat => [[10, 20, 30], [20, 10, 40], [30, 40, 10]],
        // The kernel gives a node that came later the distance of any other node.
        Topology::Cxl | Topology::CxlGenericPort => [[10, 20, 20], [20, 10, 20], [20, 20, 10]],
    };
    assert_eq!([row(0), row(1), row(far)], expected);
    let best = inventory.best_initiator(node(&inventory, far)).unwrap();
    assert_eq!(best.id, 0);
}

#[test]
fn the_cxl_device_is_found_with_its_region_its_dax_device_and_its_node() {
    let topology = Topology::here();
    let Inventory { cxl, dax, .. } = inventory();
    if !topology.has_cxl() {
        assert!(cxl.memories.is_empty() && cxl.regions.is_empty() && dax.is_empty());
        return;
    }
    let ([memory], [region], [dax]) = (&cxl.memories[..], &cxl.regions[..], &dax[..]) else {
        panic!("one device makes one region: {cxl:?} {dax:?}")
    };
    assert_eq!((memory.name.as_str(), memory.ram_bytes), ("mem0", Some(512 << 20)));
    assert_eq!(
        (&region.memories[..], region.size_bytes),
        (&["mem0".to_owned()][..], Some(512 << 20))
    );
    assert_eq!(region.numa_node, Some(topology.far()));
    assert_eq!(dax.region.as_deref(), Some(region.name.as_str()));
    assert!(dax.is_system_memory() && dax.kind == MemoryKind::Cxl);
    assert_eq!(dax.target_node, Some(topology.far()));
}

#[test]
fn whether_memory_is_movable_is_read() {
    let topology = Topology::here();
    let inventory = inventory();
    let movable = topology.nodes().map(|id| node(&inventory, id).movable_percent.unwrap());
    let of_far = if topology == Topology::Cxl { 100 } else { 0 };
    assert_eq!(movable, [0, 0, of_far]);
}

#[test]
fn the_kernels_own_placement_is_read_as_it_is_set() {
    for (value, demotion) in [("1", true), ("0", false)] {
        let _setting = Setting::change(Setting::DEMOTION, value);
        assert_eq!(inventory().placement.demotion, Some(demotion));
    }
    assert_eq!(inventory().placement.demotion, Some(false), "as a kernel boots");
}

#[test]
fn the_limit_of_a_control_group_is_seen_from_a_group_within() {
    let _group = Group::enter("128M");
    assert_eq!(inventory().cgroup.unwrap().limit_bytes, Some(128 << 20));
    let available = Watch::new(Sysroot::live()).unwrap().read().unwrap();
    assert!(available.bytes() <= Bytes::mib(128), "{}", available.bytes());
    assert!(available.bytes_on(NumaNode(Topology::here().far())) <= Bytes::mib(128));
}

/// So little that it takes only seconds even on a device that traps every access, and time for it on a host
/// that does something else.
static MEASURED: LazyLock<Measured> = LazyLock::new(|| {
    let settings = ProbeSettings {
        sysroot: "/".into(),
        scratch: None,
        storage: None,
        budget: Budget::Custom(Limits {
            cell: Nanoseconds(50_000_000),
            total: Nanoseconds(120_000_000_000),
            memory: Nanoseconds(60_000_000_000),
            sample: Nanoseconds(1_000_000),
            buffer_min: Bytes::mib(1),
            buffer_max: Bytes::mib(1),
            random_buffer: Bytes::mib(1),
            chunk: Bytes::mib(1),
            ..Budget::Quick.limits()
        }),
        emulated: Vec::new(),
        further: Vec::new(),
        buckets: Vec::new(),
        assignments: Vec::new(),
        previous: None,
    };
    let demotion = || fs::read_to_string(Setting::DEMOTION).unwrap();
    let _setting = Setting::change(Setting::DEMOTION, "1");
    let before = demotion();
    let report = probe::probe(&settings, &mut |_| ()).unwrap();
    Measured { report, demotion: [before, demotion()] }
});

struct Measured {
    report: Report,
    demotion: [String; 2],
}

#[test]
fn the_report_names_the_far_node_and_its_tier() {
    let topology = Topology::here();
    let report = &MEASURED.report;
    let document: serde_json::Value = serde_json::to_value(report).unwrap();
    let far = topology.far();
    let tiers = document["tiers"].as_array().unwrap();
    let cxl: Vec<_> = tiers.iter().filter(|tier| tier["kind"] == "cxl-memory").collect();
    let [cxl] = &cxl[..] else { panic!("{tiers:#?}") };
    assert_eq!(cxl["name"], "cxl-memory");
    assert_eq!((&cxl["numa_node"], &cxl["numa_nodes"]), (&far.into(), &vec![far].into()));
    assert_eq!(cxl["emulated"], false);
    for figure in ["read_bytes_per_s", "copy_bytes_per_s", "idle_latency_ns"] {
        assert!(cxl[figure].as_f64().is_some_and(|it| it > 0.0), "{figure}: {cxl:#}");
    }
    // Which of the near nodes is faster, and whether they differ, is up to the emulation.
    let mut near: Vec<_> = report.tiers.iter().filter(|it| it.kind == Kind::MainMemory).collect();
    near.sort_by_key(|tier| tier.numa_nodes.clone());
    let nodes: Vec<_> = near.iter().flat_map(|tier| tier.numa_nodes.clone()).collect();
    assert_eq!(nodes, [0, 1]);
    if topology.has_cxl() {
        // A trap costs a thousand times what a load costs.
        assert_eq!(report.tiers.last().unwrap().kind, Kind::CxlMemory, "{:#?}", report.tiers);
    }
    assert_eq!(report.numa.nodes, topology.nodes());
    let pair = document["pairs"].as_array().unwrap().iter().find(|it| it["target"] == far).unwrap();
    assert_eq!((&pair["initiator"], &pair["is_best"]), (&0.into(), &true.into()));
    if topology.has_cxl() {
        let region = &document["inventory"]["cxl"]["regions"][0];
        assert_eq!((&region["numa_node"], &region["memories"][0]), (&far.into(), &"mem0".into()));
    }
}

#[test]
fn measuring_leaves_the_kernels_own_tiering_as_it_was() {
    assert_eq!(MEASURED.demotion.each_ref().map(|it| it.trim()), ["true", "true"]);
}
