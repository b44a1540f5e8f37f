//! Writes a range from the answers of several requests: each byte once, in order.
//!
//! A writer has a watermark: all bytes before it are written, none behind it. The request that delivers the
//! next bytes advances it; bytes before it are dropped. So of two requests the faster one fills the target at
//! every moment, a retry continues where the last request failed, and no byte is written twice.
//!
//! 1. Each byte of the range is written once, in order.
//! 2. No byte outside of the range is written.

use std::{io, ops::Range};

/// Writes bytes at an offset from the start of the sample.
pub(crate) type Put<'a> = &'a mut (dyn FnMut(u64, &[u8]) -> io::Result<()> + Send);

pub(super) struct RangeWriter<'a> {
    /// The range in the object.
    range: Range<u64>,
    /// The watermark: the next byte that is needed.
    at: u64,
    /// The offset of the sample in the object.
    sample_start: u64,
    put: Put<'a>,
}

impl<'a> RangeWriter<'a> {
    pub(super) fn new(range: Range<u64>, sample_start: u64, put: Put<'a>) -> Self {
        Self { at: range.start, range, sample_start, put }
    }

    pub(super) fn remaining(&self) -> Range<u64> {
        self.at..self.range.end.max(self.at)
    }

    pub(super) fn is_full(&self) -> bool {
        self.remaining().is_empty()
    }

    /// Takes bytes at the offset `from` of the object; returns how many of them were written.
    ///
    /// # Errors
    ///
    /// If the target refuses them.
    pub(super) fn write(&mut self, from: u64, piece: &[u8]) -> io::Result<u64> {
        let written = usize::try_from(self.at.saturating_sub(from)).unwrap_or(usize::MAX);
        let wanted = usize::try_from(self.remaining().end - self.at).unwrap_or(usize::MAX);
        let fresh = piece.get(written..).filter(|_| from <= self.at).unwrap_or_default();
        let fresh = &fresh[..fresh.len().min(wanted)];
        if fresh.is_empty() {
            return Ok(0);
        }
        (self.put)(self.at.saturating_sub(self.sample_start), fresh)?;
        let len = fresh.len() as u64;
        self.at += len;
        Ok(len)
    }

    /// Starts again, because the next bytes may be of another version; returns how many bytes are discarded.
    pub(super) fn restart(&mut self) -> u64 {
        let len = self.at - self.range.start;
        self.at = self.range.start;
        len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLE_START: u64 = 1_000;

    proptest! {
        /// Two answers, each in order from a point before the watermark, arrive interleaved in any way.
        #[test]
        fn each_byte_is_put_once_and_in_order(
            len in 0_u64..500,
            pieces in prop::collection::vec((any::<bool>(), 0_u64..90), 0..60),
        ) {
            let range = SAMPLE_START + 100..SAMPLE_START + 100 + len;
            let object = |at: u64| u8::try_from(at * 31 % 251).unwrap();
            let mut place = Vec::new();
            let mut put = |at: u64, bytes: &[u8]| {
                assert_eq!(at, 100 + place.len() as u64, "invariant 1");
                place.extend_from_slice(bytes);
                Ok(())
            };
            let mut writer = RangeWriter::new(range.clone(), SAMPLE_START, &mut put);
            let mut at = [range.start; 2];
            let mut used = 0;
            for (is_second, len) in pieces {
                let from = &mut at[usize::from(is_second)];
                let piece: Vec<u8> = (*from..*from + len).map(object).collect();
                used += writer.write(*from, &piece).unwrap();
                *from += len;
            }
            let reached = (at[0].max(at[1])).min(range.end);
            prop_assert_eq!(writer.remaining(), reached..range.end, "invariant 2");
            prop_assert_eq!(used, reached - range.start);
            let expected: Vec<u8> = (range.start..reached).map(object).collect();
            prop_assert!(place == expected);
        }
    }

    #[test]
    fn bytes_beyond_a_gap_are_not_taken() {
        let mut put = |_, _: &[u8]| panic!("nothing is put");
        let mut writer = RangeWriter::new(10..20, 0, &mut put);
        assert_eq!(writer.write(11, b"abc").unwrap(), 0);
        assert_eq!(writer.remaining(), 10..20);
    }
}
