//! Where the staging memory of a rank lies: in main memory, or across tiers if that holds no batch.
//!
//! A batch lies in one piece of address space and is handed out in place wherever its pages are. So what
//! main memory cannot hold of the batches that are staged ahead comes from the memory behind it, in the
//! order of the tiers, and their caches shrink by it.

use alloc::{vec, vec::Vec};

use crate::{
    batch::BATCH_ALIGN, budget::Staging, fleet::Infeasible, retention::form::Form, units::Bytes,
};

/// The bytes of each rank that lie in each of `rooms`, which are what the tiers have for it in their order,
/// if main memory, whose budget is `budget`, holds only `main` for each rank.
///
/// # Errors
///
/// If all memory together cannot hold a batch.
pub(super) fn beyond_main_memory(
    staging: Staging,
    budget: Bytes,
    main: Bytes,
    rooms: &[Bytes],
) -> Result<Vec<Bytes>, Infeasible> {
    if main >= staging.batch {
        return Ok(vec![Bytes(0); rooms.len()]);
    }
    let ranks = u64::from(staging.ranks.max(1));
    let wanted = staging.batch.0.saturating_mul(staging.batches.into());
    let mut missing = wanted.saturating_sub(main.0);
    let part = |room: &Bytes| {
        let share = (room.0 / ranks).min(missing);
        let len = share - share % BATCH_ALIGN;
        missing -= len;
        Bytes(len)
    };
    let parts: Vec<Bytes> = rooms.iter().map(part).collect();
    let beyond = parts.iter().map(|part| part.0).sum();
    if main.0 + beyond < staging.batch.0 {
        let (batch, ranks) = (staging.batch, staging.ranks);
        let (beyond, form) = (Bytes(beyond), Form::Stored);
        return Err(Infeasible { budget, beyond, batch, ranks, form });
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn parts_of(main: u64, rooms: &[u64]) -> Result<Vec<u64>, Infeasible> {
        let staging = Staging { ranks: 2, batches: 4, batch: Bytes::mib(12) };
        let rooms: Vec<_> = rooms.iter().map(|room| Bytes::mib(*room)).collect();
        let parts = beyond_main_memory(staging, Bytes::mib(main * 2), Bytes::mib(main), &rooms)?;
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
}
