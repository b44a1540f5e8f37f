//! The memory of tiers that a trainer maps for reading: samples that were not copied lie there.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use tierfeed_core::{id::TierId, units::Bytes};
use tierfeed_numa_memory::{MapError, ReadView};

use super::message::{SHELVES_MAX, ShelfBytes};

/// What a client mapped, by tier. It stays mapped while this lives, also when the agent is gone.
#[derive(Debug, Clone, Default)]
pub struct Shelves(Arc<BTreeMap<TierId, Arc<ReadView>>>);

impl Shelves {
    /// Maps what an agent sent; `None` if it sent something else than it said.
    pub(super) fn map(
        shelves: &[ShelfBytes],
        descriptors: Vec<OwnedFd>,
    ) -> Option<Result<Self, MapError>> {
        if shelves.len() != descriptors.len() || shelves.len() > SHELVES_MAX {
            return None;
        }
        let mut mapped = BTreeMap::new();
        for (ShelfBytes { tier, bytes }, descriptor) in shelves.iter().zip(descriptors) {
            let view = match ReadView::map(descriptor, Bytes(*bytes)) {
                Ok(view) => Arc::new(view),
                Err(error) => return Some(Err(error)),
            };
            if mapped.insert(TierId(*tier), view).is_some() {
                return None;
            }
        }
        Some(Ok(Self(Arc::new(mapped))))
    }

    /// The memory of a tier, if the agent shows it.
    #[must_use]
    pub fn get(&self, tier: TierId) -> Option<&Arc<ReadView>> {
        self.0.get(&tier)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether everything is copied.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
