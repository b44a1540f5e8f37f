//! The tiers of real machines when every figure is exact.

use super::{machine::Machine, *};
use crate::{
    figures::{Pair, Traffic, whole},
    inventory::Rated,
};

pub(super) fn host_tiers(
    machine: &Machine,
    pairs: &[Pair],
    constraints: &Constraints<'_>,
) -> Vec<Vec<u32>> {
    let (nodes, profiles): (Vec<u32>, Vec<Profile>) =
        host_profiles(&machine.inventory, pairs, constraints).into_iter().unzip();
    let of_nodes = |group: Vec<usize>| group.into_iter().map(|index| nodes[index]).collect();
    classify(&profiles).into_iter().map(of_nodes).collect()
}

pub(super) fn seen(
    machine: &Machine,
    pairs: &[Pair],
    constraints: &Constraints<'_>,
) -> Vec<Vec<Vec<u32>>> {
    views(&machine.inventory, pairs, constraints).into_iter().map(|view| view.tiers).collect()
}

#[test]
fn siblings_share_a_tier_and_the_other_socket_and_cxl_do_not() {
    for machine in Machine::all() {
        let pairs = machine.pairs();
        assert_eq!(
            seen(&machine, &pairs, &Constraints::default()),
            machine.views,
            "{}",
            machine.name
        );
    }
}

#[test]
fn from_their_best_initiators_all_dram_is_one_tier() {
    for machine in Machine::all() {
        let pairs = machine.pairs();
        let tiers = host_tiers(&machine, &pairs, &Constraints::default());
        assert_eq!(tiers, machine.tiers, "{}", machine.name);
    }
}

#[test]
fn a_socket_with_more_cores_is_compared_at_numbers_of_threads_that_both_have() {
    let machine = Machine::azure();
    let mut pairs = machine.pairs();
    let mut peak = machine::bandwidth(Traffic::Read, 200e9);
    peak.threads = 64;
    pairs[0].bandwidth.push(peak);
    assert_eq!(host_tiers(&machine, &pairs, &Constraints::default()), machine.tiers);
    assert_eq!(seen(&machine, &pairs, &Constraints::default()), machine.views);
}

#[test]
fn a_copy_costs_by_the_bytes_that_arrive_not_by_those_that_move() {
    let machine = Machine::azure();
    let profiles = host_profiles(&machine.inventory, &machine.pairs(), &Constraints::default());
    let rate = profiles[&0].copy_bytes_per_s.unwrap();
    assert_eq!(whole(rate), 79_800_000_000 / 2);
}

#[test]
fn figures_with_misses_of_the_tlb_in_them_are_in_no_view() {
    let machine = Machine::azure();
    let mut pairs = machine.pairs();
    pairs[1].huge_page_share = Some(0.5);
    pairs[2].huge_page_share = Some(0.95);
    assert_eq!(seen(&machine, &pairs, &Constraints::default())[0], [[0], [2]]);
}

#[test]
fn a_pair_from_the_caches_is_in_no_view() {
    let machine = Machine::azure();
    let mut pairs = machine.pairs();
    pairs[1].cache_bound = true;
    assert_eq!(seen(&machine, &pairs, &Constraints::default())[0], [[0], [2]]);
}

#[test]
fn memory_without_a_device_that_is_twice_as_fast_as_dram_is_high_bandwidth_memory() {
    let unknown = |rate| Profile {
        grouping: Grouping::Node(MemoryClass::Unknown),
        ..node(Kind::CxlMemory, 130.0, rate)
    };
    let dram = node(Kind::MainMemory, 100.0, 100.0);
    assert_eq!(class_of(&[dram, unknown(200.0)], 1), Some(MemoryClass::Hbm));
    assert_eq!(class_of(&[dram, unknown(199.0)], 1), Some(MemoryClass::Unknown));
    assert_eq!(classify(&[dram, unknown(400.0)]), [[1], [0]]);
    let cxl = node(Kind::CxlMemory, 130.0, 400.0);
    assert_eq!(class_of(&[dram, cxl], 1), Some(MemoryClass::Cxl));
}

fn rated(latency_ns: u64, gb_per_s: u64) -> Rated {
    Rated {
        initiators: vec![0],
        read_latency_ns: Some(latency_ns),
        write_latency_ns: Some(latency_ns),
        read_bytes_per_s: Some(gb_per_s * 1_000_000_000),
        write_bytes_per_s: Some(gb_per_s * 1_000_000_000),
    }
}

/// Stated value, measured value, and whether they differ, for one figure of a node.
fn said(machine: &Machine, figure: &str, node: u32) -> Option<(f64, f64, bool)> {
    let all = comparisons(&machine.inventory, &machine.pairs());
    all.iter()
        .find(|it| it.figure == figure && it.node == node)
        .map(|it| (it.stated, it.measured, it.differs))
}

#[test]
fn ratings_that_are_off_by_more_than_a_quarter_are_warned_of() {
    let mut machine = Machine::azure();
    machine.inventory.nodes[2].rated = Some(rated(250, 64));
    let latency = said(&machine, "idle_latency_ns", 2);
    assert_eq!(latency, Some((250.0, 265.7, false)));
    let (_, measured, differs) = said(&machine, "read_bytes_per_s", 2).unwrap();
    assert_eq!((measured, differs), (31.3e9, true));
    assert_eq!(said(&machine, "idle_latency_ns", 0), None);
}

#[test]
fn nothing_is_compared_with_what_was_not_measured() {
    let mut machine = Machine::huawei();
    machine.inventory.nodes[2].rated = Some(rated(250, 64));
    let all = comparisons(&machine.inventory, &machine.pairs()[..1]);
    assert!(all.is_empty(), "{all:?}");
}
