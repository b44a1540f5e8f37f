//! Reads and writes in a fixed ratio, line by line: traffic as programs cause it.

use std::{hint::black_box, sync::atomic};

use super::{LINE_WORDS, stream::widest};

/// How many lines are read for each line that the program writes.
///
/// The bus sees one read more for each written line, because an ordinary store fetches its line first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mix {
    /// One line is read for each line written.
    OneToOne,
    /// Two lines are read for each line written.
    TwoToOne,
    /// Three lines are read for each line written.
    ThreeToOne,
}

impl Mix {
    /// All ratios, by rising share of reads.
    pub const ALL: [Self; 3] = [Self::OneToOne, Self::TwoToOne, Self::ThreeToOne];

    /// Number of lines read for each line written.
    #[must_use]
    pub const fn reads_per_write(self) -> usize {
        match self {
            Self::OneToOne => 1,
            Self::TwoToOne => 2,
            Self::ThreeToOne => 3,
        }
    }

    /// The longest streams in this ratio that buffers of `reads` and `writes` words hold.
    #[must_use]
    pub const fn longest(self, reads: usize, writes: usize) -> (usize, usize) {
        let ratio = self.reads_per_write();
        let (readable, writable) = (reads / LINE_WORDS / ratio, writes / LINE_WORDS);
        let lines = if readable < writable { readable } else { writable };
        (lines * ratio * LINE_WORDS, lines * LINE_WORDS)
    }
}

/// Reads lines of `reads` and writes lines of `writes` in the given ratio, and returns the wrapping sum
/// of all words read.
///
/// Each written line holds, column by column, the sums of all lines read before it, so that no
/// write can be executed before its reads. It moves exactly the bytes of both slices.
///
/// # Panics
///
/// If the lengths are not whole lines in the ratio: see [`Mix::longest`].
pub fn mix(reads: &[u64], writes: &mut [u64], mix: Mix) -> u64 {
    let fits = mix.longest(reads.len(), writes.len());
    assert!(fits == (reads.len(), writes.len()), "the streams are not in the ratio {mix:?}");
    let sum = mixed(reads, writes, mix);
    black_box(writes);
    sum
}

fn mixed(reads: &[u64], writes: &mut [u64], mix: Mix) -> u64 {
    match mix {
        Mix::OneToOne => widest!(mix_of::<1>(reads: &[u64], writes: &mut [u64]) -> u64),
        Mix::TwoToOne => widest!(mix_of::<2>(reads: &[u64], writes: &mut [u64]) -> u64),
        Mix::ThreeToOne => widest!(mix_of::<3>(reads: &[u64], writes: &mut [u64]) -> u64),
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a call would leave the wide caller for baseline code")]
fn mix_of<const READS: usize>(reads: &[u64], writes: &mut [u64]) -> u64 {
    let (reads, _) = reads.as_chunks::<LINE_WORDS>();
    let (reads, _) = reads.as_chunks::<READS>();
    let (writes, _) = writes.as_chunks_mut::<LINE_WORDS>();
    let mut sums = [0_u64; LINE_WORDS];
    for (lines, to) in reads.iter().zip(writes) {
        for line in lines {
            for (sum, word) in sums.iter_mut().zip(line) {
                *sum = sum.wrapping_add(*word);
            }
        }
        *to = sums;
        // Keeps the order of the lines and prevents replacement of the loop; it emits no
        // instruction.
        atomic::compiler_fence(atomic::Ordering::SeqCst);
    }
    sums.iter().fold(0, |total, word| total.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn expected_writes(reads: &[u64], ratio: usize) -> Vec<u64> {
        let mut sums = [0_u64; LINE_WORDS];
        let mut writes = Vec::new();
        for lines in reads.chunks(ratio * LINE_WORDS) {
            for (index, word) in lines.iter().enumerate() {
                sums[index % LINE_WORDS] = sums[index % LINE_WORDS].wrapping_add(*word);
            }
            writes.extend(sums);
        }
        writes
    }

    proptest! {
        /// With random words it is almost impossible that another set of lines has the same sums.
        #[test]
        fn every_line_is_read_once_before_the_line_written_behind_it(
            lines in 0..40_usize,
            words in proptest::collection::vec(any::<u64>(), 3 * 40 * LINE_WORDS),
        ) {
            for ratio in Mix::ALL {
                let reads = &words[..lines * ratio.reads_per_write() * LINE_WORDS];
                let mut writes = vec![7; lines * LINE_WORDS];
                let sum = mix(reads, &mut writes, ratio);
                prop_assert_eq!(sum, reads.iter().fold(0_u64, |a, b| a.wrapping_add(*b)));
                prop_assert_eq!(&writes, &expected_writes(reads, ratio.reads_per_write()));
            }
        }

        #[test]
        fn the_longest_streams_fit_and_leave_no_line_that_could_be_used(
            reads in 0..2000_usize, writes in 0..2000_usize,
        ) {
            for ratio in Mix::ALL {
                let (r, w) = ratio.longest(reads, writes);
                prop_assert!(r <= reads && w <= writes);
                prop_assert_eq!(r, w * ratio.reads_per_write());
                let step = ratio.reads_per_write() * LINE_WORDS;
                prop_assert!(reads - r < step || writes - w < LINE_WORDS);
                prop_assert!(w.is_multiple_of(LINE_WORDS));
            }
        }
    }

    #[test]
    fn streams_out_of_ratio_are_refused() {
        for (reads, writes) in [(16, 16), (24, 8), (9, 8), (8, 0)] {
            let run = || mix(&vec![0; reads], &mut vec![0; writes], Mix::TwoToOne);
            assert!(std::panic::catch_unwind(run).is_err(), "{reads} to {writes}");
        }
    }
}
