//! Decides the order of the tiers of a job, and says why.
//!
//! 1. Main memory is the first tier, because batches are staged there.
//! 2. The others stand as the probe ranks them ([`rank`](mod@rank)): by the time that a chunk takes into main memory,
//!    by kind where these times are within 30 %.
//! 3. A tier without figures stands where its kind would, but memory before every tier that is slower than
//!    any memory.

use alloc::{borrow::ToOwned, format, string::String, vec::Vec};

use crate::{
    fleet::schedule::Figures,
    tier::{
        Kind,
        rank::{self, RATIO_MAX, Rated},
    },
    units::{BytesPerSecond, whole},
};

/// The places of a tier in words; a host has fewer.
const ORDINALS: [&str; 10] =
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"];

pub(super) fn rated(kind: Kind, figures: &Figures) -> Rated {
    Rated::of(kind, figures.latency, figures.bandwidth)
}

/// The indices of `tiers`, fastest first, each with its place and what decided it.
pub(super) fn rank(tiers: &[Rated]) -> Vec<(usize, String)> {
    let order = fastest_first(tiers);
    let ranked: Vec<Rated> = order.iter().map(|index| tiers[*index]).collect();
    let placed = |(place, index): (usize, &usize)| (*index, decision(&ranked, place));
    order.iter().enumerate().map(placed).collect()
}

/// The indices of tiers with these figures, fastest first after main memory.
pub(super) fn fastest_first(tiers: &[Rated]) -> Vec<usize> {
    let mut order = rank::rank(tiers);
    // Stable, so that the others keep their order.
    order.sort_by_key(|index| tiers[*index].kind != Kind::MainMemory);
    order
}

/// The place of a tier among `ranked` and the reason, in a sentence.
fn decision(ranked: &[Rated], place: usize) -> String {
    let ordinal =
        ORDINALS.get(place).map_or_else(|| format!("{}th", place + 1), |it| (*it).to_owned());
    format!("{ordinal}: {}", reason(ranked, place))
}

fn reason(ranked: &[Rated], place: usize) -> String {
    let this = &ranked[place];
    if this.kind == Kind::MainMemory {
        return "batches are staged in main memory".to_owned();
    }
    let (Some(cost), Some(rate)) = (this.chunk_cost_ns(), this.bytes_per_s) else {
        return unmeasured_reason(this, &ranked[place + 1..]);
    };
    let rate = BytesPerSecond(whole(rate));
    let others = |tiers: &[Rated]| -> Vec<(Kind, f64)> {
        let beside = tiers.iter().filter(|it| it.kind != Kind::MainMemory);
        beside.filter_map(|it| Some((it.kind, it.chunk_cost_ns()?))).collect()
    };
    if let Some((other, before)) = others(&ranked[..place]).pop() {
        return if cost > before * RATIO_MAX {
            format!("{rate}, slower than {other}")
        } else {
            format!(
                "{rate}, within 30 % of {other}, which stands before it by {}",
                tie(this, other)
            )
        };
    }
    let before = ranked[..place].iter().rfind(|it| it.kind != Kind::MainMemory);
    if let Some(before) = before.filter(|_| this.is_slower_than_memory()) {
        return format!("{rate}, slower than any memory, which {} is", before.kind);
    }
    match others(&ranked[place + 1..]).first() {
        Some((other, after)) if *after > cost * RATIO_MAX => {
            format!("{rate}, faster than {other}")
        }
        Some((other, _)) => {
            format!(
                "{rate}, within 30 % of {other}, which stands after it by {}",
                tie(this, *other)
            )
        }
        None => format!("{rate}, and no other tier beside main memory has figures"),
    }
}

/// What decides between tiers that are as fast.
fn tie(tier: &Rated, other: Kind) -> &'static str {
    if tier.kind == other { "its figures" } else { "its kind" }
}

fn unmeasured_reason(tier: &Rated, after: &[Rated]) -> String {
    let slow = after.iter().find(|it| it.kind < tier.kind && it.is_slower_than_memory());
    match slow.and_then(|slow| Some((slow.kind, slow.bytes_per_s?))) {
        Some((kind, rate)) => {
            let rate = BytesPerSecond(whole(rate));
            format!("no figures, but any memory is faster than {kind} with {rate}")
        }
        None => "no figures, so it stands where its kind does".to_owned(),
    }
}
