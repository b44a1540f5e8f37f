//! Reads small parts of an object in ascending order, with few reads and few bytes.
//!
//! The size of a read follows from the previous requests. If each requested part lies no farther
//! ahead than a read costs, the size grows, so that many small samples share one read. If the parts
//! lie farther apart, it shrinks, so that the samples between them are skipped.

use std::io;

use super::ReadAt;

/// Divisors of the cost of a read, which give the smallest and the largest read.
const AT_LEAST: u64 = 16;
const AT_MOST: u64 = 4;
/// Largest read in bytes, independent of the cost of a read.
const LIMIT: u64 = 16 << 20;
const SMALLEST: u64 = 512;

/// A window on an object that moves forward.
pub(super) struct ReadAhead<'a> {
    object: &'a dyn ReadAt,
    window: Vec<u8>,
    start: u64,
    /// Size of the next read, if no more is requested.
    ahead: u64,
}

impl<'a> ReadAhead<'a> {
    pub(super) fn new(object: &'a dyn ReadAt) -> Self {
        Self { object, window: Vec::new(), start: 0, ahead: smallest(object) }
    }

    pub(super) fn object_len(&self) -> u64 {
        self.object.len()
    }

    pub(super) fn bytes(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        if self.inside(at, len).is_none() {
            self.fill(at, len)?;
        }
        let found = self.inside(at, len).expect("the window was just filled with these bytes");
        Ok(&self.window[found])
    }

    pub(super) fn array<const N: usize>(&mut self, at: u64) -> io::Result<[u8; N]> {
        let bytes = self.bytes(at, N)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }

    fn inside(&self, at: u64, len: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(at.checked_sub(self.start)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.window.len()).then_some(start..end)
    }

    fn fill(&mut self, at: u64, len: usize) -> io::Result<()> {
        let left = self.object.len().checked_sub(at);
        let left = left.filter(|left| len as u64 <= *left).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.adapt(at);
        let take = self.ahead.max(len as u64).min(left);
        let take = usize::try_from(take).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // The previous content is gone even if this read fails.
        self.window.clear();
        self.window.resize(take, 0);
        self.start = at;
        let read = self.object.read_exact_at(&mut self.window, at);
        if read.is_err() {
            self.window.clear();
        }
        read
    }

    fn adapt(&mut self, at: u64) {
        if self.window.is_empty() {
            return;
        }
        let window_end = self.start.saturating_add(self.window.len() as u64);
        let cost = self.object.read_cost_bytes();
        let near = at >= self.start && at.saturating_sub(window_end) <= cost;
        let wanted = if near { self.ahead.saturating_mul(2) } else { self.ahead / 2 };
        let least = smallest(self.object);
        self.ahead = wanted.clamp(least, cost.saturating_mul(AT_MOST).clamp(least, LIMIT));
    }
}

fn smallest(object: &dyn ReadAt) -> u64 {
    (object.read_cost_bytes() / AT_LEAST).clamp(SMALLEST, LIMIT)
}

/// Calls `each` with the bytes from `offset` on, a piece at a time.
pub(super) fn for_each_piece(
    object: &dyn ReadAt,
    offset: u64,
    len: u64,
    each: &mut dyn FnMut(&[u8]),
) -> io::Result<()> {
    let end = offset.checked_add(len).filter(|end| *end <= object.len());
    let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
    let piece = object.read_cost_bytes().saturating_mul(AT_MOST).clamp(SMALLEST, LIMIT);
    let mut buffer = Vec::new();
    let mut at = offset;
    while at < end {
        let take = piece.min(end - at);
        buffer.resize(usize::try_from(take).map_err(|_| io::ErrorKind::OutOfMemory)?, 0);
        object.read_exact_at(&mut buffer, at)?;
        each(&buffer);
        at += take;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Counted {
        bytes: Vec<u8>,
        reads: Mutex<Vec<usize>>,
    }

    impl Counted {
        fn new(len: usize) -> Self {
            let bytes = (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect();
            Self { bytes, reads: Mutex::default() }
        }

        /// Reads 12 bytes every `stride`; returns the number of reads and of bytes.
        fn hop(&self, stride: usize) -> (usize, usize) {
            let mut ahead = ReadAhead::new(self);
            for at in (0..self.bytes.len() - 12).step_by(stride) {
                let expected = &self.bytes[at..at + 12];
                assert_eq!(ahead.bytes(at as u64, 12).unwrap(), expected);
            }
            let reads = self.reads.lock().unwrap();
            (reads.len(), reads.iter().sum())
        }
    }

    impl ReadAt for Counted {
        fn len(&self) -> u64 {
            self.bytes.len() as u64
        }

        fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
            self.reads.lock().unwrap().push(into.len());
            self.bytes.read_exact_at(into, offset)
        }
    }

    #[test]
    fn small_hops_share_a_read() {
        let object = Counted::new(4 << 20);
        let (reads, bytes) = object.hop(100);
        assert!(reads <= 24, "{reads} reads");
        assert!(bytes <= (4 << 20) + reads * 12, "{bytes} bytes");
    }

    #[test]
    fn far_hops_skip_what_is_between() {
        let object = Counted::new(8 << 20);
        let (reads, bytes) = object.hop(114_660);
        assert_eq!(reads, (8 << 20) / 114_660 + 1);
        assert_eq!(bytes, reads * 4096);
    }

    #[test]
    fn pieces_beyond_the_end_are_not_read() {
        let object = Counted::new(100);
        let mut ahead = ReadAhead::new(&object);
        for (at, len) in [(89, 12), (100, 1), (u64::MAX, 1), (1, usize::MAX)] {
            let error = ahead.bytes(at, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{at} {len}");
        }
        assert!(object.reads.lock().unwrap().is_empty());
        assert_eq!(ahead.bytes(88, 12).unwrap(), &object.bytes[88..]);
    }

    #[test]
    fn pieces_are_all_bytes_in_order() {
        let object = Counted::new(600_000);
        let mut seen = Vec::new();
        for_each_piece(&object, 5, 599_000, &mut |bytes| seen.extend_from_slice(bytes)).unwrap();
        assert_eq!(seen, &object.bytes[5..599_005]);
        assert!(for_each_piece(&object, 5, 599_996, &mut |_| ()).is_err());
    }
}
