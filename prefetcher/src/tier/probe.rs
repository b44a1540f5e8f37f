//! Finds out how to store to a chunk: through the caches or past them.
//!
//! Which is faster depends on the memory, the processor and its C library, and a wrong guess costs a
//! third of the speed either way. Both are tried on the first chunk of a tier, for about ten
//! milliseconds, turn by turn, in pieces of the length of a sample.

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Checksum, Mapping, Pages, Region, Request, Stores};

use tierfeed_dataset::pace::Pace;

/// About a sample of `ImageNet`.
const PIECE: u64 = 128 << 10;

/// What each turn copies: more than a second-level cache holds.
const SPAN: u64 = 4 << 20;

/// Turns of each way; the first of them warms up.
const TURNS: usize = 4;

/// How to store to `chunk`, whose bytes nobody needs; through the caches where it cannot be told.
pub(crate) fn faster_stores(chunk: &Mapping, pace: &Pace) -> Stores {
    let span = chunk.len().0.min(SPAN);
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
    for turn in 0..TURNS {
        for (time, stores) in best.iter_mut().zip([Stores::Cached, Stores::NonTemporal]) {
            let taken = time_of(&origin, chunk, Bytes(span), stores, pace);
            if turn > 0 {
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
        // A range that leaves the memory copies nothing, and there is none.
        let copied = chunk.copy_from_summed(offset, origin, offset, len, stores, &mut sum);
        debug_assert_eq!(copied, Ok(()), "the span lies in both");
    }
    pace.now().0.saturating_sub(start.0)
}
