//! Turns places with figures into the tiers of a report.

use std::{collections::BTreeMap, path::PathBuf};

use tierfeed_core::tier::Kind;

use super::{directory, estimate::Estimate, estimate::to_f64, memory, settings::EmulatedTier};
use crate::{
    inventory::node::Node,
    report::{Access, Figures, Tier, tenths, whole},
    tiers::{self, Fellowship, Profile},
};

/// Something that may be a tier or a part of one.
#[derive(Debug, Clone)]
pub struct Place {
    kind: Kind,
    numa_node: Option<u32>,
    path: Option<PathBuf>,
    capacity_bytes: Option<u64>,
    free_bytes: Option<u64>,
    is_emulated: bool,
    access: Option<Access>,
    figures: Figures,
    remarks: Vec<String>,
    profile: Profile,
}

/// Why a place has no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unmeasured {
    /// The tree that describes the machine is not this machine's.
    #[error("not measured: the inventory is another machine's")]
    OtherMachine,
    /// No CPU reaches the memory.
    #[error("not measured: no node with CPUs reaches it")]
    NoInitiator,
    /// The memory node cannot be measured.
    #[error("not measured: {0}")]
    Memory(#[from] memory::MemoryError),
    /// The directory cannot be measured.
    #[error("not measured: {0}")]
    Directory(#[from] directory::DirectoryError),
}

impl Place {
    /// A memory node. Without figures it is placed by what the firmware rates it at.
    #[must_use]
    pub fn node(node: &Node, outcome: Result<memory::Measured, Unmeasured>) -> Self {
        let kind = node.kind.tier_kind();
        let mut remarks = Vec::new();
        let (figures, profile) = match outcome {
            Ok(measured) => {
                remarks.extend(measured.remarks());
                let profile = profile(kind, &measured.figures);
                let is_usable = measured.is_usable();
                (measured.figures, if is_usable { profile } else { rated_profile(node) })
            }
            Err(reason) => {
                remarks.push(reason.to_string());
                (Figures::default(), rated_profile(node))
            }
        };
        Self {
            kind,
            numa_node: Some(node.id),
            path: None,
            capacity_bytes: Some(node.memory_total_bytes),
            free_bytes: Some(node.memory_free_bytes),
            is_emulated: false,
            access: None,
            figures,
            remarks,
            profile,
        }
    }

    /// A directory.
    #[must_use]
    pub fn directory(
        kind: Kind,
        path: PathBuf,
        outcome: Result<directory::Measured, Unmeasured>,
    ) -> Self {
        let remarks = outcome.as_ref().err().map(ToString::to_string);
        let measured = outcome.ok();
        let figures = measured.map_or_else(Figures::default, |it| it.figures);
        Self {
            kind,
            numa_node: None,
            path: Some(path),
            capacity_bytes: measured.map(|it| it.capacity_bytes),
            free_bytes: measured.map(|it| it.free_bytes),
            is_emulated: false,
            access: measured.map(|it| it.access),
            profile: Profile { fellowship: Fellowship::Alone, ..profile(kind, &figures) },
            figures,
            remarks: remarks.into_iter().collect(),
        }
    }

    /// An emulated tier: reported as stated, but placed no faster than the main memory among `others`,
    /// which plays it.
    #[must_use]
    pub fn emulated(tier: &EmulatedTier, others: &[Self]) -> Self {
        let rate = Some(tier.speed.bandwidth.0).filter(|rate| *rate > 0);
        let rate = rate.map(|rate| Estimate::stated(to_f64(rate)));
        let latency = Estimate::stated(to_f64(tier.speed.latency.0));
        let players = || others.iter().filter(|place| place.kind == Kind::MainMemory);
        let player = players().map(|place| &place.profile).next();
        let slowest = |stated: Option<Estimate>, played: Option<Estimate>| {
            stated.into_iter().chain(played).min_by(|a, b| a.median.total_cmp(&b.median))
        };
        let played_latency = player.and_then(|it| it.latency_ns).map_or(0.0, |it| it.median);
        Self {
            kind: tier.kind,
            numa_node: None,
            path: None,
            capacity_bytes: Some(tier.capacity.0).filter(|capacity| *capacity > 0),
            free_bytes: None,
            is_emulated: true,
            access: None,
            figures: Figures {
                read_bytes_per_s: rate,
                write_bytes_per_s: rate,
                copy_bytes_per_s: rate,
                idle_latency_ns: Some(latency),
                ..Figures::default()
            },
            remarks: Vec::new(),
            profile: Profile {
                kind: tier.kind,
                fellowship: Fellowship::Alone,
                latency_ns: Some(Estimate::stated(latency.median.max(played_latency))),
                read_bytes_per_s: slowest(rate, player.and_then(|it| it.read_bytes_per_s)),
                copy_bytes_per_s: slowest(rate, player.and_then(|it| it.copy_bytes_per_s)),
            },
        }
    }
}

/// The tiers of `places`, fastest first.
#[must_use]
pub fn into_tiers(places: &[Place]) -> Vec<Tier> {
    let profiles: Vec<Profile> = places.iter().map(|place| place.profile).collect();
    let mut count_by_kind: BTreeMap<Kind, u32> = BTreeMap::new();
    tiers::classify(&profiles)
        .into_iter()
        .map(|group| {
            let members: Vec<&Place> = group.iter().map(|index| &places[*index]).collect();
            let speaker = &places[tiers::slowest(&profiles, &group)];
            let count = count_by_kind.entry(speaker.kind).or_default();
            *count += 1;
            tier(&members, speaker, *count)
        })
        .collect()
}

/// `speaker` gives the figures: a tier promises what its slowest place keeps.
fn tier(members: &[&Place], speaker: &Place, number: u32) -> Tier {
    let figures = speaker.figures.rounded();
    let kind = speaker.kind;
    Tier {
        name: if number == 1 { kind.name().to_owned() } else { format!("{kind}-{number}") },
        kind,
        numa_node: speaker.numa_node,
        numa_nodes: members.iter().filter_map(|place| place.numa_node).collect(),
        path: speaker.path.clone(),
        capacity_bytes: members.iter().map(|place| place.capacity_bytes).sum(),
        free_bytes: members.iter().map(|place| place.free_bytes).sum(),
        read_bytes_per_s: figures.read_bytes_per_s.map(whole),
        write_bytes_per_s: figures.write_bytes_per_s.map(whole),
        copy_bytes_per_s: figures.copy_bytes_per_s.map(whole),
        triad_bytes_per_s: figures.triad_bytes_per_s.map(whole),
        idle_latency_ns: figures.idle_latency_ns.map(tenths),
        loaded_latency_ns: figures.loaded_latency_ns.map(tenths),
        random_read_iops: figures.random_read_iops.map(whole),
        emulated: speaker.is_emulated,
        access: speaker.access,
        quality: figures.quality(),
        estimates: figures,
        remarks: members.iter().flat_map(|place| place.remarks.clone()).collect(),
    }
}

fn profile(kind: Kind, figures: &Figures) -> Profile {
    Profile {
        kind,
        fellowship: Fellowship::Node,
        latency_ns: figures.idle_latency_ns,
        read_bytes_per_s: figures.read_bytes_per_s,
        copy_bytes_per_s: figures.copy_bytes_per_s,
    }
}

fn rated_profile(node: &Node) -> Profile {
    let rated = node.rated.clone().unwrap_or_default();
    let stated = |value: Option<u64>| value.map(|value| Estimate::stated(to_f64(value)));
    Profile {
        kind: node.kind.tier_kind(),
        fellowship: Fellowship::Node,
        latency_ns: stated(rated.read_latency_ns),
        read_bytes_per_s: stated(rated.read_bytes_per_s),
        copy_bytes_per_s: None,
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        tier::Speed,
        units::{Bytes, BytesPerSecond, Nanoseconds},
    };

    use super::*;
    use crate::inventory::node::MemoryKind;

    /// What an estimate says, to compare with what was put in.
    fn median(estimate: Option<Estimate>) -> Option<u64> {
        estimate.map(whole)
    }

    fn unmeasured(id: u32, kind: MemoryKind) -> Node {
        Node { id, kind, memory_total_bytes: 100, memory_free_bytes: 60, ..Node::default() }
    }

    fn node(id: u32, kind: MemoryKind, latency_ns: f64, bytes_per_s: f64) -> Place {
        let rate = Some(Estimate { samples: 10, ..Estimate::stated(bytes_per_s) });
        let figures = Figures {
            idle_latency_ns: Some(Estimate::stated(latency_ns)),
            read_bytes_per_s: rate,
            copy_bytes_per_s: rate,
            ..Figures::default()
        };
        Place::node(
            &unmeasured(id, kind),
            Ok(memory::Measured { figures, cache_bound: None, huge_page_share: None }),
        )
    }

    fn emulated(latency_ns: u64, bytes_per_s: u64, others: &[Place]) -> Place {
        let speed =
            Speed { latency: Nanoseconds(latency_ns), bandwidth: BytesPerSecond(bytes_per_s) };
        let tier = EmulatedTier { kind: Kind::CxlMemory, speed, capacity: Bytes(0) };
        Place::emulated(&tier, others)
    }

    #[test]
    fn nodes_alike_make_one_tier_that_promises_what_the_slower_keeps() {
        let places = [
            node(0, MemoryKind::Dram, 100.0, 20e9),
            node(1, MemoryKind::Cxl, 300.0, 10e9),
            node(2, MemoryKind::Dram, 110.0, 18e9),
        ];
        let tiers = into_tiers(&places);
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
        let names: Vec<String> = into_tiers(&places).into_iter().map(|tier| tier.name).collect();
        assert_eq!(names, ["main-memory", "main-memory-2"]);
    }

    #[test]
    fn nothing_emulated_is_placed_faster_than_the_memory_that_plays_it() {
        let main = [node(0, MemoryKind::Dram, 100.0, 20e9)];
        let fast = emulated(1, 900_000_000_000, &main);
        assert_eq!(median(fast.profile.latency_ns), Some(100));
        assert_eq!(median(fast.profile.read_bytes_per_s), Some(20_000_000_000));
        assert_eq!(median(fast.profile.copy_bytes_per_s), Some(20_000_000_000));
        assert_eq!(median(fast.figures.idle_latency_ns), Some(1));
        let slow = emulated(350, 5_000_000_000, &main);
        assert_eq!(median(slow.profile.latency_ns), Some(350));
        assert_eq!(median(slow.profile.copy_bytes_per_s), Some(5_000_000_000));
    }

    #[test]
    fn unlimited_bandwidth_is_no_figure_and_takes_that_of_the_memory() {
        let unlimited = emulated(350, 0, &[node(0, MemoryKind::Dram, 100.0, 20e9)]);
        assert_eq!(unlimited.figures.read_bytes_per_s, None);
        assert_eq!(median(unlimited.profile.copy_bytes_per_s), Some(20_000_000_000));
        assert_eq!(unlimited.capacity_bytes, None);
    }

    #[test]
    fn figures_from_the_caches_are_shown_but_sort_nothing() {
        let bound = memory::CacheBound { buffer: Bytes::mib(8), cache: Bytes::mib(32) };
        let fast = node(0, MemoryKind::Cxl, 20.0, 200e9);
        let measured = memory::Measured {
            figures: fast.figures,
            cache_bound: Some(bound),
            huge_page_share: None,
        };
        let place = Place::node(&unmeasured(0, MemoryKind::Cxl), Ok(measured));
        assert_eq!(place.profile.latency_ns, None);
        assert!(place.figures.idle_latency_ns.is_some());
        assert!(place.remarks[0].starts_with("cache bound: buffers of 8 MiB"));
    }
}
