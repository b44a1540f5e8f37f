//! How many batches of each rank are staged ahead, by the figures of the cold store and of the steps.
//!
//! The least depth with which cold batches are in time ([`staging_depth`]) follows from means. With a wider
//! distribution more is needed, so the depth is at least the usual one. What spreads most, the times of transforms,
//! counts with its spread.

use alloc::{borrow::ToOwned, format, string::String};
use core::num::NonZeroU32;

use crate::{
    latency_quantiles::{LatencyQuantiles, PerMillion},
    session::staging_depth::{self, Link, Load, Shortfall, Transforming},
    throughput::Throughput,
    units::{BytesPerSecond, Nanoseconds},
};

/// Batches that are staged ahead of each rank where neither the job file nor figures say more.
pub const STAGED_BATCHES: u32 = 4;

/// The share of steps whose batches must be ready in time.
pub const IN_TIME: PerMillion = PerMillion(999_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cold {
    /// From the request to the first byte.
    pub latency: Nanoseconds,
    /// Shared by all reads.
    pub rate: BytesPerSecond,
    pub threads: NonZeroU32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub usual: u32,
    pub most: u32,
    /// The cause of the upper bound, as the subject and the verb of a sentence.
    pub limit: &'static str,
    /// The depth if the cold store is slower than the steps.
    pub if_too_slow: u32,
}

/// The depth within its bounds, and the reason in a sentence.
#[must_use]
pub fn depth(
    load: &Load,
    cold: &Cold,
    transforming: Option<&Transforming<'_>>,
    bounds: &Bounds,
) -> (u32, String) {
    let Bounds { usual, most, limit, if_too_slow } = *bounds;
    let throughput = Throughput::constant(cold.rate);
    let latency = LatencyQuantiles::constant(cold.latency);
    let link = Link { throughput: &throughput, latency: &latency, threads: cold.threads };
    match staging_depth::least(load, &link, transforming, IN_TIME, most) {
        Ok(least) => {
            let depth = least.batches.max(usual).min(most);
            let batches = least.batches;
            (depth, format!("{batches} are in time in {} of all steps", least.in_time))
        }
        Err(Shortfall::TooShallow { in_time, .. }) => {
            (most, format!("as many as {limit}: in time in {in_time} of all steps"))
        }
        Err(Shortfall::TransformsTooSlow { .. }) => (
            if_too_slow,
            "transforms are slower than the steps, however far ahead they begin".to_owned(),
        ),
        Err(Shortfall::TooSlow { .. }) => (
            if_too_slow,
            "the cold store is slower than the steps, however far ahead it is read".to_owned(),
        ),
    }
}
