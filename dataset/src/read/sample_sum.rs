//! Computes the checksum of a sample in segments, so that segments may come in any order.
//!
//! The sum of a sample of one segment is the xxh3-64 of its bytes; of a longer one it is the
//! xxh3-64 of the sums of its segments, in their order and in little endian. So two parts of a
//! sample that are read concurrently are summed by their own readers.

use tierfeed_numa_memory::Checksum;
use xxhash_rust::xxh3::xxh3_64;

/// The length of all segments but the last. Parts of a sample that are read separately start at
/// multiples of it (`Split` of requests to object stores, `RUN_MAX` of a ring).
pub const SEGMENT: u64 = 1 << 20;

pub fn segment_len(len: u64, number: u64) -> u64 {
    len.saturating_sub(number.saturating_mul(SEGMENT)).min(SEGMENT)
}

pub fn combined(mut segments: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = segments.len() as u64;
    if count <= 1 {
        return segments.next().unwrap_or_else(|| Checksum::of_len(0).finish());
    }
    let mut sum = Checksum::of_len(count * 8);
    segments.for_each(|segment| sum.update(&segment.to_le_bytes()));
    sum.finish()
}

/// The sum of a sample whose bytes come in order.
#[derive(Debug)]
pub struct SampleSum {
    len: u64,
    segment: Checksum,
    left: u64,
    ended: Vec<u64>,
}

impl SampleSum {
    pub fn of_len(len: u64) -> Self {
        let left = segment_len(len, 0);
        Self { len, segment: Checksum::of_len(left), left, ended: Vec::new() }
    }

    /// Largest number of bytes that may be added to [`Self::segment`] next.
    pub fn left_of_segment(&self) -> u64 {
        self.left
    }

    /// The checksum to which the caller adds the next bytes; it reports their number by
    /// [`Self::took`].
    pub fn segment(&mut self) -> &mut Checksum {
        &mut self.segment
    }

    pub fn took(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            self.ended.push(self.segment.finish());
            self.left = segment_len(self.len, self.ended.len() as u64);
            self.segment = Checksum::of_len(self.left);
        }
    }

    pub fn finish(&self) -> u64 {
        combined(self.ended.iter().copied())
    }
}

#[must_use]
pub fn sum_of(bytes: &[u8]) -> u64 {
    let len = usize::try_from(SEGMENT).unwrap_or(usize::MAX);
    combined(bytes.chunks(len).map(xxh3_64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_pieces_is_that_of_the_whole() {
        let segment = usize::try_from(SEGMENT).expect("1 MiB fits in memory");
        #[expect(clippy::cast_possible_truncation, reason = "less than 251")]
        let bytes: Vec<u8> = (0..2 * segment + 5).map(|at| (at * 7 % 251) as u8).collect();
        for len in [0, 1, 300, segment - 1, segment, segment + 1, 2 * segment, bytes.len()] {
            let mut sum = SampleSum::of_len(len as u64);
            let mut done = 0;
            while done < len {
                #[expect(clippy::cast_possible_truncation, reason = "at most a segment")]
                let piece = (len - done).min(700_001).min(sum.left_of_segment() as usize);
                sum.segment().update(&bytes[done..done + piece]);
                sum.took(piece as u64);
                done += piece;
            }
            assert_eq!(sum.finish(), sum_of(&bytes[..len]), "{len} bytes");
        }
    }
}
