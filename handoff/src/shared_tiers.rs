//! The tiers that a trainer maps to read samples in place, without a copy in the batch.

use std::{collections::BTreeMap, os::fd::OwnedFd, sync::Arc};

use tierfeed_core::{id::TierId, retention::in_place::SHARED_TIERS_MAX, units::Bytes};
use tierfeed_numa_memory::{MapError, ReadView};

use super::message::SharedTierBytes;

/// The tiers that a client mapped. They stay mapped while this value lives, even if the agent ends.
#[derive(Debug, Clone, Default)]
pub struct SharedTiers(Arc<BTreeMap<TierId, Arc<ReadView>>>);

impl SharedTiers {
    /// Maps the descriptors that an agent sent; `None` if they do not match what it announced.
    pub(super) fn map(
        shared_tiers: &[SharedTierBytes],
        descriptors: Vec<OwnedFd>,
    ) -> Option<Result<Self, MapError>> {
        if shared_tiers.len() != descriptors.len() || shared_tiers.len() > SHARED_TIERS_MAX {
            return None;
        }
        let mut mapped = BTreeMap::new();
        for (SharedTierBytes { tier, bytes }, descriptor) in shared_tiers.iter().zip(descriptors) {
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

    #[must_use]
    pub fn get(&self, tier: TierId) -> Option<&Arc<ReadView>> {
        self.0.get(&tier)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the agent shares no tier, so that every sample is copied into its batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
