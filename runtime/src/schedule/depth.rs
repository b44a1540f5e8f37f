//! How many batches of each rank are staged ahead.
//!
//! The least depth with which cold batches are in time ([`staging_depth`]) follows from the step time and the
//! figures of the cold store. They are means, and with a wider distribution more is needed, so the depth is
//! at least the default. What the job file names is an upper bound. Without these figures it is the depth,
//! else the default is.

use tierfeed_core::{
    fleet::schedule::Figures,
    latency_quantiles::{LatencyQuantiles, PerMillion},
    session::staging_depth::{self, DEPTH_MAX, Link, Load, Shortfall},
    throughput::Throughput,
    units::Bytes,
};
use tierfeed_workload_analyzer::job::STAGED_BATCHES;

use super::Terms;

/// The share of steps whose batches must be ready in time.
pub const IN_TIME: PerMillion = PerMillion(999_000);

/// The depth with so much main memory, and the reason in a sentence.
pub(super) fn depth(terms: &Terms, cold: &Figures, main_memory: Bytes) -> (u32, String) {
    let asked = terms.depth_max;
    let (Some(step_time), Some(rate)) = (terms.step_time, cold.bandwidth) else {
        let unknown = match terms.step_time {
            None => "the step time is not known",
            Some(_) => "the rate of the cold store is not known",
        };
        return match asked {
            Some(asked) => (asked, format!("as the job file says: {unknown}")),
            None => (STAGED_BATCHES, format!("the default: {unknown}")),
        };
    };
    let throughput = Throughput::constant(rate);
    let latency = LatencyQuantiles::constant(cold.latency.unwrap_or_default());
    let load = Load {
        reads: terms.batch_samples.saturating_mul(terms.ranks),
        read_len: terms.sample,
        step_time,
    };
    let link = Link { throughput: &throughput, latency: &latency, threads: terms.cold_threads };
    // More than the default takes at most half of main memory.
    let share = Bytes(main_memory.0 / 2 / u64::from(terms.ranks.max(1)));
    let in_memory = staging_depth::deepest(share, terms.batch).max(STAGED_BATCHES);
    let most = asked.unwrap_or(DEPTH_MAX).min(in_memory);
    let limit = match asked {
        Some(asked) if asked <= in_memory => "the job file allows",
        _ => "half of main memory holds",
    };
    match staging_depth::least(&load, &link, IN_TIME, most) {
        Ok(least) => {
            let depth = least.batches.max(STAGED_BATCHES).min(most);
            let batches = least.batches;
            (depth, format!("{batches} are in time in {} of all steps", least.in_time))
        }
        Err(Shortfall::TooShallow { in_time, .. }) => {
            (most, format!("as many as {limit}: in time in {in_time} of all steps"))
        }
        Err(_) => {
            let depth = asked.unwrap_or(STAGED_BATCHES);
            (
                depth,
                "the cold store is slower than the steps, however far ahead it is read".to_owned(),
            )
        }
    }
}
