//! The bounce buffers of one ring: three sizes, so that small reads can be many and memory stays bounded.

use tierfeed_file_io::{
    buffer::ALIGNMENT,
    reads::{Bounce, ReadRing},
};

use super::pending::RUN_MAX;

/// How long a run is that fits, and how many buffers of this size a ring makes at most: 50 MiB in all.
const SIZES: [(u64, usize); 3] = [(64 << 10, 128), (256 << 10, 32), (RUN_MAX, 32)];

/// Buffers that are not in use.
#[derive(Debug, Default)]
pub(super) struct Bounces {
    free: [Vec<Bounce>; SIZES.len()],
    made: [usize; SIZES.len()],
}

impl Bounces {
    /// A buffer for the blocks that hold a run, `len` bytes in all: the smallest that is free. `None` if
    /// all are in use, and for what is longer than a run and two blocks.
    pub(super) fn take(&mut self, len: u64, ring: &mut ReadRing) -> Option<Bounce> {
        let sizes = SIZES.iter().zip(self.free.iter_mut().zip(&mut self.made));
        for ((run, count), (free, made)) in sizes {
            if len > room(*run) {
                continue;
            }
            if let Some(bounce) = free.pop() {
                return Some(bounce);
            }
            if *made < *count {
                *made += 1;
                return Some(ring.bounce(usize::try_from(room(*run)).unwrap_or(usize::MAX)));
            }
        }
        None
    }

    /// Takes a buffer back.
    pub(super) fn give_back(&mut self, bounce: Bounce) {
        let len = bounce.as_slice().len() as u64;
        if let Some(size) = SIZES.iter().position(|(run, _)| room(*run) == len) {
            self.free[size].push(bounce);
        }
    }
}

/// A run, and the rest of the blocks at both of its ends.
const fn room(run: u64) -> u64 {
    run + 2 * ALIGNMENT as u64
}
