//! How much of each tier is worth filling, as far as the job file says how fast things are.
//!
//! What was measured is left out: an agent and a prediction must decide alike, whatever is known of
//! the host that either runs on.

use tierfeed_core::{
    order::Spec,
    policy::{self, Reach},
    tier::{Buffer, Kind},
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_workload_analyzer::Job;

/// What of each tier can be read while the trainer computes, on the only node of a job that says how
/// long a step takes and how fast the source and every tier are; `None` of any other job.
///
/// Main memory may go without a speed: then it limits nothing.
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
