//! The three arrays of the bandwidth kernels, cut into blocks that threads take one after the other.
//!
//! Threads share a cursor instead of having parts of their own: with any number of
//! threads, after any pass, the next block is the one that was used least recently. So a sample may be short
//! and yet finds nothing in the caches, and a thread on a slow core takes fewer blocks instead of
//! holding up the others.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Anonymous, Pages, Placement, kernels};

use super::MemoryError;

/// Long against what a thread needs to get going, short against a sample.
pub(crate) const BLOCK: Bytes = Bytes(256 << 10);

/// After this much of a block a thread tells how far it is.
pub(crate) const PIECE: Bytes = Bytes(64 << 10);

pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// The value in the arrays: its bits are not all zero, because some processors treat lines of zeros in a
/// special way, and it stays small under the kernels.
const CONTENT: f64 = 1.0;

/// Three arrays of equal length; a copy needs two.
#[derive(Debug)]
pub(crate) struct Arrays {
    to: Anonymous,
    first: Anonymous,
    second: Option<Anonymous>,
}

/// The same part of each array.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(super) to: &'a mut [u64],
    pub(super) first: &'a [u64],
    pub(super) second: &'a [u64],
}

impl Arrays {
    /// Three arrays of `len`, a multiple of [`BLOCK`], in one place.
    pub(crate) fn allocate(place: Locality, len: Bytes) -> Result<Self, MemoryError> {
        let mut arrays = Self::between(place, place, len)?;
        arrays.second = Some(filled(place, len)?);
        Ok(arrays)
    }

    /// Two arrays of `len`, a multiple of [`BLOCK`]: one to read and one to write.
    pub(crate) fn between(from: Locality, to: Locality, len: Bytes) -> Result<Self, MemoryError> {
        Ok(Self { to: filled(to, len)?, first: filled(from, len)?, second: None })
    }

    /// Bytes in huge pages, and all bytes; `None` if the kernel does not tell.
    pub(super) fn huge_page_bytes(&self) -> Option<(u64, u64)> {
        let all = [Some(&self.to), Some(&self.first), self.second.as_ref()];
        let mut sum = (0, 0);
        for array in all.into_iter().flatten() {
            let len = array.len().0;
            sum = (sum.0 + array.huge_page_bytes()?.0.min(len), sum.1 + len);
        }
        Some(sum)
    }

    pub(crate) fn shared_blocks(&mut self, threads: usize) -> SharedBlocks<'_> {
        let words = usize::try_from(BLOCK.0).expect("a block fits in memory") / WORD_BYTES;
        let second = self.second.as_ref().map_or(&[][..], Anonymous::words);
        let mut second = second.chunks_exact(words);
        let blocks = self
            .to
            .words_mut()
            .chunks_exact_mut(words)
            .zip(self.first.words().chunks_exact(words))
            .map(|(to, first)| {
                Mutex::new(Block { to, first, second: second.next().unwrap_or_default() })
            })
            .collect();
        SharedBlocks {
            blocks,
            cursor: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            arrived: AtomicUsize::new(0),
            progress: (0..threads).map(|_| Count::default()).collect(),
        }
    }
}

fn filled(place: Locality, len: Bytes) -> Result<Anonymous, MemoryError> {
    let mut array = verified(place, len, Pages::Huge)?;
    kernels::fill(array.words_mut(), CONTENT.to_bits());
    Ok(array)
}

/// Memory that is known to lie where it should.
pub(super) fn verified(
    place: Locality,
    len: Bytes,
    pages: Pages,
) -> Result<Anonymous, MemoryError> {
    let array = Anonymous::allocate(len, place, pages)?;
    match array.placement() {
        Placement::Unverified { .. } => Err(MemoryError::Unverified),
        _ => Ok(array),
    }
}

#[derive(Debug)]
pub(crate) struct SharedBlocks<'a> {
    blocks: Vec<Mutex<Block<'a>>>,
    /// The next block. It only grows; the index of the block is its remainder.
    cursor: AtomicUsize,
    /// The pass ends before this block.
    end: AtomicUsize,
    /// Threads that came to the gate since the start.
    arrived: AtomicUsize,
    progress: Vec<Count>,
}

/// The progress of a thread, on a cache line (and its neighbour) of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl SharedBlocks<'_> {
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Opens a pass over the next `count` blocks. No other pass may be open.
    pub(super) fn open(&self, count: usize) {
        // Threads that found no more blocks counted the cursor beyond the end.
        let start = self.end.load(Ordering::Relaxed);
        self.cursor.store(start, Ordering::Relaxed);
        self.end.store(start + count, Ordering::Relaxed);
    }

    /// Works on the blocks of the open pass until none is left.
    pub(super) fn pass(&self, mut work: impl FnMut(&mut Block<'_>)) {
        let end = self.end.load(Ordering::Relaxed);
        loop {
            let index = self.cursor.fetch_add(1, Ordering::Relaxed);
            if index >= end {
                return;
            }
            self.with_block(index, &mut work);
        }
    }

    /// Works on the next block, outside any pass.
    pub(super) fn next(&self, work: impl FnMut(&mut Block<'_>)) {
        self.with_block(self.cursor.fetch_add(1, Ordering::Relaxed), work);
    }

    fn with_block(&self, index: usize, mut work: impl FnMut(&mut Block<'_>)) {
        let block = &self.blocks[index % self.blocks.len()];
        // Two threads meet on a block only if one of them was held up for a whole round.
        work(&mut block.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Threads that came to the gate so far; call it only while none is on its way there.
    pub(super) fn arrivals(&self) -> usize {
        self.arrived.load(Ordering::Acquire)
    }

    /// Waits until `target` threads have come since the start, this one included.
    pub(super) fn meet(&self, target: usize) {
        const SPINS: u32 = 10_000;
        self.arrived.fetch_add(1, Ordering::AcqRel);
        let mut spins = 0;
        while self.arrived.load(Ordering::Acquire) < target {
            spins += 1;
            if spins % SPINS == 0 {
                // The others may need this very CPU to get here.
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    pub(super) fn count_piece(&self, thread: usize) {
        self.progress[thread].0.fetch_add(1, Ordering::Relaxed);
    }

    /// Pieces that all threads have done since the start.
    pub(super) fn pieces(&self) -> usize {
        self.progress.iter().map(|thread| thread.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrays(blocks: u64) -> Arrays {
        Arrays::allocate(Locality::Anywhere, Bytes(blocks * BLOCK.0)).unwrap()
    }

    #[test]
    fn passes_go_on_where_the_last_one_ended() {
        let mut arrays = arrays(5);
        let shared = arrays.shared_blocks(1);
        let starts: Vec<usize> =
            shared.blocks.iter().map(|block| block.lock().unwrap().first.as_ptr().addr()).collect();
        let mut seen = Vec::new();
        for count in [2, 4, 1] {
            shared.open(count);
            shared.pass(|block| seen.push(block.first.as_ptr().addr()));
        }
        let expected = [0, 1, 2, 3, 4, 0, 1].map(|block| starts[block]);
        assert_eq!(seen, expected);
    }

    #[test]
    fn threads_share_a_pass_without_doing_anything_twice() {
        let mut arrays = arrays(64);
        let shared = arrays.shared_blocks(3);
        shared.open(64);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    shared.meet(3);
                    shared.pass(|block| block.to[0] = block.to[0].wrapping_add(1));
                });
            }
        });
        let touched = |block: &Mutex<Block<'_>>| block.lock().unwrap().to[0];
        let once = CONTENT.to_bits() + 1;
        assert!(shared.blocks.iter().all(|block| touched(block) == once));
        assert_eq!(shared.arrivals(), 3);
    }

    #[test]
    fn arrays_hold_no_zeros() {
        let mut arrays = arrays(1);
        let shared = arrays.shared_blocks(1);
        let block = shared.blocks[0].lock().unwrap();
        for array in [&*block.to, block.first, block.second] {
            assert!(array.iter().all(|word| *word == CONTENT.to_bits()));
        }
    }

    #[test]
    fn a_copy_needs_two_arrays() {
        let anywhere = Locality::Anywhere;
        let mut arrays = Arrays::between(anywhere, anywhere, BLOCK).unwrap();
        let shared = arrays.shared_blocks(1);
        let block = shared.blocks[0].lock().unwrap();
        assert!(block.second.is_empty() && block.to.len() == block.first.len());
    }
}
