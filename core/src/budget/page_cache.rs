//! The part of the free memory that may serve as page cache beyond the budgets of a job.
//!
//! It is the free memory less the reserve and the bytes that tiers and staging are still going to take. The
//! kernel reclaims page cache before it refuses memory to any program, so this costs nothing. While memory
//! is short, though, each page that a read brings in costs a reclaim elsewhere, so the limit is 0 and reads
//! bypass the page cache.

use super::{Free, Percent, holdings::is_waiting_for_memory};
use crate::units::Bytes;

/// The bytes that page cache may take in a pool. `free` counts page cache as free, `to_come` is what the job
/// is still going to take, and `waiting` is the share of the time in which tasks waited for memory.
#[must_use]
pub fn page_cache_limit(free: Free, to_come: Bytes, waiting: Option<Percent>) -> Bytes {
    if is_waiting_for_memory(free, waiting) {
        return Bytes(0);
    }
    Bytes(free.bytes.0.saturating_sub(free.kept.0).saturating_sub(to_come.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(free: u64, to_come: u64, waiting: u8) -> u64 {
        let free = Free { bytes: Bytes(free), kept: Bytes(100) };
        page_cache_limit(free, Bytes(to_come), Some(Percent(waiting))).0
    }

    #[test]
    fn what_the_job_is_going_to_take_and_the_reserve_are_left_free() {
        assert_eq!(limit(1000, 300, 0), 600);
        assert_eq!(limit(350, 300, 0), 0);
        assert_eq!(limit(50, 0, 0), 0, "less is free than must stay free");
    }

    #[test]
    fn while_tasks_wait_for_memory_nothing_is_left_there() {
        assert_eq!(limit(300, 0, 50), 0);
        assert_eq!(limit(300, 0, 10), 200, "a little waiting is usual");
        assert_eq!(limit(1000, 0, 50), 900, "they wait for a limit of their own");
    }
}
