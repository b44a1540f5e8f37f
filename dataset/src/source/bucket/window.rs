//! Decides which part of an object to fetch for a small read, and keeps the last parts.
//!
//! Parsers read a few bytes at a time: headers at regular distances, or a footer and then the parts
//! that it refers to. A request costs as much as half a megabyte, so the fetched parts are larger
//! than the reads, and grow as long as one read follows another.
//!
//! 1. A part contains the requested bytes, lies in the object, and is no longer than [`LEN_MAX`] or
//!    the request.
//! 2. No more than [`KEPT_MAX`] parts are kept.

use std::{collections::VecDeque, ops::Range};

/// Size for a read that follows no other.
const LEN_MIN: u64 = 64 << 10;
/// Size for a read after many others in a row.
pub(super) const LEN_MAX: u64 = 1 << 20;
/// Bytes at the end that one read there fetches at once: footers are read from their end.
const TAIL: u64 = 256 << 10;
/// A parser has a position in a table and one in the data that the table refers to.
const KEPT_MAX: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Windows {
    /// The latest one is at the back.
    kept: VecDeque<Window>,
    /// The last part that was fetched for consecutive reads.
    row: Range<u64>,
}

#[derive(Debug)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Windows {
    /// Copies the available bytes from `offset` on, and returns their number.
    pub(super) fn copy(&mut self, into: &mut [u8], offset: u64) -> usize {
        let found = self.kept.iter().position(|it| it.range().contains(&offset));
        let Some(window) = found.and_then(|index| self.kept.remove(index)) else { return 0 };
        let start = usize::try_from(offset - window.start).expect("it lies in the window");
        let len = into.len().min(window.bytes.len() - start);
        into[..len].copy_from_slice(&window.bytes[start..start + len]);
        self.kept.push_back(window);
        len
    }

    /// The range to fetch for `len` bytes at `offset` of an object of `size` bytes.
    pub(super) fn plan(&mut self, offset: u64, len: u64, size: u64) -> Range<u64> {
        let end = offset + len;
        if size - offset <= TAIL {
            return size.saturating_sub(TAIL)..size;
        }
        let row_len = self.row.end - self.row.start;
        let follows = row_len > 0 && (self.row.end..=self.row.end + row_len).contains(&offset);
        let grown = if follows { (row_len * 2).min(LEN_MAX) } else { LEN_MIN };
        self.row = offset..(offset + grown).max(end).min(size);
        self.row.clone()
    }

    /// The range that will be requested next, if the consecutive reads continue.
    pub(super) fn next(&self, size: u64) -> Option<Range<u64>> {
        let has_grown = self.row.end - self.row.start >= LEN_MAX;
        let range = self.row.end..(self.row.end + LEN_MAX).min(size);
        (has_grown && !range.is_empty()).then_some(range)
    }

    /// Continues the consecutive reads with a part that was fetched ahead.
    pub(super) fn go_on(&mut self, range: Range<u64>) {
        self.row = range;
    }

    pub(super) fn keep(&mut self, start: u64, bytes: Vec<u8>) {
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Window { start, bytes });
    }
}

impl Window {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads like a parser, and returns the fetched ranges.
    fn fetched(reads: impl Iterator<Item = (u64, u64)>, size: u64) -> Vec<Range<u64>> {
        let mut windows = Windows::default();
        let mut fetched = Vec::new();
        for (offset, len) in reads {
            let mut into = vec![0; usize::try_from(len).unwrap()];
            let mut done = 0;
            while done < into.len() {
                let place = offset + done as u64;
                let copied = windows.copy(&mut into[done..], place);
                done += copied;
                if copied == 0 {
                    let range = windows.plan(place, len - done as u64, size);
                    let bytes = usize::try_from(range.end - range.start).unwrap();
                    windows.keep(range.start, vec![0; bytes]);
                    fetched.push(range);
                }
            }
        }
        fetched
    }

    #[test]
    fn headers_in_a_row_take_few_requests() {
        let size = 100 << 20;
        let headers = (0..size).step_by(100_000).map(|offset| (offset, 12.min(size - offset)));
        let fetched = fetched(headers, size);
        assert!(fetched.len() <= 110, "{} requests for 1049 headers", fetched.len());
    }

    #[test]
    fn headers_far_apart_do_not_fetch_what_lies_between() {
        let size = 1 << 30;
        let headers = (0..size).step_by(5 << 20).map(|offset| (offset, 512));
        let bytes: u64 = fetched(headers, size).iter().map(|it| it.end - it.start).sum();
        assert!(bytes <= 205 * LEN_MIN, "{bytes}");
    }

    #[test]
    fn a_footer_and_its_table_are_one_request() {
        let size = 10 << 20;
        let reads = [(size - 8, 8), (size - 4_000, 3_992), (size - 200_000, 100)];
        assert_eq!(fetched(reads.into_iter(), size), vec![Range { start: size - TAIL, end: size }]);
        assert_eq!(fetched([(5, 3)].into_iter(), 10), vec![Range { start: 0, end: 10 }]);
    }

    proptest! {
        /// Checks invariants 1 and 2.
        #[test]
        fn a_part_has_what_was_asked_for_and_lies_in_the_object(
            size in 1_u64..(1 << 33),
            reads in prop::collection::vec((any::<u64>(), 1_u64..LEN_MAX), 1..50),
        ) {
            let mut windows = Windows::default();
            for (offset, len) in reads {
                let offset = offset % size;
                let len = len.min(size - offset);
                let range = windows.plan(offset, len, size);
                prop_assert!(range.start <= offset && range.end >= offset + len);
                prop_assert!(range.end <= size && range.end - range.start <= LEN_MAX.max(len));
                windows.keep(range.start, vec![0; 1]);
                prop_assert!(windows.kept.len() <= KEPT_MAX);
                prop_assert!(windows.next(size).is_none_or(|next| next.end <= size));
            }
        }
    }
}
