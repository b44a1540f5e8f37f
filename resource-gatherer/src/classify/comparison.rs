//! Puts measured figures beside what the firmware rates: a table may state what the device was sold with,
//! and the kernel makes its memory tiers of it.

use super::view::{best_pair, peak};
use crate::{
    figures::{Comparison, Pair, Traffic, estimate::to_f64},
    inventory::{Inventory, node::Node},
};

/// The largest ratio of stated and measured that counts as agreement.
pub(crate) const DIFFERENCE_MAX: f64 = 1.25;

/// All stated figures of memory nodes that were measured too, by node.
pub(crate) fn comparisons(inventory: &Inventory, pairs: &[Pair]) -> Vec<Comparison> {
    let best = |node: &Node| best_pair(pairs, node.id).filter(|pair| pair.is_usable());
    let measured = inventory.memory_nodes().filter_map(|node| Some((node, best(node)?)));
    let mut found: Vec<_> = measured.flat_map(|(node, pair)| with_ratings(node, pair)).collect();
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
            let ratio = stated.max(measured) / stated.min(measured);
            Some(Comparison {
                node: node.id,
                figure: figure.to_owned(),
                stated,
                measured,
                differs: ratio > DIFFERENCE_MAX,
            })
        })
        .collect()
}
