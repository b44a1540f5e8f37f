//! The briefing: what a trainer needs of a job to continue reading without an agent.

use std::path::PathBuf;

use tierfeed_core::{id::Rank, order::Spec, session, tier::Speed};
use tierfeed_dataset::{
    Catalog,
    source::{Access, Location},
};
use tierfeed_handoff::{Briefing, Emulation, FurtherDataset, OnError};
use tierfeed_workload_analyzer::Job;

use crate::dataset;

/// The briefing of `rank`: it reads `order` by the index at `index_path` and those beside it, and asks for at most
/// `batches_ahead` batches at a time.
#[must_use]
pub fn of(
    job: &Job,
    rank: Rank,
    order: Spec,
    catalog: &Catalog,
    index_path: PathBuf,
    batches_ahead: u32,
) -> Briefing {
    let further =
        job.further.iter().zip(catalog.further()).map(|(dataset, index)| FurtherDataset {
            name: dataset.name.clone(),
            index_path: dataset::further_index(dataset, &index_path),
            bucket: bucket(&dataset.dataset.source),
            emulation: emulation(dataset.speed),
            fingerprint: index.fingerprint(),
            transform: dataset.transform.clone(),
        });
    let further: Vec<_> = further.collect();
    Briefing {
        job: job.name.clone(),
        rank,
        order,
        index_path,
        bucket: bucket(&job.dataset.source),
        on_error: match job.on_error {
            session::OnError::Fail => OnError::Fail,
            session::OnError::Skip(share) => OnError::Skip(share),
        },
        patience_ns: job.cold.patience.0,
        emulation: emulation(job.cold.speed),
        batches_ahead,
        fingerprint: catalog.first().fingerprint(),
        transform: job.transform.as_ref().map(|it| it.pipeline.clone()),
        further,
    }
}

fn bucket(source: &Location) -> Option<Access> {
    match source {
        Location::Path(_) => None,
        Location::Bucket(address) => Some(address.access.clone()),
    }
}

fn emulation(speed: Option<Speed>) -> Option<Emulation> {
    speed.map(|speed| Emulation { latency_ns: speed.latency.0, bytes_per_s: speed.bandwidth.0 })
}
