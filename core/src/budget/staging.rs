//! Divides main memory between staging and the cache.
//!
//! Staging comes first: without room for its batch a trainer stops, while a smaller cache only
//! costs cold reads. A batch lies in one piece of address space and is handed out in place wherever its pages
//! are: if main memory holds no batch, the memory behind it holds the rest, and the caches there shrink by it.
//!
//! Invariant, checked by `mod tests`: staging and cache add up to the budget.

use alloc::{format, string::String, vec, vec::Vec};

use crate::{batch::BATCH_ALIGN, retention::form::Form, units::Bytes};

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

    /// The bytes of each rank that lie in each of `rooms`, which are what the tiers have for it in their order,
    /// if main memory, whose budget is `budget`, holds only `main` for each rank.
    ///
    /// # Errors
    ///
    /// If all memory together cannot hold a batch.
    pub fn beyond_main_memory(
        self,
        budget: Bytes,
        main: Bytes,
        rooms: &[Bytes],
    ) -> Result<Vec<Bytes>, Infeasible> {
        if main >= self.batch {
            return Ok(vec![Bytes(0); rooms.len()]);
        }
        let ranks = u64::from(self.ranks.max(1));
        let wanted = self.batch.0.saturating_mul(self.batches.into());
        let mut missing = wanted.saturating_sub(main.0);
        let part = |room: &Bytes| {
            let share = (room.0 / ranks).min(missing);
            let len = share - share % BATCH_ALIGN;
            missing -= len;
            Bytes(len)
        };
        let parts: Vec<Bytes> = rooms.iter().map(part).collect();
        let beyond = parts.iter().map(|part| part.0).sum();
        if main.0 + beyond < self.batch.0 {
            let (batch, ranks) = (self.batch, self.ranks);
            let (beyond, form) = (Bytes(beyond), Form::Stored);
            return Err(Infeasible { budget, beyond, batch, ranks, form });
        }
        Ok(parts)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "tiers.main-memory: {budget}{} cannot hold a batch of {batch} for each of {ranks} ranks; \
     give it at least {}{}",
    beside(*.beyond, *.ranks),
    Bytes(.batch.0.saturating_sub(.beyond.0).saturating_mul(u64::from(*.ranks))),
    for_form(*.form)
)]
pub struct Infeasible {
    pub budget: Bytes,
    /// The memory of other tiers for each rank.
    pub beyond: Bytes,
    pub batch: Bytes,
    pub ranks: u32,
    pub form: Form,
}

/// The reason that a batch takes more room than its stored samples and rows, as the end of a sentence.
fn for_form(form: Form) -> &'static str {
    match form {
        Form::Stored => "",
        Form::Prepared => {
            ", or take transform.cache: stored: tiers hold prepared samples, as the job file says or the first \
             node of the job chose, and a batch has room for these too"
        }
    }
}

fn beside(beyond: Bytes, ranks: u32) -> String {
    match beyond.0.saturating_mul(ranks.into()) {
        0 => String::new(),
        all => format!(" and {} of other memory tiers", Bytes(all)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

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

    fn parts_of(main: u64, rooms: &[u64]) -> Result<Vec<u64>, Infeasible> {
        let staging = Staging { ranks: 2, batches: 4, batch: Bytes::mib(12) };
        let rooms: Vec<_> = rooms.iter().map(|room| Bytes::mib(*room)).collect();
        let parts = staging.beyond_main_memory(Bytes::mib(main * 2), Bytes::mib(main), &rooms)?;
        Ok(parts.iter().map(|part| part.0 >> 20).collect())
    }

    #[test]
    fn staging_that_holds_a_batch_stays_in_main_memory() {
        assert_eq!(parts_of(12, &[100]).unwrap(), [0]);
    }

    #[test]
    fn a_batch_that_main_memory_cannot_hold_extends_into_the_memory_behind_it() {
        assert_eq!(parts_of(4, &[0, 10, 100]).unwrap(), [0, 5, 39], "four batches a rank");
    }

    #[test]
    fn all_memory_together_that_holds_no_batch_is_refused_with_what_would_be_enough() {
        assert_eq!(
            parts_of(4, &[8]).unwrap_err().to_string(),
            "tiers.main-memory: 8 MiB and 8 MiB of other memory tiers cannot hold a batch of 12 MiB \
             for each of 2 ranks; give it at least 16 MiB"
        );
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
