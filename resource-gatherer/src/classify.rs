//! Decides which places make one tier; the core ranks the tiers.
//!
//! 1. Two memory nodes belong together if they are of one kind and class and neither latency nor
//!    bandwidth differs by more than [`rank::RATIO_MAX`], or by more than the confidence intervals tell
//!    apart. Groups are chained (single linkage), so that the order of the nodes does not matter.
//! 2. What an earlier classification decided stands until a ratio leaves [`group::RATIO_STAYS`].
//! 3. Directories and emulated tiers stand alone. Nodes that the settings put together make one tier,
//!    without others, however fast they are.
//! 4. A tier is ranked ([`rank`]) by the place whose chunks cost most.
//!
//! The kernel's own grouping, in steps of 128 of an abstract distance (`mm/memory-tiers.c`), is not used:
//! with 5 % noise it is wrong for 42 % of the groupings of a real CXL machine, this rule for at most 1 %.

mod class;
mod comparison;
mod constraints;
mod group;
#[cfg(test)]
mod tests;
mod view;

use tierfeed_core::tier::{
    Kind, Speed,
    rank::{self, Rated},
};

pub use self::{class::MemoryClass, constraints::Assignment};
pub(crate) use self::{
    comparison::comparisons,
    constraints::{Classification, Constraints},
    view::{host_profiles, views},
};
use crate::figures::{
    Figures,
    estimate::{Estimate, to_f64},
};

/// The other places with which a place may share a tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    /// A memory node of this class: with nodes of the class that are as fast.
    Node(MemoryClass),
    /// A memory node that the settings name: with those named under the same number.
    Assigned(usize),
    /// A directory or an emulated tier: with none.
    Alone,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Places of different kinds never share a tier.
    pub(crate) kind: Kind,
    pub(crate) grouping: Grouping,
    /// Number of its tier in an earlier classification; `None` if there was none.
    pub(crate) before: Option<usize>,
    /// From request to first byte.
    pub(crate) latency_ns: Option<Estimate>,
    pub(crate) read_bytes_per_s: Option<Estimate>,
    /// Rate at which a chunk comes into main memory; where it is unknown, the rate of reads counts.
    pub(crate) copy_bytes_per_s: Option<Estimate>,
}

impl Profile {
    /// A place that stands alone, without figures.
    #[must_use]
    pub fn unmeasured(kind: Kind) -> Self {
        Self {
            kind,
            grouping: Grouping::Alone,
            before: None,
            latency_ns: None,
            read_bytes_per_s: None,
            copy_bytes_per_s: None,
        }
    }

    /// A place that stands alone, with these figures.
    pub(crate) fn of(kind: Kind, figures: &Figures) -> Self {
        Self {
            latency_ns: figures.idle_latency_ns,
            read_bytes_per_s: figures.read_bytes_per_s,
            copy_bytes_per_s: figures.copy_bytes_per_s,
            ..Self::unmeasured(kind)
        }
    }

    /// A place that stands alone, with stated figures: no faster than `player`, the memory that plays it. A
    /// bandwidth of 0 is unlimited: then that of `player` counts.
    #[must_use]
    pub fn emulated(kind: Kind, speed: Speed, player: Option<&Self>) -> Self {
        let rate = Some(speed.bandwidth.0).filter(|rate| *rate > 0);
        let rate = rate.map(|rate| Estimate::stated(to_f64(rate)));
        let played_latency = player.and_then(|it| it.latency_ns).map_or(0.0, |it| it.median);
        let latency = to_f64(speed.latency.0).max(played_latency);
        Self {
            latency_ns: Some(Estimate::stated(latency)),
            read_bytes_per_s: slower(rate, player.and_then(|it| it.read_bytes_per_s)),
            copy_bytes_per_s: slower(rate, player.and_then(|it| it.copy_bytes_per_s)),
            ..Self::unmeasured(kind)
        }
    }

    #[must_use]
    pub fn as_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// The figures by which it is ranked.
    #[must_use]
    pub fn rated(&self) -> Rated {
        Rated {
            kind: self.kind,
            latency_ns: self.latency_ns.map(|it| it.median),
            bytes_per_s: self.copy_bytes_per_s.or(self.read_bytes_per_s).map(|it| it.median),
        }
    }
}

/// The smaller of a stated rate and that of the memory which plays it.
pub(crate) fn slower(stated: Option<Estimate>, played: Option<Estimate>) -> Option<Estimate> {
    stated.into_iter().chain(played).min_by(|a, b| a.median.total_cmp(&b.median))
}

/// The tiers, fastest first, each as the indices of its places in ascending order of their numbers.
#[must_use]
pub fn classify(places: &[Profile]) -> Vec<Vec<usize>> {
    let places = class::settle(places);
    let mut groups = group::group(&places);
    // Tiers that nothing else tells apart stand by their numbers.
    groups.sort_unstable();
    let rated: Vec<Rated> =
        groups.iter().map(|group| places[slowest(&places, group)].rated()).collect();
    rank::rank(&rated).into_iter().map(|index| groups[index].clone()).collect()
}

/// The class of a memory node after unknown memory was compared with the other nodes; `None` for a place that
/// is not a memory node.
///
/// # Panics
///
/// If `places` has no place number `index`.
pub(crate) fn class_of(places: &[Profile], index: usize) -> Option<MemoryClass> {
    match class::settle(places)[index].grouping {
        Grouping::Node(class) => Some(class),
        Grouping::Assigned(_) | Grouping::Alone => None,
    }
}

/// The place of a tier whose chunks cost most: a tier promises only the speed of its slowest place.
///
/// # Panics
///
/// If `group` is empty.
pub(crate) fn slowest(places: &[Profile], group: &[usize]) -> usize {
    let cost = |index: usize| places[index].rated().chunk_cost_ns().unwrap_or(0.0);
    let slowest = group.iter().copied().max_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    slowest.expect("a tier has at least one place")
}
