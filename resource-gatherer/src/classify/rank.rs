//! Puts tiers into one total order: by cost, by kind where costs tie.
//!
//! A tie is anchored at the cheapest of the tiers that are left, not chained from neighbour to neighbour,
//! so that no tier stands before one that is more than [`RATIO_MAX`] times cheaper.

use std::cmp::Ordering;

use tierfeed_core::tier::Kind;

use super::{Profile, RATIO_MAX, slowest};

/// The groups, fastest first.
pub(super) fn rank(places: &[Profile], groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let slowest_of = |group: &[usize]| places[slowest(places, group)];
    let (known, mut unknown): (Vec<_>, Vec<_>) =
        groups.into_iter().partition(|group| slowest_of(group).chunk_cost_ns().is_some());
    let mut ranked = rank_known(places, known);
    unknown.sort_by(|a, b| compare_unknown(&slowest_of(a), &slowest_of(b)).then_with(|| a.cmp(b)));
    for group in unknown {
        let place = places[group[0]];
        let is_out = |other: &Vec<usize>| {
            let other = slowest_of(other);
            // Main memory is as slow on a busy processor in software; nothing behind CXL is faster there.
            other.kind != Kind::MainMemory && other.is_slower_than_memory()
        };
        let slow = ranked.iter().position(is_out).filter(|_| place.is_memory());
        let faster = &ranked[..slow.unwrap_or(ranked.len())];
        let after = faster.iter().rposition(|other| places[other[0]].kind <= place.kind);
        ranked.insert(after.map_or(0, |index| index + 1), group);
    }
    ranked
}

fn rank_known(places: &[Profile], groups: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let cost = |group: &[usize]| places[slowest(places, group)].chunk_cost_ns();
    let mut by_cost: Vec<(f64, Vec<usize>)> = groups
        .into_iter()
        .map(|group| (cost(&group).expect("the caller kept those with a cost"), group))
        .collect();
    by_cost.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    let mut ranked = Vec::with_capacity(by_cost.len());
    let mut left = &mut by_cost[..];
    while let Some((cheapest, _)) = left.first() {
        let limit = cheapest * RATIO_MAX;
        let count = left.partition_point(|(cost, _)| *cost <= limit);
        let (ties, rest) = left.split_at_mut(count);
        ties.sort_by(|a, b| compare_tied(places, a, b));
        ranked.extend(ties.iter().map(|(_, group)| group.clone()));
        left = rest;
    }
    ranked
}

fn compare_tied(places: &[Profile], a: &(f64, Vec<usize>), b: &(f64, Vec<usize>)) -> Ordering {
    let slowest_of = |group: &[usize]| &places[slowest(places, group)];
    let (first, second) = (slowest_of(&a.1), slowest_of(&b.1));
    first
        .kind
        .cmp(&second.kind)
        .then_with(|| a.0.total_cmp(&b.0))
        .then_with(|| latency(first).total_cmp(&latency(second)))
        .then_with(|| a.1.cmp(&b.1))
}

fn compare_unknown(a: &Profile, b: &Profile) -> Ordering {
    a.kind.cmp(&b.kind).then_with(|| latency(a).total_cmp(&latency(b)))
}

fn latency(place: &Profile) -> f64 {
    place.latency_ns.map_or(f64::INFINITY, |latency| latency.median)
}
