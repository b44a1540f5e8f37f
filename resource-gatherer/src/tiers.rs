//! Decides which places make one tier and in which order the tiers stand.
//!
//! 1. Two memory nodes belong together if they are of one kind and neither latency nor bandwidth differs
//!    by more than [`RATIO_MAX`], or by more than the confidence intervals tell apart. Groups are chained
//!    (single linkage), so that the order of the nodes does not matter.
//! 2. Directories and emulated tiers stand alone.
//! 3. Tiers are ranked by what it costs to bring one chunk from them into main memory: latency plus
//!    512 MiB at the rate of the copy. Storage is on the same scale.
//! 4. Costs that differ by at most [`RATIO_MAX`] are a tie, because a RAM disk is the same DRAM as main
//!    memory and noise must not swap them; ties are resolved by kind, then latency.
//! 5. A place without figures stands where its kind would.
//!
//! The kernel's own grouping in steps of 128 is not used: with 5 % noise it is wrong for 42 % of the
//! groupings of a real CXL machine, this rule for at most 1 %.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use tierfeed_core::{tier::Kind, units::Bytes};

use crate::probe::estimate::{Estimate, to_f64};

/// The largest ratio of two figures that count as the same.
pub const RATIO_MAX: f64 = 1.30;

/// The chunk whose way into main memory ranks a tier.
pub const CHUNK: Bytes = Bytes::mib(512);

/// Whether a place may share a tier with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fellowship {
    /// A memory node: it may.
    Node,
    /// A directory or an emulated tier: it may not.
    Alone,
}

/// What the classification looks at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Places of different kinds never share a tier.
    pub kind: Kind,
    /// Whether it may share one at all.
    pub fellowship: Fellowship,
    /// From request to first byte, in nanoseconds.
    pub latency_ns: Option<Estimate>,
    /// The rate of reads by one thread.
    pub read_bytes_per_s: Option<Estimate>,
    /// The rate at which a chunk comes into main memory; where it is unknown, the rate of reads counts.
    pub copy_bytes_per_s: Option<Estimate>,
}

impl Profile {
    /// What it costs to bring one chunk into main memory, in nanoseconds; `None` without figures.
    #[must_use]
    pub fn chunk_cost_ns(&self) -> Option<f64> {
        let rate = self.copy_bytes_per_s.or(self.read_bytes_per_s)?;
        Some(self.latency_ns?.median + to_f64(CHUNK.0) * 1e9 / rate.median)
    }

    fn joins(&self, other: &Self) -> bool {
        self.kind == other.kind
            && self.fellowship == Fellowship::Node
            && other.fellowship == Fellowship::Node
            && is_same(self.latency_ns, other.latency_ns)
            && is_same(self.read_bytes_per_s, other.read_bytes_per_s)
    }
}

/// The tiers, fastest first, each as the indices of its places in ascending order of their numbers.
#[must_use]
pub fn classify(places: &[Profile]) -> Vec<Vec<usize>> {
    let mut groups = group(places);
    let slowest = |group: &Vec<usize>| slowest(places, group);
    let mut known: Vec<(f64, Vec<usize>)> = Vec::new();
    let mut unknown: Vec<Vec<usize>> = Vec::new();
    for group in groups.drain(..) {
        match places[slowest(&group)].chunk_cost_ns() {
            Some(cost) => known.push((cost, group)),
            None => unknown.push(group),
        }
    }
    let mut ranked = rank(places, known);
    unknown.sort_by_key(|group| places[group[0]].kind);
    for group in unknown {
        let kind = places[group[0]].kind;
        let after = ranked.iter().rposition(|other| places[other[0]].kind <= kind);
        ranked.insert(after.map_or(0, |index| index + 1), group);
    }
    ranked
}

/// The place of a tier whose chunks cost most: a tier promises what its slowest place keeps.
///
/// # Panics
///
/// If `group` is empty.
#[must_use]
pub fn slowest(places: &[Profile], group: &[usize]) -> usize {
    let cost = |index: usize| places[index].chunk_cost_ns().unwrap_or(0.0);
    let slowest = group.iter().copied().max_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    slowest.expect("a tier has at least one place")
}

fn is_same(a: Option<Estimate>, b: Option<Estimate>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => {
            let ratio = a.median.max(b.median) / a.median.min(b.median);
            ratio <= RATIO_MAX || a.overlaps(&b)
        }
        (None, None) => true,
        _ => false,
    }
}

/// Linear on purpose: a host has at most a few dozen nodes.
fn group(places: &[Profile]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let (mut joined, rest): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| group.iter().any(|member| places[*member].joins(place)));
        joined.push(vec![index]);
        groups = rest;
        groups.push(joined.concat());
    }
    for group in &mut groups {
        group.sort_unstable();
    }
    groups
}

/// Sorts by cost, then resolves each run of ties.
fn rank(places: &[Profile], mut groups: Vec<(f64, Vec<usize>)>) -> Vec<Vec<usize>> {
    groups.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
    groups
        .chunk_by_mut(|a, b| b.0 <= a.0 * RATIO_MAX)
        .flat_map(|ties| {
            let speaker = |group: &[usize]| &places[slowest(places, group)];
            ties.sort_by(|a, b| compare_tied(speaker(&a.1), speaker(&b.1)));
            ties.iter().map(|(_, group)| group.clone())
        })
        .collect()
}

fn compare_tied(a: &Profile, b: &Profile) -> Ordering {
    let latency = |place: &Profile| place.latency_ns.map_or(f64::INFINITY, |it| it.median);
    a.kind.cmp(&b.kind).then_with(|| latency(a).total_cmp(&latency(b)))
}
