//! The memory of a tier that trainers map to read samples where they lie.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use tierfeed_core::{
    batch::InPlace,
    id::{ChunkId, TierId},
    units::Bytes,
};
use tierfeed_numa_memory::Shelf;

/// Where each chunk starts on its shelf.
pub type Starts = Arc<RwLock<BTreeMap<ChunkId, Bytes>>>;

/// The memory of a tier that trainers map.
#[derive(Debug, Clone)]
pub struct Shelved {
    tier: TierId,
    shelf: Arc<Shelf>,
    starts: Starts,
}

impl Shelved {
    /// The memory of `tier`, in which chunks start at `starts`; the owner of the tier keeps those up to date.
    #[must_use]
    pub fn new(tier: TierId, shelf: Arc<Shelf>, starts: Starts) -> Self {
        Self { tier, shelf, starts }
    }

    /// Which tier.
    #[must_use]
    pub fn tier(&self) -> TierId {
        self.tier
    }

    /// All of it.
    #[must_use]
    pub fn shelf(&self) -> &Arc<Shelf> {
        &self.shelf
    }

    /// Where a sample lies on the shelf; `None` if its chunk is not there.
    #[must_use]
    pub fn offset_of(&self, shown: InPlace) -> Option<Bytes> {
        let starts = self.starts.read().unwrap_or_else(PoisonError::into_inner);
        starts.get(&shown.chunk)?.0.checked_add(shown.offset.0).map(Bytes)
    }
}
