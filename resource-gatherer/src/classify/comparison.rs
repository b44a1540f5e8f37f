//! Puts measured figures beside what the firmware rates and what the kernel made of it.
//!
//! Both are often wrong: without an HMAT every node lands in `memory_tier4`, and a table may state what
//! the device was sold with. Programs that rely on them need to know.

use std::collections::BTreeSet;

use super::{
    kernel::{self, Performance, Role},
    view::{best_pair, common_threads, peak},
};
use crate::{
    figures::{Comparison, Pair, Source, Traffic, estimate::to_f64, whole},
    inventory::{
        Inventory,
        node::{MemoryKind, Node},
    },
};

/// The largest ratio of stated and measured that counts as agreement.
pub(crate) const DIFFERENCE_MAX: f64 = 1.25;

/// All stated figures of memory nodes that were measured too, by node.
pub(crate) fn comparisons(inventory: &Inventory, pairs: &[Pair]) -> Vec<Comparison> {
    let nodes: Vec<&Node> = inventory.memory_nodes().collect();
    let best = |node: &&Node| best_pair(pairs, node.id).filter(|pair| pair.is_usable());
    let threads = common_threads(&nodes.iter().filter_map(best).collect::<Vec<_>>());
    let measured: Vec<_> = nodes.iter().map(|it| best(it).map(|pair| (*it, pair))).collect();
    let mut found: Vec<Comparison> =
        measured.iter().flatten().flat_map(|(node, pair)| with_ratings(node, pair)).collect();
    if measured.iter().all(Option::is_some) {
        let performance = |pair: &Pair| performance(pair, &threads);
        let places: Vec<_> =
            measured.iter().flatten().map(|(node, pair)| (*node, performance(pair))).collect();
        found.extend(with_tiers(inventory, &places));
    }
    found.sort_by_key(|it| it.node);
    found
}

fn with_ratings(node: &Node, pair: &Pair) -> Vec<Comparison> {
    let Some(rated) = &node.rated else { return Vec::new() };
    let figures = [
        ("idle_latency_ns", rated.read_latency_ns, pair.idle_latency_ns),
        ("read_bytes_per_s", rated.read_bytes_per_s, peak(pair, Traffic::Read, None)),
        ("write_bytes_per_s", rated.write_bytes_per_s, peak(pair, Traffic::Write, None)),
    ];
    figures
        .into_iter()
        .filter_map(|(figure, stated, measured)| {
            let (stated, measured) = (to_f64(stated?), measured?.rounded().median);
            Some(Comparison {
                node: node.id,
                source: Source::Hmat,
                figure: figure.to_owned(),
                stated,
                measured,
                differs: ratio(stated, measured) > DIFFERENCE_MAX,
            })
        })
        .collect()
}

/// Compares the tier that the kernel made, and the tier that follows from the ratings, with the tier that the
/// kernel would make of the measured figures.
fn with_tiers(inventory: &Inventory, places: &[(&Node, Option<Performance>)]) -> Vec<Comparison> {
    let distances = |performance: &dyn Fn(&Node, Option<Performance>) -> Option<Performance>| {
        let nodes: Vec<_> =
            places.iter().map(|(node, it)| (role(node), performance(node, *it))).collect();
        kernel::abstract_distances(&nodes)
    };
    let measured = distances(&|_, measured| measured);
    let rated = distances(&|node, _| ratings(node));
    let mut found = Vec::new();
    for ((node, _), (measured, rated)) in places.iter().zip(measured.into_iter().zip(rated)) {
        let actual = inventory.kernel_tiers.iter().find(|tier| tier.nodes.contains(&node.id));
        let actual = actual.map(|tier| (Source::KernelTier, u64::from(tier.number)));
        let rated = ratings(node).map(|_| (Source::Hmat, kernel::tier(rated)));
        for (source, stated) in actual.into_iter().chain(rated) {
            found.push(Comparison {
                node: node.id,
                source,
                figure: "memory_tier".to_owned(),
                stated: to_f64(stated),
                measured: to_f64(kernel::tier(measured)),
                differs: is_far(stated, measured),
            });
        }
    }
    found
}

/// Whether a distance lies so far outside a tier of the kernel that the tier misleads.
fn is_far(tier: u64, distance: u64) -> bool {
    let (low, high) = (tier * kernel::CHUNK, (tier + 1) * kernel::CHUNK - 1);
    ratio(to_f64(distance), to_f64(distance.clamp(low, high))) > DIFFERENCE_MAX
}

fn ratio(a: f64, b: f64) -> f64 {
    a.max(b) / a.min(b)
}

fn role(node: &Node) -> Role {
    match node.kind {
        _ if !node.cpus.is_empty() => Role::Dram,
        MemoryKind::Cxl | MemoryKind::SpecificPurpose | MemoryKind::Persistent => Role::Dax,
        MemoryKind::Dram | MemoryKind::Gpu | MemoryKind::CpuLess => Role::CpuLess,
    }
}

fn ratings(node: &Node) -> Option<Performance> {
    let rated = node.rated.as_ref()?;
    let performance = Performance {
        read_latency_ns: rated.read_latency_ns?,
        write_latency_ns: rated.write_latency_ns?,
        read_mib_per_s: rated.read_bytes_per_s? >> 20,
        write_mib_per_s: rated.write_bytes_per_s? >> 20,
    };
    Some(performance)
}

/// The latency of writes cannot be measured, so that of reads stands in; so does the rate of reads where that
/// of writes was not measured, as in most tables of firmware.
fn performance(pair: &Pair, threads: &BTreeSet<u32>) -> Option<Performance> {
    let latency_ns = whole(pair.idle_latency_ns?);
    let read = whole(peak(pair, Traffic::Read, Some(threads))?) >> 20;
    let write = peak(pair, Traffic::Write, Some(threads)).map_or(read, |it| whole(it) >> 20);
    Some(Performance {
        read_latency_ns: latency_ns,
        write_latency_ns: latency_ns,
        read_mib_per_s: read,
        write_mib_per_s: write,
    })
}
