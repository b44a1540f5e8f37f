//! The main memory that a job needs for itself and that tiers must leave free.

use serde::Serialize;
use tierfeed_core::units::Bytes;

use crate::{Job, demand::Demand, job::trainer::Device};

/// Batches that each worker of a loader holds in advance.
///
/// # Source
///
/// `prefetch_factor` of PyTorch's `DataLoader`: 2 if there are workers.
const BATCHES_PER_WORKER: u64 = 2;

/// The main memory of one node without its tiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Parameters, gradients and optimizer states of all ranks of a node, if main memory holds them.
    #[serde(rename = "model_bytes")]
    pub model: Bytes,
    /// Decoded batches that the loaders hold.
    #[serde(rename = "decoded_bytes")]
    pub decoded: Bytes,
    /// The copy from which a checkpoint is written: of one rank, because all ranks have the same.
    #[serde(rename = "checkpoint_bytes")]
    pub checkpoint: Bytes,
    /// The sum of model, decoded batches and checkpoint.
    #[serde(rename = "needed_bytes")]
    pub needed: Bytes,
    #[serde(rename = "free_bytes")]
    pub free: Bytes,
    /// The part of `needed` that exceeds `free`; the verdict subtracts it from the cache in main memory.
    #[serde(rename = "missing_bytes")]
    pub missing: Bytes,
}

impl Memory {
    pub(super) fn of(
        job: &Job,
        demand: &Demand,
        decoded_batch: Option<Bytes>,
        free: Bytes,
    ) -> Self {
        let ranks = u64::from(demand.ranks_per_node);
        let model = job.trainer.model.filter(|model| model.device == Device::Cpu);
        let model = model.map_or(0, |model| model.trained_bytes().0).saturating_mul(ranks);
        let held = u64::from(job.trainer.loader.workers).saturating_mul(BATCHES_PER_WORKER).max(1);
        let batch = decoded_batch.unwrap_or_default().0;
        let decoded = batch.saturating_mul(held).saturating_mul(ranks);
        let checkpoint = super::checkpoint::bytes(job).unwrap_or_default().0;
        let needed = model.saturating_add(decoded).saturating_add(checkpoint);
        Self {
            model: Bytes(model),
            decoded: Bytes(decoded),
            checkpoint: Bytes(checkpoint),
            needed: Bytes(needed),
            free,
            missing: Bytes(needed.saturating_sub(free.0)),
        }
    }
}
