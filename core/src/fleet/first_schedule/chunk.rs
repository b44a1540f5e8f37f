//! Chooses the unit in which the tiers of a job grow and shrink, if the job file does not name it.
//!
//! The paper's unit, 512 MiB, is too large for small tiers: a tier of less than a chunk keeps nothing. So
//! the unit is at most a sixteenth of the smallest tier. It is a power of two, which suits huge pages and
//! direct writes.
//!
//! Bounds:
//!
//! 1. From [`LEAST`] to [`MOST`].
//! 2. All tiers together begin with at most [`COUNT_MAX`] chunks if [`MOST`] allows that, because each is
//!    a mapping or an open file.
//! 3. A large batch of samples fits in the pieces that one sample may have, unless the smallest tier would
//!    hold no chunk then.
//! 4. A chunk holds [`SAMPLES_MIN`] samples, if the smallest tier has [`LARGE_PARTS`] such chunks: a sample
//!    that lies in several pieces is copied piece by piece, and cannot be read in place.

use alloc::vec::Vec;

use crate::{space::PIECES_MAX, units::Bytes};

/// The chunk size of DeepMemoryDL.
const MOST: Bytes = Bytes::mib(512);

/// The smallest chunk that a job file may ask for.
const LEAST: Bytes = Bytes(64 << 10);

/// The smallest tier has at least this many chunks, if the other bounds allow it.
const PARTS: u64 = 16;

/// Samples that a chunk holds, if the smallest tier has [`LARGE_PARTS`] chunks then.
const SAMPLES_MIN: u64 = 4;
const LARGE_PARTS: u64 = 8;

/// The most chunks of all tiers together at the start.
const COUNT_MAX: u64 = 4096;

/// The chunk size for caches of these sizes and large batches of `batch` bytes in so many samples.
pub(super) fn fitting(caches: impl Iterator<Item = Bytes>, batch: Bytes, samples: u32) -> Bytes {
    let caches: Vec<u64> = caches.map(|cache| cache.0).filter(|cache| *cache > 0).collect();
    let Some(smallest) = caches.iter().copied().min() else { return LEAST };
    let all = caches.iter().fold(0_u64, |sum, cache| sum.saturating_add(*cache));
    let by_count = (all / COUNT_MAX).max(1).next_power_of_two();
    let by_pieces = (batch.0 / PIECES_MAX as u64).max(1).next_power_of_two();
    let by_pieces = by_pieces.min(power_of_two_within(smallest));
    let sample = batch.0 / u64::from(samples.max(1));
    let by_samples = sample.saturating_mul(SAMPLES_MIN).checked_next_power_of_two();
    let by_samples =
        by_samples.unwrap_or(u64::MAX).min(power_of_two_within(smallest / LARGE_PARTS));
    let wanted = power_of_two_within(smallest / PARTS).max(by_count).max(by_pieces).max(by_samples);
    Bytes(wanted.clamp(LEAST.0, MOST.0))
}

fn power_of_two_within(bytes: u64) -> u64 {
    bytes.checked_ilog2().map_or(1, |power| 1 << power)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Bytes = Bytes::mib(20);

    #[track_caller]
    fn check(caches: &[Bytes], expected: Bytes) {
        assert_eq!(fitting(caches.iter().copied(), BATCH, 256), expected, "{caches:?}");
    }

    #[test]
    fn the_smallest_tier_has_sixteen_chunks() {
        check(&[Bytes::mib(16 * 512)], Bytes::mib(512));
        check(&[Bytes::mib(16 * 511)], Bytes::mib(256));
        check(&[Bytes::mib(129)], Bytes::mib(8));
        check(&[Bytes::mib(1 << 19), Bytes::mib(129)], Bytes::mib(256));
        check(&[Bytes(0), Bytes::mib(129)], Bytes::mib(8));
    }

    #[test]
    fn bounds_hold_for_tiers_of_any_size() {
        check(&[], LEAST);
        check(&[Bytes(1)], LEAST);
        check(&[Bytes(u64::MAX), Bytes(u64::MAX)], MOST);
    }

    #[test]
    fn large_samples_are_not_cut_into_too_many_pieces() {
        let chunk = |batch| fitting([Bytes::mib(160)].into_iter(), batch, 1 << 20);
        assert_eq!(chunk(Bytes::mib(8)), Bytes::mib(8));
        assert_eq!(chunk(Bytes::mib(64 * 32)), Bytes::mib(32));
        assert_eq!(chunk(Bytes::mib(1 << 20)), Bytes::mib(128), "the tier holds one");
    }

    #[test]
    fn a_chunk_holds_some_samples_unless_the_tier_is_too_small_for_that() {
        let chunk = |samples| fitting([Bytes::mib(160)].into_iter(), Bytes::mib(8), samples);
        assert_eq!(chunk(8), Bytes::mib(8), "1 MiB each");
        assert_eq!(chunk(2), Bytes::mib(16), "4 MiB each");
        assert_eq!(fitting([Bytes::mib(16)].into_iter(), Bytes::mib(8), 2), Bytes::mib(2));
    }
}
