//! Decides what each kind of traffic does to a block, and how many bytes that is.
//!
//! Bytes are counted as STREAM counts them: each array read and each array written once.

use std::hint::black_box;

use tierfeed_numa_memory::kernels::{self, Mix};

use super::arrays::{BLOCK, Block, PIECE, WORD_BYTES};
use crate::figures::Traffic;

impl Traffic {
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::Write,
        Self::WriteNonTemporal,
        Self::Copy,
        Self::CopyNonTemporal,
        Self::Scale,
        Self::Add,
        Self::Triad,
        Self::Mix3To1,
        Self::Mix2To1,
        Self::Mix1To1,
    ];

    #[must_use]
    pub fn is_non_temporal(self) -> bool {
        matches!(self, Self::WriteNonTemporal | Self::CopyNonTemporal)
    }

    fn mix(self) -> Option<Mix> {
        match self {
            Self::Mix3To1 => Some(Mix::ThreeToOne),
            Self::Mix2To1 => Some(Mix::TwoToOne),
            Self::Mix1To1 => Some(Mix::OneToOne),
            _ => None,
        }
    }
}

/// Words that a kernel reads and writes, for each slice of `words` words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moved {
    read: usize,
    written: usize,
}

fn moved(traffic: Traffic, words: usize) -> Moved {
    let (read, written) = match traffic {
        Traffic::Read => (words, 0),
        Traffic::Write | Traffic::WriteNonTemporal => (0, words),
        Traffic::Copy | Traffic::CopyNonTemporal | Traffic::Scale => (words, words),
        Traffic::Add | Traffic::Triad => (2 * words, words),
        Traffic::Mix3To1 | Traffic::Mix2To1 | Traffic::Mix1To1 => {
            let mix = traffic.mix().expect("these are the mixes");
            mix.longest(words, words)
        }
    };
    Moved { read, written }
}

/// Bytes that the program moves on one block.
pub(crate) fn block_bytes(traffic: Traffic) -> u64 {
    bytes(moved(traffic, words(BLOCK.0)))
}

pub(crate) fn piece_bytes(traffic: Traffic) -> u64 {
    bytes(moved(traffic, words(PIECE.0)))
}

fn bytes(moved: Moved) -> u64 {
    ((moved.read + moved.written) * WORD_BYTES) as u64
}

fn words(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a block fits in memory") / WORD_BYTES
}

pub(super) fn on_block(traffic: Traffic, block: &mut Block<'_>) {
    run(traffic, block.to, block.first, block.second);
}

/// Works on a block piece by piece, with `after` behind each.
pub(super) fn on_pieces(traffic: Traffic, block: &mut Block<'_>, mut after: impl FnMut()) {
    let len = words(PIECE.0);
    let mut second = block.second.chunks(len);
    for (to, first) in block.to.chunks_mut(len).zip(block.first.chunks(len)) {
        run(traffic, to, first, second.next().unwrap_or_default());
        after();
    }
}

/// `second` may be empty where two arrays are enough.
fn run(traffic: Traffic, to: &mut [u64], first: &[u64], second: &[u64]) {
    const FACTOR: f64 = 0.5;
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
        Traffic::Mix3To1 | Traffic::Mix2To1 | Traffic::Mix1To1 => {
            let Moved { read, written } = moved(traffic, to.len());
            let mix = traffic.mix().expect("these are the mixes");
            black_box(kernels::mix(&first[..read], &mut to[..written], mix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_moves_what_stream_counts() {
        assert_eq!(block_bytes(Traffic::Read), BLOCK.0);
        assert_eq!(block_bytes(Traffic::WriteNonTemporal), BLOCK.0);
        assert_eq!(block_bytes(Traffic::Copy), 2 * BLOCK.0);
        assert_eq!(block_bytes(Traffic::Triad), 3 * BLOCK.0);
        assert_eq!(piece_bytes(Traffic::Add), 3 * PIECE.0);
    }

    #[test]
    fn every_kind_writes_the_bytes_that_it_counts() {
        let first = vec![1.0_f64.to_bits(); words(BLOCK.0)];
        let changed = |work: &mut dyn FnMut(&mut Block<'_>)| {
            let mut to = vec![7_u64; words(BLOCK.0)];
            work(&mut Block { to: &mut to, first: &first, second: &first });
            to.iter().filter(|word| **word != 7).count()
        };
        for traffic in Traffic::ALL {
            let by_block = changed(&mut |block| on_block(traffic, block));
            assert_eq!(by_block, moved(traffic, words(BLOCK.0)).written, "{traffic:?}");
            let mut pieces = 0;
            let by_piece = changed(&mut |block| on_pieces(traffic, block, || pieces += 1));
            assert_eq!(by_piece, 4 * moved(traffic, words(PIECE.0)).written, "{traffic:?}");
            assert_eq!(pieces, 4);
        }
    }
}
