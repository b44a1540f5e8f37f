//! Gives a ring its words from a mapping that two processes share.

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::Mapping;

use super::{ring::Words, words::AtomicU64};

impl Words for Mapping {
    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.atomic_u64(Bytes(offset)).ok()
    }
}
