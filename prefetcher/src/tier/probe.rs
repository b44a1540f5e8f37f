//! Measures whether cached or non-temporal stores write a chunk faster.
//!
//! The result depends on the memory, the processor and its C library, and the wrong choice costs a third of
//! the speed. Both are tried alternately on the first chunk of a tier, for about ten milliseconds, in pieces
//! of the length of a sample.

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Checksum, Mapping, Pages, Region, Request, Stores};

use tierfeed_dataset::pace::Pace;

/// About the size of a sample of `ImageNet`.
const PIECE: u64 = 128 << 10;

/// Bytes that each round copies: more than a level-2 cache holds.
const SPAN: u64 = 4 << 20;

/// Rounds of each kind of stores; the first one warms up.
const ROUNDS: usize = 4;

/// The faster kind of stores to `chunk`; cached ones if it cannot be measured. Overwrites the first `present`
/// bytes, which must have memory.
pub(crate) fn faster_stores(chunk: &Mapping, present: Bytes, pace: &Pace) -> Stores {
    let span = chunk.len().0.min(present.0).min(SPAN);
    let request = Request {
        len: Bytes(span),
        locality: Locality::Anywhere,
        name: "tierfeed-probe",
        pages: Pages::Small,
    };
    if span < 2 * PIECE {
        return Stores::Cached;
    }
    let Ok(origin) = Region::allocate(&request) else { return Stores::Cached };
    let mut best = [u64::MAX; 2];
    for round in 0..ROUNDS {
        for (time, stores) in best.iter_mut().zip([Stores::Cached, Stores::NonTemporal]) {
            let taken = time_of(&origin, chunk, Bytes(span), stores, pace);
            if round > 0 {
                *time = taken.min(*time);
            }
        }
    }
    if best[1] < best[0] { Stores::NonTemporal } else { Stores::Cached }
}

fn time_of(origin: &Mapping, chunk: &Mapping, span: Bytes, stores: Stores, pace: &Pace) -> u64 {
    let start = pace.now();
    for offset in (0..span.0).step_by(usize::try_from(PIECE).expect("it fits")) {
        let (offset, len) = (Bytes(offset), Bytes(PIECE.min(span.0 - offset)));
        let mut sum = Checksum::of_len(len.0);
        // Only a range outside of the memory fails, and the span lies in both.
        let copied = chunk.copy_from_summed(offset, origin, offset, len, stores, &mut sum);
        debug_assert_eq!(copied, Ok(()), "the span lies in both");
    }
    pace.now().0.saturating_sub(start.0)
}
