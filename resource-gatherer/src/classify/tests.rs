//! The rules one by one, on profiles made by hand; what they make of real machines is in [`machines`]
//! and [`noise`].

mod bound;
mod machine;
mod machines;
mod noise;
mod order;

use proptest::{collection, prelude::*};
use tierfeed_core::{
    tier::rank::RATIO_MAX,
    units::{BytesPerSecond, Nanoseconds},
};

use super::*;

fn node(kind: Kind, latency_ns: f64, gb_per_s: f64) -> Profile {
    Profile {
        kind,
        grouping: Grouping::Node(match kind {
            Kind::MainMemory => MemoryClass::Dram,
            _ => MemoryClass::Cxl,
        }),
        before: None,
        latency_ns: Some(Estimate::stated(latency_ns)),
        read_bytes_per_s: Some(Estimate::stated(gb_per_s * 1e9)),
        copy_bytes_per_s: Some(Estimate::stated(gb_per_s * 0.5e9)),
    }
}

fn alone(kind: Kind, latency_ns: f64, gb_per_s: f64) -> Profile {
    let rate = Some(Estimate::stated(gb_per_s * 1e9));
    let place = node(kind, latency_ns, gb_per_s);
    Profile { grouping: Grouping::Alone, copy_bytes_per_s: rate, ..place }
}

fn unmeasured(kind: Kind) -> Profile {
    Profile {
        latency_ns: None,
        read_bytes_per_s: None,
        copy_bytes_per_s: None,
        ..node(kind, 1.0, 1.0)
    }
}

#[test]
fn the_limit_of_a_tier_is_a_ratio_of_1_30() {
    let at = |latency| node(Kind::MainMemory, latency, 100.0);
    assert_eq!(classify(&[at(100.0), at(130.0)]).len(), 1);
    assert_eq!(classify(&[at(100.0), at(130.1)]).len(), 2);
    let rate = |rate| node(Kind::MainMemory, 100.0, rate);
    assert_eq!(classify(&[rate(100.0), rate(76.0)]).len(), 2);
}

#[test]
fn neighbours_chain_nodes_into_one_tier_in_any_order() {
    let at = |latency| node(Kind::MainMemory, latency, 100.0);
    assert_eq!(classify(&[at(100.0), at(156.0), at(125.0)]), [[0, 1, 2]]);
}

#[test]
fn a_difference_inside_the_confidence_intervals_splits_nothing() {
    let mut slow = node(Kind::MainMemory, 150.0, 100.0);
    let fast = node(Kind::MainMemory, 100.0, 100.0);
    assert_eq!(classify(&[fast, slow]).len(), 2);
    slow.latency_ns = Some(Estimate { low: 99.0, ..Estimate::stated(150.0) });
    assert_eq!(classify(&[fast, slow]).len(), 1);
}

#[test]
fn kinds_never_mix_however_alike_they_are() {
    let places = [node(Kind::CxlMemory, 100.0, 50.0), node(Kind::MainMemory, 100.0, 50.0)];
    assert_eq!(classify(&places), [[1], [0]]);
}

#[test]
fn storage_and_ram_disk_are_ranked_on_the_same_scale() {
    let places = [
        alone(Kind::Storage, 80_000.0, 0.8),
        alone(Kind::Scratch, 1_500.0, 7.0),
        node(Kind::MainMemory, 100.0, 12.0),
        alone(Kind::CxlMemory, 350.0, 3.0),
    ];
    assert_eq!(classify(&places), [[2], [1], [3], [0]]);
}

#[test]
fn emulated_tiers_join_nothing() {
    let cxl = node(Kind::CxlMemory, 300.0, 20.0);
    let places = [cxl, Profile { grouping: Grouping::Alone, ..cxl }];
    assert_eq!(classify(&places).len(), 2);
}

#[test]
fn places_without_figures_stand_where_their_kind_would() {
    let places = [
        alone(Kind::Storage, 80_000.0, 0.8),
        unmeasured(Kind::CxlMemory),
        node(Kind::MainMemory, 100.0, 12.0),
        unmeasured(Kind::CxlMemory),
    ];
    assert_eq!(classify(&places), [vec![2], vec![1, 3], vec![0]]);
    assert_eq!(classify(&places[1..2]), [[0]]);
    assert!(classify(&[]).is_empty());
}

#[test]
fn stated_figures_rank_no_faster_than_the_memory_that_plays_them() {
    let stated = |mb_per_s: u64| Speed {
        latency: Nanoseconds(1_000),
        bandwidth: BytesPerSecond(mb_per_s * 1_000_000),
    };
    let main = alone(Kind::MainMemory, 100.0, 12.0);
    let rate = |mb_per_s, player| {
        Profile::emulated(Kind::Scratch, stated(mb_per_s), player).rated().bytes_per_s
    };
    assert_eq!(rate(90_000, Some(&main)), Some(12e9));
    assert_eq!(rate(50, Some(&main)), Some(50e6));
    assert_eq!(rate(50, None), Some(50e6));
    assert_eq!(rate(0, None), None, "unlimited, by memory that was not measured");
}

proptest! {
    #[test]
    fn every_place_is_in_exactly_one_tier(
        places in collection::vec((0_usize..4, 50.0_f64..500.0, 1.0_f64..100.0), 0..12)
    ) {
        let places: Vec<Profile> =
            places.iter().map(|(kind, ns, rate)| node(Kind::ALL[*kind], *ns, *rate)).collect();
        let mut seen = classify(&places).concat();
        seen.sort_unstable();
        prop_assert_eq!(seen, (0..places.len()).collect::<Vec<_>>());
    }

    #[test]
    fn the_order_of_the_nodes_does_not_matter(
        places in collection::vec((0_usize..2, 50.0_f64..500.0, 1.0_f64..100.0), 1..8)
    ) {
        let places: Vec<Profile> =
            places.iter().map(|(kind, ns, rate)| node(Kind::ALL[*kind], *ns, *rate)).collect();
        let reversed: Vec<Profile> = places.iter().rev().copied().collect();
        let mut back: Vec<Vec<usize>> = classify(&reversed);
        for tier in &mut back {
            for index in tier.iter_mut() {
                *index = places.len() - 1 - *index;
            }
            tier.sort_unstable();
        }
        prop_assert_eq!(back, classify(&places));
    }
}
