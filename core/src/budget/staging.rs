//! Divides main memory between staging and the cache.
//!
//! Staging comes first: without room for its batch a trainer stops, while a smaller cache only
//! costs cold reads.
//!
//! Invariant, checked by `mod tests`: staging and cache add up to the budget.

use crate::{batch::BATCH_ALIGN, units::Bytes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Staging {
    pub ranks: u32,
    /// Batches staged ahead for each trainer.
    pub batches: u32,
    /// The length of a large batch, as it lies in staging memory.
    pub batch: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MainMemory {
    /// For each local rank, a multiple of [`BATCH_ALIGN`].
    pub arena: Bytes,
    pub cache: Bytes,
}

impl Staging {
    /// Gives every rank the memory that it needs, or an equal share of `budget` if that is less,
    /// and the rest to the cache.
    #[must_use]
    pub fn within(self, budget: Bytes) -> MainMemory {
        let ranks = u64::from(self.ranks.max(1));
        let wanted = self.batch.0.saturating_mul(u64::from(self.batches));
        let share = (budget.0 / ranks).min(wanted.saturating_add(BATCH_ALIGN - 1));
        let arena = share - share % BATCH_ALIGN;
        MainMemory { arena: Bytes(arena), cache: Bytes(budget.0 - arena * ranks) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn staging_comes_before_the_cache_and_is_capped_by_the_budget() {
        let staging = Staging { ranks: 2, batches: 4, batch: Bytes::mib(2) };
        let roomy = MainMemory { arena: Bytes::mib(8), cache: Bytes::mib(84) };
        assert_eq!(staging.within(Bytes::mib(100)), roomy);
        let tight = MainMemory { arena: Bytes::mib(3), cache: Bytes(0) };
        assert_eq!(staging.within(Bytes::mib(6)), tight);
    }

    proptest! {
        #[test]
        fn staging_and_cache_are_the_budget(
            budget in 0_u64..1 << 40,
            ranks in 1_u32..64,
            batches in 0_u32..64,
            batch in 0_u64..1 << 40,
        ) {
            let split = Staging { ranks, batches, batch: Bytes(batch) }.within(Bytes(budget));
            prop_assert_eq!(split.arena.0 * u64::from(ranks) + split.cache.0, budget);
            prop_assert_eq!(split.arena.0 % BATCH_ALIGN, 0);
        }
    }
}
