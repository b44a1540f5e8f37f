//! Turns candidates with figures into the tiers of a report.
//!
//! A tier that the settings name has the plain name of its kind; the others of the kind are numbered in
//! their order.

use std::{collections::BTreeMap, path::PathBuf};

use tierfeed_core::tier::Kind;

use super::settings::EmulatedTier;
use crate::{
    classify::{self, Constraints, MemoryClass, Profile, slower},
    figures::{
        Figures, Transfer,
        estimate::{Estimate, to_f64},
    },
    inventory::node::Node,
    measure::directory::Findings,
    report::{Basis, Tier, into_main_memory},
};

/// A memory node, a directory or an emulated tier, which may become a tier or a part of one.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// The tier that it makes alone, without a name.
    tier: Tier,
    profile: Profile,
}

impl Candidate {
    /// `None` if the node makes no tier. `profile` is the input of the classification, `None` where the
    /// figures say nothing of the memory; then the node is placed by the ratings of the firmware.
    pub(crate) fn node(
        node: &Node,
        figures: &Figures,
        profile: Option<Profile>,
        remarks: Vec<String>,
        constraints: &Constraints<'_>,
    ) -> Option<Self> {
        let rated = rated_profile(node, constraints)?;
        let basis = match (profile, rated.latency_ns.or(rated.read_bytes_per_s)) {
            (Some(_), _) => Basis::Measured,
            (None, Some(_)) => Basis::Rated,
            (None, None) => Basis::Kind,
        };
        let tier = Tier {
            numa_node: Some(node.id),
            numa_nodes: vec![node.id],
            capacity_bytes: Some(node.memory_total_bytes),
            free_bytes: Some(node.memory_free_bytes),
            memory: Some(MemoryClass::of(node.kind)),
            remarks,
            ..Tier::with(rated.kind, figures, basis)
        };
        Some(Self { tier, profile: profile.unwrap_or(rated) })
    }

    /// A directory, with its figures or the reason why it has none.
    pub(crate) fn directory(kind: Kind, path: PathBuf, found: Result<&Findings, String>) -> Self {
        let figures = found.as_ref().map_or_else(|_| Figures::default(), |it| it.figures);
        let is_measured = figures != Figures::default();
        let basis = if is_measured { Basis::Measured } else { Basis::Kind };
        let tier = Tier { path: Some(path), ..Tier::with(kind, &figures, basis) };
        let tier = match found {
            Ok(found) => Tier {
                capacity_bytes: Some(found.capacity_bytes),
                free_bytes: Some(found.free_bytes),
                access: Some(found.storage.access),
                ..tier
            },
            Err(why) => Tier { remarks: vec![why], ..tier },
        };
        Self { tier, profile: Profile::of(kind, &figures) }
    }

    /// An emulated tier: reported as stated, but placed no faster than the main memory among `others`,
    /// which plays it.
    pub(crate) fn emulated(tier: &EmulatedTier, others: &[Self]) -> Self {
        let rate = Some(tier.speed.bandwidth.0).filter(|rate| *rate > 0);
        let rate = rate.map(|rate| Estimate::stated(to_f64(rate)));
        let player = others.iter().find(|place| place.tier.kind == Kind::MainMemory);
        let figures = Figures {
            read_bytes_per_s: rate,
            write_bytes_per_s: rate,
            copy_bytes_per_s: rate,
            idle_latency_ns: Some(Estimate::stated(to_f64(tier.speed.latency.0))),
            ..Figures::default()
        };
        Self {
            profile: Profile::emulated(tier.kind, tier.speed, player.map(|it| &it.profile)),
            tier: Tier {
                capacity_bytes: Some(tier.capacity.0).filter(|capacity| *capacity > 0),
                emulated: true,
                ..Tier::with(tier.kind, &figures, Basis::Stated)
            },
        }
    }
}

/// Fastest first.
pub(crate) fn into_tiers(places: &[Candidate], constraints: &Constraints<'_>) -> Vec<Tier> {
    sort(places, constraints).into_iter().map(|(tier, _)| tier).collect()
}

/// The tiers of `places`, ranked by measured copies into main memory. `transfers` come with the names that
/// [`into_tiers`] gave, and get the names of the returned tiers.
pub(crate) fn into_tiers_by_transfer(
    places: &[Candidate],
    constraints: &Constraints<'_>,
    transfers: &mut [Transfer],
) -> Vec<Tier> {
    let before = sort(places, constraints);
    let mut places = places.to_vec();
    for (tier, members) in &before {
        if let Some(rate) = into_main_memory(transfers, &tier.name) {
            for member in members {
                places[*member].profile.copy_bytes_per_s = Some(rate);
            }
        }
    }
    let player = into_main_memory(transfers, Kind::MainMemory.name());
    for played in places.iter_mut().filter(|place| place.tier.emulated) {
        let stated = played.profile.copy_bytes_per_s;
        played.profile.copy_bytes_per_s = slower(stated, player);
    }
    let after = sort(&places, constraints);
    let renamed = |name: &str| {
        let (_, members) = before.iter().find(|(tier, _)| tier.name == name)?;
        let (tier, _) = after.iter().find(|(_, others)| others == members)?;
        Some(tier.name.clone())
    };
    for transfer in transfers {
        transfer.from = renamed(&transfer.from).unwrap_or_else(|| transfer.from.clone());
        transfer.to = renamed(&transfer.to).unwrap_or_else(|| transfer.to.clone());
    }
    after.into_iter().map(|(tier, _)| tier).collect()
}

fn sort(places: &[Candidate], constraints: &Constraints<'_>) -> Vec<(Tier, Vec<usize>)> {
    let profiles: Vec<Profile> = places.iter().map(|place| place.profile).collect();
    let sorted = classify::classify(&profiles).into_iter().map(|group| {
        let members: Vec<&Candidate> = group.iter().map(|index| &places[*index]).collect();
        let slowest = &places[classify::slowest(&profiles, &group)];
        let mut tier = merged(&members, slowest, constraints);
        tier.memory = classify::class_of(&profiles, group[0]).or(members[0].tier.memory);
        (tier, group)
    });
    let mut sorted: Vec<_> = sorted.collect();
    name(sorted.iter_mut().map(|(tier, _)| tier).collect());
    sorted
}

fn name(mut tiers: Vec<&mut Tier>) {
    let mut count_by_kind: BTreeMap<Kind, u32> = BTreeMap::new();
    // Stable, so that each half keeps its order.
    tiers.sort_by_key(|tier| tier.source != Basis::Config);
    for tier in tiers {
        let count = count_by_kind.entry(tier.kind).or_default();
        *count += 1;
        let kind = tier.kind;
        tier.name = if *count == 1 { kind.name().to_owned() } else { format!("{kind}-{count}") };
    }
}

/// The figures are those of the slowest member: a tier promises only what all its members can do.
fn merged(members: &[&Candidate], slowest: &Candidate, constraints: &Constraints<'_>) -> Tier {
    let tiers = || members.iter().map(|member| &member.tier);
    let is_named = |tier: &Tier| {
        tier.numa_node.is_some_and(|node| constraints.names_node(node))
            || tier.path.as_ref().is_some_and(|path| constraints.names_path(path))
    };
    Tier {
        numa_nodes: tiers().filter_map(|tier| tier.numa_node).collect(),
        capacity_bytes: tiers().map(|tier| tier.capacity_bytes).sum(),
        free_bytes: tiers().map(|tier| tier.free_bytes).sum(),
        source: if tiers().any(is_named) { Basis::Config } else { slowest.tier.source },
        remarks: tiers().flat_map(|tier| tier.remarks.clone()).collect(),
        ..slowest.tier.clone()
    }
}

fn rated_profile(node: &Node, constraints: &Constraints<'_>) -> Option<Profile> {
    let rated = node.rated.clone().unwrap_or_default();
    let stated = |value: Option<u64>| value.map(|value| Estimate::stated(to_f64(value)));
    Some(Profile {
        kind: constraints.kind(node)?,
        grouping: constraints.grouping(node),
        before: constraints.before(node.id),
        latency_ns: stated(rated.read_latency_ns),
        read_bytes_per_s: stated(rated.read_bytes_per_s),
        copy_bytes_per_s: None,
    })
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        tier::Speed,
        units::{Bytes, BytesPerSecond, Nanoseconds},
    };

    use super::*;
    use crate::{
        classify::{Assignment, Grouping},
        figures::whole,
        inventory::{Rated, node::MemoryKind},
    };

    fn median(estimate: Option<Estimate>) -> Option<u64> {
        estimate.map(whole)
    }

    fn unmeasured(id: u32, kind: MemoryKind) -> Node {
        Node { id, kind, memory_total_bytes: 100, memory_free_bytes: 60, ..Node::default() }
    }

    fn node_profile(node: &Node, figures: &Figures) -> Profile {
        Profile {
            latency_ns: figures.idle_latency_ns,
            read_bytes_per_s: figures.read_bytes_per_s,
            copy_bytes_per_s: figures.copy_bytes_per_s,
            ..rated_profile(node, &Constraints::default()).unwrap()
        }
    }

    fn node(id: u32, kind: MemoryKind, latency_ns: f64, bytes_per_s: f64) -> Candidate {
        let rate = Some(Estimate { samples: 10, ..Estimate::stated(bytes_per_s) });
        let figures = Figures {
            idle_latency_ns: Some(Estimate::stated(latency_ns)),
            read_bytes_per_s: rate,
            copy_bytes_per_s: rate,
            ..Figures::default()
        };
        let node = unmeasured(id, kind);
        let profile = Some(node_profile(&node, &figures));
        Candidate::node(&node, &figures, profile, Vec::new(), &Constraints::default()).unwrap()
    }

    fn emulated(latency_ns: u64, bytes_per_s: u64, others: &[Candidate]) -> Candidate {
        let speed =
            Speed { latency: Nanoseconds(latency_ns), bandwidth: BytesPerSecond(bytes_per_s) };
        let tier = EmulatedTier { kind: Kind::CxlMemory, speed, capacity: Bytes(0) };
        Candidate::emulated(&tier, others)
    }

    #[test]
    fn nodes_alike_make_one_tier_that_promises_what_the_slower_keeps() {
        let places = [
            node(0, MemoryKind::Dram, 100.0, 20e9),
            node(1, MemoryKind::Cxl, 300.0, 10e9),
            node(2, MemoryKind::Dram, 110.0, 18e9),
        ];
        let tiers = into_tiers(&places, &Constraints::default());
        let [main, cxl] = &tiers[..] else { panic!("two tiers, not {tiers:?}") };
        assert_eq!(
            (main.name.as_str(), main.numa_node, &main.numa_nodes[..]),
            ("main-memory", Some(2), &[0, 2][..])
        );
        assert_eq!((main.capacity_bytes, main.free_bytes), (Some(200), Some(120)));
        assert_eq!((main.read_bytes_per_s, cxl.numa_node), (Some(18_000_000_000), Some(1)));
    }

    #[test]
    fn tiers_of_one_kind_are_numbered() {
        let places =
            [node(0, MemoryKind::Dram, 100.0, 20e9), node(1, MemoryKind::Dram, 200.0, 10e9)];
        let names: Vec<String> = into_tiers(&places, &Constraints::default())
            .into_iter()
            .map(|tier| tier.name)
            .collect();
        assert_eq!(names, ["main-memory", "main-memory-2"]);
    }

    #[test]
    fn a_tier_that_the_settings_name_has_the_plain_name_wherever_it_stands() {
        let assignments = [Assignment { kind: Kind::CxlMemory, numa_nodes: vec![2], path: None }];
        let constraints = Constraints { assignments: &assignments, previous: None };
        let slow = Candidate {
            profile: Profile { grouping: Grouping::Assigned(0), ..slow_cxl().profile },
            ..slow_cxl()
        };
        let places = [node(0, MemoryKind::Dram, 100.0, 20e9), fast_cxl(), slow];
        let tiers = into_tiers(&places, &constraints);
        let seen: Vec<_> = tiers.iter().map(|it| (it.name.as_str(), it.source)).collect();
        let (measured, config) = (Basis::Measured, Basis::Config);
        assert_eq!(
            seen,
            [("main-memory", measured), ("cxl-memory-2", measured), ("cxl-memory", config)]
        );
    }

    fn fast_cxl() -> Candidate {
        node(1, MemoryKind::Cxl, 280.0, 10e9)
    }

    fn slow_cxl() -> Candidate {
        node(2, MemoryKind::Cxl, 390.0, 5e9)
    }

    #[test]
    fn measured_copies_rank_the_tiers_and_follow_their_names() {
        let places = [node(0, MemoryKind::Dram, 100.0, 20e9), fast_cxl(), slow_cxl()];
        let transfer = |from: &str, to: &str, bytes_per_s| Transfer {
            from: from.to_owned(),
            to: to.to_owned(),
            is_best: true,
            threads: 1,
            non_temporal: false,
            chunk_bytes: 1 << 29,
            bytes_per_s: Estimate::stated(bytes_per_s),
        };
        let mut transfers = [
            transfer("cxl-memory", "main-memory", 4e9),
            transfer("cxl-memory", "main-memory", 3e9),
            transfer("cxl-memory-2", "main-memory", 9e9),
            transfer("main-memory", "cxl-memory-2", 8e9),
        ];
        let nodes = |tiers: &[Tier]| -> Vec<Vec<u32>> {
            tiers.iter().map(|tier| tier.numa_nodes.clone()).collect()
        };
        let before = into_tiers(&places, &Constraints::default());
        assert_eq!(nodes(&before), [[0], [1], [2]]);
        let after = into_tiers_by_transfer(&places, &Constraints::default(), &mut transfers);
        assert_eq!(nodes(&after), [[0], [2], [1]]);
        let ways: Vec<_> = transfers.iter().map(|it| (it.from.as_str(), it.to.as_str())).collect();
        assert_eq!(
            ways,
            [
                ("cxl-memory-2", "main-memory"),
                ("cxl-memory-2", "main-memory"),
                ("cxl-memory", "main-memory"),
                ("main-memory", "cxl-memory"),
            ]
        );
        assert_eq!(after[1].estimates, before[2].estimates, "the figures stay those of the place");
    }

    #[test]
    fn what_a_place_rests_on_is_said() {
        let rated = inventory_node_with_rating();
        let place = |node: &Node| {
            Candidate::node(node, &Figures::default(), None, Vec::new(), &Constraints::default())
                .unwrap()
                .tier
                .source
        };
        assert_eq!(place(&rated), Basis::Rated);
        assert_eq!(place(&unmeasured(0, MemoryKind::Dram)), Basis::Kind);
        assert_eq!(fast_cxl().tier.source, Basis::Measured);
        assert_eq!(emulated(350, 0, &[fast_cxl()]).tier.source, Basis::Stated);
    }

    fn inventory_node_with_rating() -> Node {
        let rated = Rated { read_latency_ns: Some(100), ..Rated::default() };
        Node { rated: Some(rated), ..unmeasured(0, MemoryKind::Dram) }
    }

    #[test]
    fn nothing_emulated_is_placed_faster_than_the_memory_that_plays_it() {
        let main = [node(0, MemoryKind::Dram, 100.0, 20e9)];
        let fast = emulated(1, 900_000_000_000, &main);
        assert_eq!(median(fast.profile.latency_ns), Some(100));
        assert_eq!(median(fast.profile.read_bytes_per_s), Some(20_000_000_000));
        assert_eq!(median(fast.profile.copy_bytes_per_s), Some(20_000_000_000));
        assert_eq!(median(fast.tier.estimates.idle_latency_ns), Some(1));
        let slow = emulated(350, 5_000_000_000, &main);
        assert_eq!(median(slow.profile.latency_ns), Some(350));
        assert_eq!(median(slow.profile.copy_bytes_per_s), Some(5_000_000_000));
    }

    #[test]
    fn unlimited_bandwidth_is_no_figure_and_takes_that_of_the_memory() {
        let unlimited = emulated(350, 0, &[node(0, MemoryKind::Dram, 100.0, 20e9)]);
        assert_eq!(unlimited.tier.estimates.read_bytes_per_s, None);
        assert_eq!(median(unlimited.profile.copy_bytes_per_s), Some(20_000_000_000));
        assert_eq!(unlimited.tier.capacity_bytes, None);
    }

    #[test]
    fn figures_that_sort_nothing_are_shown() {
        let fast = node(0, MemoryKind::Cxl, 20.0, 200e9);
        let shown = Candidate::node(
            &unmeasured(0, MemoryKind::Cxl),
            &fast.tier.estimates,
            None,
            vec!["cache bound".to_owned()],
            &Constraints::default(),
        )
        .unwrap();
        assert_eq!((shown.profile.latency_ns, shown.tier.source), (None, Basis::Kind));
        assert!(shown.tier.estimates.idle_latency_ns.is_some());
        assert_eq!(shown.tier.remarks, ["cache bound"]);
    }
}
