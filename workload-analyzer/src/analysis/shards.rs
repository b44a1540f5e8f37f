//! How the objects of a dataset divide over workers that are assigned whole objects.

use serde::Serialize;
use tierfeed_core::units::{Bytes, float};

use crate::{Job, demand::Sizes};

/// The objects of a dataset as shards.
///
/// tierfeed assigns samples, not objects, so an uneven division costs it nothing; it costs frameworks that
/// shard by file (`tf.data` by `FILE`, WebDataset, Streaming).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Shards {
    pub objects: u64,
    /// Mean size of an object.
    #[serde(rename = "object_bytes")]
    pub object: Bytes,
    pub ranks: u32,
    /// Workers of the loader of each rank, at least 1.
    pub workers_per_rank: u32,
    /// Objects of the rank that has the most.
    pub objects_per_rank: u64,
    /// Bytes of the objects of that rank.
    #[serde(rename = "rank_bytes")]
    pub rank: Bytes,
    /// Objects of the worker that has the most.
    pub objects_per_worker: u64,
    /// Bytes of the objects of that worker.
    #[serde(rename = "worker_bytes")]
    pub worker: Bytes,
    pub even: bool,
    pub idle_workers: u64,
    /// The additional reading time of the busiest worker over the mean, in percent.
    pub longer_percent: f64,
}

impl Shards {
    pub(super) fn of(job: &Job, sizes: &Sizes) -> Self {
        let (objects, ranks) = (sizes.objects(), job.world.ranks());
        let workers_per_rank = job.trainer.loader.workers.max(1);
        let workers = u64::from(ranks) * u64::from(workers_per_rank);
        let per_rank = objects.div_ceil(ranks.into());
        // The rank with the most objects divides them over its own workers.
        let per_worker = per_rank.div_ceil(workers_per_rank.into());
        let bytes_of = |count: u64| {
            let share = u128::from(sizes.total().0) * u128::from(count);
            Bytes(u64::try_from(share.div_ceil(objects.max(1).into())).unwrap_or(u64::MAX))
        };
        Self {
            objects,
            object: bytes_of(1),
            ranks,
            workers_per_rank,
            objects_per_rank: per_rank,
            rank: bytes_of(per_rank),
            objects_per_worker: per_worker,
            worker: bytes_of(per_worker),
            even: objects.is_multiple_of(workers),
            idle_workers: workers.saturating_sub(objects),
            longer_percent: longer(per_worker, objects, workers),
        }
    }
}

fn longer(most: u64, objects: u64, workers: u64) -> f64 {
    (float(most) * float(workers) / float(objects.max(1)) - 1.0) * 100.0
}
