//! How much of each tier is worth filling, from the speeds in the job file.
//!
//! Measured speeds are not used here, only for the order of the tiers: an agent and a prediction must decide
//! alike, although they may run on hosts with different reports.

use tierfeed_core::{
    order::Spec,
    retention::policy::{self, Reach},
    tier::{Buffer, Kind},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_workload_analyzer::Job;

/// The bytes of each tier that can be read while the trainer computes, if the job has one node and its file
/// gives the step time and the speed of the source and of every tier; else `None`.
///
/// Main memory without a speed counts as unlimited.
pub(super) fn useful(
    job: &Job,
    sizes: &[Bytes],
    order: &Spec,
    tiers: &[Buffer],
    chunk: Bytes,
) -> Option<Vec<Bytes>> {
    if order.world.nodes != 1 {
        return None;
    }
    let cold = job.cold.speed?.bandwidth;
    let reaches: Vec<_> =
        tiers.iter().map(|tier| reach(job, *tier, chunk)).collect::<Option<_>>()?;
    let steps = u64::from(order.steps_per_epoch());
    let compute = Nanoseconds(job.step_time?.0.saturating_mul(steps));
    let dataset = sizes.iter().fold(0, |sum: u64, len| sum.saturating_add(len.0));
    (cold.0 > 0).then(|| policy::useful(Bytes(dataset), &reaches, cold, compute))
}

fn reach(job: &Job, tier: Buffer, chunk: Bytes) -> Option<Reach> {
    let request = job.tiers.iter().find(|request| request.kind == tier.kind);
    let rate =
        request.and_then(|request| request.speed).map_or(BytesPerSecond(0), |it| it.bandwidth);
    let is_known = rate.0 > 0 || tier.kind == Kind::MainMemory;
    is_known.then(|| Reach { capacity: tier.capacity(chunk), rate })
}
