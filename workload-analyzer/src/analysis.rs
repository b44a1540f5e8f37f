//! Analyses a job: the bytes that each phase reads, writes and holds, and the shards of each worker.
//!
//! DeepMemoryDL, section 3.3.2: data processing (loading, preprocessing) is distinguished from execution
//! (training, validation, evaluation), and the shards of each worker determine the memory it needs.
//! `docs/demand.md` has the formulas.

mod checkpoint;
mod memory;
mod phase;
mod shards;
mod table;

use serde::Serialize;
use tierfeed_core::units::Bytes;

use crate::{
    Job,
    demand::{Demand, Sizes},
    job::trainer::NativeCache,
};

pub use checkpoint::Checkpointing;
pub use memory::Memory;
pub use phase::{Name, Phase};
pub use shards::Shards;
pub use table::table;

/// Serialised, quantities are plain numbers whose key ends in the unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Analysis {
    /// The phases, in the order in which they first occur.
    pub phases: Vec<Phase>,
    /// Bytes of a batch as arrays, if the job says what a sample is decoded to.
    #[serde(rename = "decoded_batch_bytes")]
    pub decoded_batch: Option<Bytes>,
    pub shards: Shards,
    pub memory: Memory,
    pub checkpoint: Option<Checkpointing>,
    pub warnings: Vec<String>,
}

impl Analysis {
    /// `free` is the main memory of each node that is free beside its tiers.
    #[must_use]
    pub fn of(job: &Job, sizes: &Sizes, demand: &Demand, free: Bytes) -> Self {
        let decoded_batch = decoded_batch(job, demand);
        Self {
            phases: phase::all(job, sizes, demand),
            decoded_batch,
            shards: Shards::of(job, sizes),
            memory: Memory::of(job, demand, decoded_batch, free),
            checkpoint: Checkpointing::of(job, demand),
            warnings: warnings(job, demand),
        }
    }
}

fn decoded_batch(job: &Job, demand: &Demand) -> Option<Bytes> {
    let elements = &job.trainer.decoded;
    let sample = elements.iter().fold(0, |sum: u64, it| sum.saturating_add(it.bytes().0));
    let batch = sample.saturating_mul(demand.batch_samples.into());
    (!elements.is_empty()).then_some(Bytes(batch))
}

fn warnings(job: &Job, demand: &Demand) -> Vec<String> {
    let mut warnings = of_native_cache(job, demand);
    warnings.extend(job.unused_threads().map(str::to_owned));
    warnings
}

fn of_native_cache(job: &Job, demand: &Demand) -> Vec<String> {
    match &job.trainer.cache {
        NativeCache::None => Vec::new(),
        NativeCache::Memory => vec![format!(
            "the framework caches samples in memory itself: up to {} a node are held twice, and what it \
             has is never asked of tierfeed; remove its cache, or keep no tier but main memory",
            per_node(demand)
        )],
        NativeCache::Path(path) => vec![format!(
            "the framework caches samples in {} itself: up to {} a node are written and held twice; \
             remove its cache, or keep no tier but main memory",
            path.display(),
            per_node(demand)
        )],
    }
}

fn per_node(demand: &Demand) -> Bytes {
    Bytes(demand.epoch.0.div_ceil(demand.nodes.into()))
}

#[cfg(test)]
mod tests;
