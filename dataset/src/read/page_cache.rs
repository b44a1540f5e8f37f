//! Decides which reads of files leave their pages in the page cache, and knows which samples they left there.
//!
//! Memory that no tier holds would be idle: the kernel keeps files in it, for nothing, until another program
//! needs it. So a read leaves the pages of its sample there, as long as all samples that were left take no
//! more than [`PageCacheRoom::set_limit`] allows; further ones are read past the page cache, so that what
//! lies there stays. A sample that a tier keeps leaves none, for the same bytes would take memory twice.
//! Pages that other programs brought are used, and never dropped.
//!
//! 1. With a limit of 0, which is the one at the start, no read leaves pages.
//! 2. A sample whose copy a tier keeps has no pages here, except those of other programs.
//!
//! The kernel may drop pages at any time without notice. The sample counts as left until it is read again.

use std::sync::atomic::{AtomicU64, Ordering};

use tierfeed_core::{id::SampleId, units::Bytes};

/// The free memory that serves as page cache for the files of a dataset.
#[derive(Debug)]
pub struct PageCacheRoom {
    limit: AtomicU64,
    left: AtomicU64,
    /// A bit for each sample that was left.
    samples: Box<[AtomicU64]>,
    served_samples: AtomicU64,
    served: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leave {
    /// It does, and takes room for them.
    Now,
    /// It does, and an earlier read took the room.
    Before,
    NoRoom,
}

/// The contents of the page cache for a dataset, and what it served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageCacheFigures {
    pub limit: Bytes,
    /// Bytes of the samples that reads left and that were not found missing since.
    pub left: Bytes,
    /// Samples of which the page cache had all bytes or a part when they were read.
    pub served_samples: u64,
    /// Bytes that the page cache had when they were read.
    pub served: Bytes,
}

impl PageCacheRoom {
    /// The page cache for a dataset of so many samples, with a limit of 0.
    #[must_use]
    pub fn new(samples: u32) -> Self {
        let words = samples.div_ceil(u64::BITS);
        Self {
            limit: AtomicU64::new(0),
            left: AtomicU64::new(0),
            samples: (0..words).map(|_| AtomicU64::new(0)).collect(),
            served_samples: AtomicU64::new(0),
            served: AtomicU64::new(0),
        }
    }

    /// Sets the number of bytes that reads may leave together. Pages that were left stay, even if they are
    /// more.
    pub fn set_limit(&self, limit: Bytes) {
        self.limit.store(limit.0, Ordering::Relaxed);
    }

    #[must_use]
    pub fn figures(&self) -> PageCacheFigures {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        PageCacheFigures {
            limit: Bytes(read(&self.limit)),
            left: Bytes(read(&self.left)),
            served_samples: read(&self.served_samples),
            served: Bytes(read(&self.served)),
        }
    }

    #[must_use]
    pub fn has_room(&self, sample: SampleId, len: Bytes) -> bool {
        let more = if self.is_left(sample) { 0 } else { len.0 };
        let left = self.left.load(Ordering::Relaxed).saturating_add(more);
        left <= self.limit.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn is_left(&self, sample: SampleId) -> bool {
        let (word, bit) = place_of(sample);
        self.samples.get(word).is_some_and(|it| it.load(Ordering::Relaxed) & bit != 0)
    }

    /// Takes room for the pages of a sample of `len` bytes that is going to be read, if there is any.
    #[must_use]
    pub fn try_leave(&self, sample: SampleId, len: Bytes) -> Leave {
        let (word, bit) = place_of(sample);
        let Some(word) = self.samples.get(word) else { return Leave::NoRoom };
        let limit = self.limit.load(Ordering::Relaxed);
        if word.load(Ordering::Relaxed) & bit != 0 {
            let left = self.left.load(Ordering::Relaxed);
            return if left <= limit { Leave::Before } else { Leave::NoRoom };
        }
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_add(len.0).filter(|left| *left <= limit)
        });
        if taken.is_err() {
            return Leave::NoRoom;
        }
        if word.fetch_or(bit, Ordering::Relaxed) & bit != 0 {
            // Another read of the sample was faster.
            self.left.fetch_sub(len.0, Ordering::Relaxed);
            return Leave::Before;
        }
        Leave::Now
    }

    /// Notes that the pages of a sample were dropped, or that the kernel did so. Returns whether they were
    /// left.
    pub fn note_gone(&self, sample: SampleId, len: Bytes) -> bool {
        let (word, bit) = place_of(sample);
        let Some(word) = self.samples.get(word) else { return false };
        let was_left = word.fetch_and(!bit, Ordering::Relaxed) & bit != 0;
        if was_left {
            self.left.fetch_sub(len.0, Ordering::Relaxed);
        }
        was_left
    }

    /// Counts a read of which the page cache had `served` bytes.
    pub fn note_served(&self, served: Bytes) {
        if served.0 > 0 {
            self.served_samples.fetch_add(1, Ordering::Relaxed);
            self.served.fetch_add(served.0, Ordering::Relaxed);
        }
    }
}

fn place_of(sample: SampleId) -> (usize, u64) {
    ((sample.0 / u64::BITS) as usize, 1 << (sample.0 % u64::BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_left_up_to_the_limit_and_counted_once() {
        let room = PageCacheRoom::new(100);
        let len = Bytes(10);
        assert!(!room.has_room(SampleId(0), len), "invariant 1");
        room.set_limit(Bytes(20));
        for (sample, leave) in [(0, Leave::Now), (99, Leave::Now), (99, Leave::Before)] {
            assert!(room.has_room(SampleId(sample), len));
            assert_eq!(room.try_leave(SampleId(sample), len), leave);
        }
        assert_eq!(room.try_leave(SampleId(1), len), Leave::NoRoom);
        assert_eq!(room.figures().left, Bytes(20));
        assert!(!room.has_room(SampleId(1), len), "full");
        assert!(room.has_room(SampleId(99), len), "it has its room already");
        assert!(room.note_gone(SampleId(99), len) && !room.note_gone(SampleId(99), len));
        assert!(room.has_room(SampleId(1), len));
    }

    #[test]
    fn a_smaller_limit_leaves_nothing_more_and_forgets_nothing() {
        let room = PageCacheRoom::new(10);
        room.set_limit(Bytes(100));
        assert_eq!(room.try_leave(SampleId(3), Bytes(60)), Leave::Now);
        room.set_limit(Bytes(50));
        assert!(!room.has_room(SampleId(3), Bytes(60)));
        assert_eq!(room.try_leave(SampleId(3), Bytes(60)), Leave::NoRoom);
        assert!(!room.has_room(SampleId(4), Bytes(1)));
        assert!(room.is_left(SampleId(3)));
    }

    #[test]
    fn a_sample_of_another_dataset_is_never_left() {
        let room = PageCacheRoom::new(64);
        room.set_limit(Bytes(10));
        assert_eq!(room.try_leave(SampleId(64), Bytes(1)), Leave::NoRoom);
        assert_eq!(room.figures().left, Bytes(0));
        assert!(!room.is_left(SampleId(64)) && !room.note_gone(SampleId(64), Bytes(1)));
    }
}
