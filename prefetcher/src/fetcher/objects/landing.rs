//! Decides which bytes of several answers for one range go to its place: those that come next, once.
//!
//! A landing has a watermark: all before it is there, nothing behind it. Whoever brings the next bytes
//! moves it, and what somebody brings for the second time is dropped. So of two requests the faster one
//! fills the place at every moment, a repetition goes on where the last one broke off, and no byte of the
//! place is written twice.
//!
//! 1. Each byte of the range is put once, in order.
//! 2. Nothing is put outside of the range.

use std::{io, ops::Range};

/// Puts bytes that lie so far from the beginning of the sample to their place.
pub(crate) type Put<'a> = &'a mut (dyn FnMut(u64, &[u8]) -> io::Result<()> + Send);

/// Where a range of an object goes.
pub(super) struct Landing<'a> {
    /// What lies where in the object.
    range: Range<u64>,
    /// The next byte that is wanted.
    at: u64,
    /// Where the sample begins in the object.
    origin: u64,
    put: Put<'a>,
}

impl<'a> Landing<'a> {
    /// For `range` of an object in which the sample begins at `origin`.
    pub(super) fn new(range: Range<u64>, origin: u64, put: Put<'a>) -> Self {
        Self { at: range.start, range, origin, put }
    }

    /// What is not there yet.
    pub(super) fn rest(&self) -> Range<u64> {
        self.at..self.range.end.max(self.at)
    }

    /// Whether all is there.
    pub(super) fn is_full(&self) -> bool {
        self.rest().is_empty()
    }

    /// Takes what lies from `from` on in the object, and says how many bytes of it were of use.
    ///
    /// # Errors
    ///
    /// If the place does not take it.
    pub(super) fn take(&mut self, from: u64, piece: &[u8]) -> io::Result<u64> {
        let known = usize::try_from(self.at.saturating_sub(from)).unwrap_or(usize::MAX);
        let wanted = usize::try_from(self.rest().end - self.at).unwrap_or(usize::MAX);
        let news = piece.get(known..).filter(|_| from <= self.at).unwrap_or_default();
        let news = &news[..news.len().min(wanted)];
        if news.is_empty() {
            return Ok(0);
        }
        (self.put)(self.at.saturating_sub(self.origin), news)?;
        let len = news.len() as u64;
        self.at += len;
        Ok(len)
    }

    /// Forgets what is there, because what comes may be of another version; returns how much it was.
    pub(super) fn start_over(&mut self) -> u64 {
        let len = self.at - self.range.start;
        self.at = self.range.start;
        len
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ORIGIN: u64 = 1_000;

    proptest! {
        /// Two answers, each in order from somewhere before the watermark, come in any mixture of pieces.
        #[test]
        fn each_byte_is_put_once_and_in_order(
            len in 0_u64..500,
            pieces in prop::collection::vec((any::<bool>(), 0_u64..90), 0..60),
        ) {
            let range = ORIGIN + 100..ORIGIN + 100 + len;
            let object = |at: u64| u8::try_from(at * 31 % 251).unwrap();
            let mut place = Vec::new();
            let mut put = |at: u64, bytes: &[u8]| {
                assert_eq!(at, 100 + place.len() as u64, "invariant 1");
                place.extend_from_slice(bytes);
                Ok(())
            };
            let mut landing = Landing::new(range.clone(), ORIGIN, &mut put);
            let mut at = [range.start; 2];
            let mut used = 0;
            for (is_second, len) in pieces {
                let from = &mut at[usize::from(is_second)];
                let piece: Vec<u8> = (*from..*from + len).map(object).collect();
                used += landing.take(*from, &piece).unwrap();
                *from += len;
            }
            let reached = (at[0].max(at[1])).min(range.end);
            prop_assert_eq!(landing.rest(), reached..range.end, "invariant 2");
            prop_assert_eq!(used, reached - range.start);
            let expected: Vec<u8> = (range.start..reached).map(object).collect();
            prop_assert!(place == expected);
        }
    }

    #[test]
    fn what_lies_beyond_a_gap_is_not_taken() {
        let mut put = |_, _: &[u8]| panic!("nothing is put");
        let mut landing = Landing::new(10..20, 0, &mut put);
        assert_eq!(landing.take(11, b"abc").unwrap(), 0);
        assert_eq!(landing.rest(), 10..20);
    }
}
