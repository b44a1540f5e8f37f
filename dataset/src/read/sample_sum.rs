//! Sums the bytes of a sample in segments, so that they may come in any order of segments.
//!
//! The sum of a sample of one segment is the xxh3-64 of its bytes; of a longer one it is the xxh3-64 of the
//! sums of its segments, in their order and in little endian. So two parts of a sample that come out of the
//! cold store at the same time are summed on their way, each by whoever brings it.

use tierfeed_numa_memory::Checksum;

/// The length of all segments but the last. Parts of a sample that come on their own begin at multiples of
/// it (`Split` of requests to object stores, `RUN_MAX` of a ring).
pub const SEGMENT: u64 = 1 << 20;

/// How long segment `number` of a sample of `len` bytes is.
pub fn segment_len(len: u64, number: u64) -> u64 {
    len.saturating_sub(number.saturating_mul(SEGMENT)).min(SEGMENT)
}

/// The sum of a sample from those of its segments.
pub fn combined(mut segments: impl ExactSizeIterator<Item = u64>) -> u64 {
    let count = segments.len() as u64;
    if count <= 1 {
        return segments.next().unwrap_or_else(|| Checksum::of_len(0).finish());
    }
    let mut sum = Checksum::of_len(count * 8);
    segments.for_each(|segment| sum.update(&segment.to_le_bytes()));
    sum.finish()
}

/// The sum of a sample whose bytes are seen in order.
#[derive(Debug)]
pub struct SampleSum {
    len: u64,
    /// Of the current segment.
    segment: Checksum,
    left: u64,
    ended: Vec<u64>,
}

impl SampleSum {
    /// The sum of `len` bytes, of which none was seen yet.
    pub fn of_len(len: u64) -> Self {
        let left = segment_len(len, 0);
        Self { len, segment: Checksum::of_len(left), left, ended: Vec::new() }
    }

    /// How many bytes may be taken into [`Self::segment`] next, at most.
    pub fn left_of_segment(&self) -> u64 {
        self.left
    }

    /// What takes the next bytes in. The caller says by [`Self::took`] how many they were.
    pub fn segment(&mut self) -> &mut Checksum {
        &mut self.segment
    }

    /// So many bytes were taken in.
    pub fn took(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            self.ended.push(self.segment.finish());
            self.left = segment_len(self.len, self.ended.len() as u64);
            self.segment = Checksum::of_len(self.left);
        }
    }

    /// The sum, once all bytes were taken in.
    pub fn finish(&self) -> u64 {
        combined(self.ended.iter().copied())
    }
}

/// The checksum of a whole sample.
#[must_use]
pub fn sum_of(bytes: &[u8]) -> u64 {
    use xxhash_rust::xxh3::xxh3_64;

    let len = usize::try_from(SEGMENT).unwrap_or(usize::MAX);
    let segments: Vec<u64> = bytes.chunks(len).map(xxh3_64).collect();
    match segments[..] {
        [] => xxh3_64(&[]),
        [one] => one,
        _ => xxh3_64(&segments.iter().flat_map(|it| it.to_le_bytes()).collect::<Vec<_>>()),
    }
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
