//! Applies the swaps of a Fisher-Yates shuffle to an array that is larger than the caches.
//!
//! One after another, each swap waits for memory: 100 to 200 ns a sample. But which places are swapped
//! depends on the random words alone, never on the array. So a block of swaps is drawn first, then all
//! its far places are read once, with nothing waiting for any of them, and only then swapped, in the
//! caches. The order of the swaps, and so the result, is that of the plain loop.

use core::hint::black_box;

/// Enough reads to keep every outstanding miss of a core busy, few enough that what they fetched is
/// still in the first-level cache when it is swapped: 256 lines are 16 KiB.
const BLOCK: usize = 256;

/// Swaps `items[near]` and `items[far]` for each pair in turn. Only `far` is read ahead: `near` should
/// walk through the array.
///
/// # Panics
///
/// If a place is outside `items`.
#[inline]
pub(super) fn apply(items: &mut [u32], mut swaps: impl Iterator<Item = (u32, u32)>) {
    let mut block = [(0, 0); BLOCK];
    loop {
        let mut len = 0;
        // The block comes first: it must end the round, or a swap would be drawn and lost.
        for (slot, swap) in block.iter_mut().zip(&mut swaps) {
            *slot = swap;
            len += 1;
        }
        let drawn = &block[..len];
        black_box(drawn.iter().fold(0, |sum, (_, far)| sum ^ items[*far as usize]));
        for (near, far) in drawn {
            items.swap(*near as usize, *far as usize);
        }
        if len < BLOCK {
            return;
        }
    }
}
