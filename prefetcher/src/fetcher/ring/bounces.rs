//! The bounce buffers of one ring, in three sizes: many small reads are possible and memory is bounded.

use tierfeed_file_io::{
    buffer::ALIGNMENT,
    reads::{Bounce, ReadRing},
};

use super::pending::RUN_MAX;

/// The longest run that fits, in bytes, and the most buffers of this size for a ring: 50 MiB in total.
const SIZES: [(u64, usize); 3] = [(64 << 10, 128), (256 << 10, 32), (RUN_MAX, 32)];

#[derive(Debug, Default)]
pub(super) struct Bounces {
    free: [Vec<Bounce>; SIZES.len()],
    allocated: [usize; SIZES.len()],
}

impl Bounces {
    /// The smallest free buffer for the `len` bytes of the blocks that hold a run. `None` if all are in use,
    /// or if `len` is longer than a run and two blocks.
    pub(super) fn take(&mut self, len: u64, ring: &mut ReadRing) -> Option<Bounce> {
        let sizes = SIZES.iter().zip(self.free.iter_mut().zip(&mut self.allocated));
        for ((run, count), (free, allocated)) in sizes {
            if len > room(*run) {
                continue;
            }
            if let Some(bounce) = free.pop() {
                return Some(bounce);
            }
            if *allocated < *count {
                *allocated += 1;
                return Some(ring.bounce(usize::try_from(room(*run)).unwrap_or(usize::MAX)));
            }
        }
        None
    }

    pub(super) fn give_back(&mut self, bounce: Bounce) {
        let len = bounce.as_slice().len() as u64;
        if let Some(size) = SIZES.iter().position(|(run, _)| room(*run) == len) {
            self.free[size].push(bounce);
        }
    }
}

/// The size of a run with the remainder of the blocks at both ends.
const fn room(run: u64) -> u64 {
    run + 2 * ALIGNMENT as u64
}
