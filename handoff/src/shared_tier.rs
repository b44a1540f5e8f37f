//! The memory of a tier that trainers map to read samples in place.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use tierfeed_core::{
    batch::InPlace,
    id::{ChunkId, TierId},
    units::Bytes,
};
use tierfeed_numa_memory::SharedPool;

/// Start of each chunk in the memory of its tier, in bytes.
pub type Starts = Arc<RwLock<BTreeMap<ChunkId, Bytes>>>;

#[derive(Debug, Clone)]
pub struct SharedTier {
    tier: TierId,
    memory: Arc<SharedPool>,
    starts: Starts,
}

impl SharedTier {
    /// Shares the memory of `tier`, in which chunks start at `starts`; the owner of the tier keeps
    /// those up to date.
    #[must_use]
    pub fn new(tier: TierId, memory: Arc<SharedPool>, starts: Starts) -> Self {
        Self { tier, memory, starts }
    }

    #[must_use]
    pub fn tier(&self) -> TierId {
        self.tier
    }

    #[must_use]
    pub fn memory(&self) -> &Arc<SharedPool> {
        &self.memory
    }

    /// Offset of a sample in the memory of its tier; `None` if its chunk is not there.
    #[must_use]
    pub fn offset_of(&self, in_place: InPlace) -> Option<Bytes> {
        let starts = self.starts.read().unwrap_or_else(PoisonError::into_inner);
        starts.get(&in_place.chunk)?.0.checked_add(in_place.offset.0).map(Bytes)
    }
}
