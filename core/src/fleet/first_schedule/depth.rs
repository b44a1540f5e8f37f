//! How many batches of each rank are staged ahead at first, and how many there is room for.
//!
//! The depth follows from the step time, the figures of the cold store and the time of transforms
//! ([`depth`](mod@depth)). What the job file names is an upper bound. Without these figures it is the depth, else the default is. Figures that the run
//! observes may ask for more later, so there is room for more where main memory is large.

use alloc::{format, string::String};

use super::ScheduleInputs;
use crate::{
    fleet::{
        depth::{self, Bounds, Cold, STAGED_BATCHES},
        schedule::Offer,
    },
    latency_quantiles::LatencyQuantiles,
    session::staging_depth::{self, DEPTH_MAX, Load, Transforming},
    units::{Bytes, Nanoseconds},
};

/// Batches of each rank for which there is room where the job file does not say how many.
const ROOM_FOR: u32 = 16;

/// The part of main memory that room for more batches than are staged at first may take: what a cache would
/// gain by it is less.
const ROOM_SHARE: u64 = 32;

/// The most batches that a later generation may stage of each rank, where `depth` are staged at first.
pub(super) fn deepest(inputs: &ScheduleInputs, depth: u32, main_memory: Bytes) -> u32 {
    let room = in_share(inputs, main_memory, ROOM_SHARE);
    depth.max(inputs.depth_max.unwrap_or(ROOM_FOR).min(room))
}

/// The batches of each rank that a part of main memory holds.
fn in_share(inputs: &ScheduleInputs, main_memory: Bytes, part: u64) -> u32 {
    let share = Bytes(main_memory.0 / part / u64::from(inputs.ranks.max(1)));
    staging_depth::deepest(share, inputs.batch)
}

/// The depth with so much main memory, and the reason in a sentence.
pub(super) fn depth(inputs: &ScheduleInputs, offer: &Offer, main_memory: Bytes) -> (u32, String) {
    let cold = &offer.cold;
    let asked = inputs.depth_max;
    let (Some(step_time), Some(rate)) = (inputs.step_time, cold.bandwidth) else {
        let unknown = match inputs.step_time {
            None => "the step time is not known",
            Some(_) => "the rate of the cold store is not known",
        };
        return match asked {
            Some(asked) => (asked, format!("as the job file says: {unknown}")),
            None => (STAGED_BATCHES, format!("the default: {unknown}")),
        };
    };
    let samples = inputs.batch_samples.saturating_mul(inputs.ranks);
    let load = Load { samples, reads: samples, read_len: inputs.sample, step_time };
    let latency = cold.latency.unwrap_or_default();
    let cold = Cold { latency, rate, threads: inputs.cold_threads };
    // More than the default takes at most half of main memory.
    let in_memory = in_share(inputs, main_memory, 2).max(STAGED_BATCHES);
    let bounds = Bounds {
        usual: STAGED_BATCHES,
        most: asked.unwrap_or(DEPTH_MAX).min(in_memory),
        limit: match asked {
            Some(asked) if asked <= in_memory => "the job file allows",
            _ => "half of main memory holds",
        },
        if_too_slow: asked.unwrap_or(STAGED_BATCHES),
    };
    // In the first epoch everything arrives as it is stored. Of its time only the mean was measured.
    let transform = offer.transform.as_ref().and_then(|it| Some((it.threads, it.each?)));
    let time = transform.map(|(threads, each)| {
        let whole = each.prepare.0.saturating_add(each.rest.0);
        (threads, LatencyQuantiles::constant(Nanoseconds(whole)))
    });
    let transforming =
        time.as_ref().map(|(threads, time)| Transforming { threads: *threads, time });
    depth::depth(&load, &cold, transforming.as_ref(), &bounds)
}
