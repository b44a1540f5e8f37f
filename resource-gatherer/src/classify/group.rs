//! Decides which places make one tier: single linkage by ratio, intervals and what was decided before.

use std::ops::RangeInclusive;

use tierfeed_core::tier::rank::RATIO_MAX;

use super::{Grouping, Profile};
use crate::figures::estimate::Estimate;

/// While the ratio of two figures lies in this range, their nodes stay together or apart as they were.
pub(crate) const RATIO_STAYS: RangeInclusive<f64> = 1.25..=1.35;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bond {
    Together,
    Apart,
    Unknown,
}

/// Linear on purpose: a host has at most a few dozen nodes.
pub(super) fn group(places: &[Profile]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let (mut joined, rest): (Vec<_>, Vec<_>) = groups
            .into_iter()
            .partition(|group| group.iter().any(|member| joins(&places[*member], place)));
        joined.push(vec![index]);
        groups = rest;
        groups.push(joined.concat());
    }
    for group in &mut groups {
        group.sort_unstable();
    }
    groups
}

fn joins(a: &Profile, b: &Profile) -> bool {
    match (a.grouping, b.grouping) {
        (Grouping::Assigned(first), Grouping::Assigned(second)) => first == second,
        (Grouping::Node(first), Grouping::Node(second)) => {
            let bond = bond(a, b);
            first == second
                && a.kind == b.kind
                && is_same(a.latency_ns, b.latency_ns, bond)
                && is_same(a.read_bytes_per_s, b.read_bytes_per_s, bond)
        }
        _ => false,
    }
}

fn bond(a: &Profile, b: &Profile) -> Bond {
    match (a.before, b.before) {
        (Some(first), Some(second)) if first == second => Bond::Together,
        (Some(_), Some(_)) => Bond::Apart,
        _ => Bond::Unknown,
    }
}

/// Intervals that overlap never split a tier; they do not undo a split that was decided before either,
/// or a noisy second look would.
fn is_same(a: Option<Estimate>, b: Option<Estimate>, bond: Bond) -> bool {
    let (a, b) = match (a, b) {
        (Some(a), Some(b)) => (a, b),
        (None, None) => return true,
        _ => return false,
    };
    let ratio = a.median.max(b.median) / a.median.min(b.median);
    match bond {
        Bond::Together => ratio <= *RATIO_STAYS.end() || a.overlaps(&b),
        Bond::Apart => ratio < *RATIO_STAYS.start(),
        Bond::Unknown => ratio <= RATIO_MAX || a.overlaps(&b),
    }
}
