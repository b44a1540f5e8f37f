//! Decides what each kind of traffic does to a block, and how many bytes that is.
//!
//! Bytes are counted as STREAM counts them: each array read and each array written once.

use std::hint::black_box;

use tierfeed_numa_memory::kernels;

use super::arrays::{BLOCK, Block, PIECE, WORD_BYTES};
use crate::figures::Traffic;

impl Traffic {
    #[must_use]
    pub fn is_non_temporal(self) -> bool {
        matches!(self, Self::WriteNonTemporal | Self::CopyNonTemporal)
    }
}

/// The slices of a block that a kernel reads or writes.
fn slices(traffic: Traffic) -> u64 {
    match traffic {
        Traffic::Read | Traffic::Write | Traffic::WriteNonTemporal => 1,
        Traffic::Copy | Traffic::CopyNonTemporal | Traffic::Scale => 2,
        Traffic::Add | Traffic::Triad => 3,
    }
}

/// Bytes that the program moves on one block.
pub(crate) fn block_bytes(traffic: Traffic) -> u64 {
    slices(traffic) * BLOCK.0
}

fn words(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a block fits in memory") / WORD_BYTES
}

/// Reads a block piece by piece, with `after` behind each.
pub(super) fn read_pieces(block: &Block<'_>, mut after: impl FnMut()) {
    for piece in block.first.chunks(words(PIECE.0)) {
        black_box(kernels::read_sum(piece));
        after();
    }
}

pub(super) fn on_block(traffic: Traffic, block: &mut Block<'_>) {
    const FACTOR: f64 = 0.5;
    let Block { to, first, second } = block;
    match traffic {
        Traffic::Read => {
            black_box(kernels::read_sum(first));
        }
        Traffic::Write => kernels::fill(to, FACTOR.to_bits()),
        Traffic::WriteNonTemporal => kernels::fill_non_temporal(to, FACTOR.to_bits()),
        Traffic::Copy => kernels::copy(to, first),
        Traffic::CopyNonTemporal => kernels::copy_non_temporal(to, first),
        Traffic::Scale => kernels::scale(to, first, FACTOR),
        Traffic::Add => kernels::add(to, first, second),
        Traffic::Triad => kernels::triad(to, first, second, FACTOR),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::plan::{FIRST, REST},
        *,
    };

    #[test]
    fn the_program_moves_what_stream_counts() {
        assert_eq!(block_bytes(Traffic::Read), BLOCK.0);
        assert_eq!(block_bytes(Traffic::WriteNonTemporal), BLOCK.0);
        assert_eq!(block_bytes(Traffic::Copy), 2 * BLOCK.0);
        assert_eq!(block_bytes(Traffic::Triad), 3 * BLOCK.0);
    }

    #[test]
    fn every_kind_writes_the_bytes_that_it_counts() {
        let first = vec![1.0_f64.to_bits(); words(BLOCK.0)];
        for traffic in FIRST.into_iter().chain(REST) {
            let mut to = vec![7_u64; words(BLOCK.0)];
            on_block(traffic, &mut Block { to: &mut to, first: &first, second: &first });
            let written = if traffic == Traffic::Read { 0 } else { to.len() };
            assert_eq!(to.iter().filter(|word| **word != 7).count(), written, "{traffic:?}");
        }
    }

    #[test]
    fn a_block_has_four_pieces() {
        let words = vec![1; words(BLOCK.0)];
        let mut pieces = 0;
        read_pieces(&Block { to: &mut [], first: &words, second: &[] }, || pieces += 1);
        assert_eq!(pieces, 4);
    }
}
