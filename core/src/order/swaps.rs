//! Applies the swaps of a Fisher-Yates shuffle to an array that is larger than the caches.
//!
//! In a plain loop each swap waits for memory: 100 to 200 ns a sample. But the places to swap
//! depend on the random words alone, never on the array. So a block of swaps is drawn first, then
//! all far places of the block are read, independently of each other, and only then swapped, in the
//! caches. The order of the swaps, and so the result, is that of the plain loop.

use core::hint::black_box;

/// Enough reads to keep every outstanding miss of a CPU core busy, few enough that the lines are
/// still in the first-level cache when they are swapped: 256 lines are 16 KiB.
const BLOCK: usize = 256;

/// Swaps `items[near]` and `items[far]` for each pair in turn. Only `far` is read ahead: `near`
/// should advance sequentially.
///
/// # Panics
///
/// If a place is outside `items`.
#[inline]
pub(super) fn apply(items: &mut [u32], mut swaps: impl Iterator<Item = (u32, u32)>) {
    let mut block = [(0, 0); BLOCK];
    loop {
        let mut len = 0;
        // `block` stands first in the zip and ends the round: the other way round would draw one
        // swap too many and lose it.
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
