//! What a trainer needs of a job to continue reading without an agent.

use std::path::PathBuf;

use tierfeed_core::{id::Rank, order::Spec};
use tierfeed_dataset::{
    Index,
    source::{Identity, Location},
};
use tierfeed_handoff::{Briefing, Bucket, Emulation, OnError};
use tierfeed_workload_analyzer::{Job, job};

/// The briefing of `rank`: it reads `order` by the index at `index_path`, and asks for at most
/// `batches_ahead` batches at a time.
#[must_use]
pub fn of(
    job: &Job,
    rank: Rank,
    order: Spec,
    index: &Index,
    index_path: PathBuf,
    batches_ahead: u32,
) -> Briefing {
    Briefing {
        job: job.name.clone(),
        rank,
        order,
        index_path,
        bucket: match &job.dataset.source {
            Location::Path(_) => None,
            Location::Bucket(bucket) => Some(Bucket {
                endpoint: bucket.endpoint.clone(),
                region: bucket.region.clone(),
                is_anonymous: bucket.identity == Identity::Anonymous,
            }),
        },
        on_error: match job.on_error {
            job::OnError::Fail => OnError::Fail,
            job::OnError::Skip => OnError::Skip,
        },
        emulation: job
            .cold
            .speed
            .map(|speed| Emulation { latency_ns: speed.latency.0, bytes_per_s: speed.bandwidth.0 }),
        batches_ahead,
        fingerprint: index.fingerprint(),
    }
}
