//! Sorts the memory nodes as the CPUs of each node see them.
//!
//! Bandwidths are only compared at numbers of threads that every pair of an initiator was measured at:
//! one socket may have more cores than another, and a peak of twelve threads says nothing beside a peak
//! of four.

use std::collections::{BTreeMap, BTreeSet};

use super::{Constraints, Profile, classify};
use crate::{
    figures::{Pair, Traffic, View, estimate::Estimate},
    inventory::{Inventory, node::Node},
};

/// One view for each node whose CPUs measured something, in ascending order. A node that was not
/// measured from there is in none of its tiers.
pub(crate) fn views(
    inventory: &Inventory,
    pairs: &[Pair],
    constraints: &Constraints<'_>,
) -> Vec<View> {
    let constraints = constraints.on(&inventory.host);
    let initiators: BTreeSet<u32> = pairs.iter().map(|pair| pair.initiator).collect();
    let views = initiators.into_iter().map(|initiator| {
        let seen: Vec<&Pair> =
            pairs.iter().filter(|it| it.initiator == initiator && it.is_usable()).collect();
        let threads = common_threads(&seen);
        let (nodes, places): (Vec<u32>, Vec<Profile>) = seen
            .iter()
            .filter_map(|pair| {
                let node = inventory.memory_nodes().find(|node| node.id == pair.target)?;
                let before = constraints.before_in_view(initiator, node.id);
                let profile = profile(pair, node, &constraints, &threads)?;
                Some((node.id, Profile { before, ..profile }))
            })
            .unzip();
        let of_nodes = |group: Vec<usize>| group.into_iter().map(|index| nodes[index]).collect();
        View { initiator, tiers: classify(&places).into_iter().map(of_nodes).collect() }
    });
    views.filter(|view| !view.tiers.is_empty()).collect()
}

/// The profile of each memory node as the CPUs see it that reach it best, by number of the node. A node
/// without usable figures is left out.
pub(crate) fn host_profiles(
    inventory: &Inventory,
    pairs: &[Pair],
    constraints: &Constraints<'_>,
) -> BTreeMap<u32, Profile> {
    let constraints = constraints.on(&inventory.host);
    let best = |node| best_pair(pairs, node).filter(|pair| pair.is_usable());
    let seen: Vec<&Pair> = inventory.memory_nodes().filter_map(|node| best(node.id)).collect();
    let threads = common_threads(&seen);
    let nodes = inventory.memory_nodes();
    nodes
        .filter_map(|node| Some((node.id, profile(best(node.id)?, node, &constraints, &threads)?)))
        .collect()
}

/// The pair of the CPUs that reach the node best; it stands for the node on the whole host.
pub(crate) fn best_pair(pairs: &[Pair], node: u32) -> Option<&Pair> {
    pairs.iter().find(|pair| pair.target == node && pair.is_best)
}

/// Rates count only at the numbers of threads in `threads`; `None` for a node that makes no tier.
pub(crate) fn profile(
    pair: &Pair,
    node: &Node,
    constraints: &Constraints<'_>,
    threads: &BTreeSet<u32>,
) -> Option<Profile> {
    Some(Profile {
        kind: constraints.kind(node)?,
        grouping: constraints.grouping(node),
        before: constraints.before(node.id),
        latency_ns: pair.idle_latency_ns,
        read_bytes_per_s: peak(pair, Traffic::Read, Some(threads)),
        // STREAM counts every byte of a copy twice: read and written.
        copy_bytes_per_s: peak(pair, Traffic::Copy, Some(threads)).map(|it| it.divided_by(2.0)),
    })
}

/// The best rate of one kind of traffic, at the numbers of threads in `threads`, or at any if that is `None`.
pub(super) fn peak(
    pair: &Pair,
    traffic: Traffic,
    threads: Option<&BTreeSet<u32>>,
) -> Option<Estimate> {
    pair.bandwidth
        .iter()
        .filter(|it| it.traffic == traffic)
        .filter(|it| threads.is_none_or(|threads| threads.contains(&it.threads)))
        .map(|it| it.bytes_per_s)
        .max_by(|a, b| a.median.total_cmp(&b.median))
}

pub(super) fn common_threads(pairs: &[&Pair]) -> BTreeSet<u32> {
    let of = |pair: &&Pair| -> BTreeSet<u32> {
        let reads = pair.bandwidth.iter().filter(|it| it.traffic == Traffic::Read);
        reads.map(|it| it.threads).collect()
    };
    pairs.iter().map(of).reduce(|a, b| &a & &b).unwrap_or_default()
}
