//! One watched mapping, which a signal handler looks up while others are added and removed.
//!
//! The owner of a slot writes it, one owner at a time; readers take no lock. `verification/models/`
//! compiles this file with the atomics of loom in place of the real ones.

use super::words::{AtomicU32, AtomicUsize, Ordering};

/// A watched mapping; free if `start` is 0.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) start: AtomicUsize,
    pub(super) end: AtomicUsize,
    pub(super) page_bytes: AtomicUsize,
    pub(super) errors: AtomicU32,
}

impl Slot {
    /// Whether the slot is free. Only one thread at a time takes slots.
    pub(super) fn is_free(&self) -> bool {
        self.start.load(Ordering::Relaxed) == 0
    }

    /// Assigns the slot to a mapping. It must be free.
    pub(super) fn take(&self, start: usize, end: usize, page_bytes: usize) {
        // Release: a reader that sees this end also sees that the previous mapping has no start any
        // more.
        self.end.store(end, Ordering::Release);
        self.page_bytes.store(page_bytes, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
        // Last: from here on the handler finds it.
        self.start.store(start, Ordering::Release);
    }

    /// Frees the slot: from now on it covers no address.
    pub(super) fn leave(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Whether the slot belongs to the mapping around `address`.
    ///
    /// A slot that is reassigned meanwhile is detected by its start, which is 0 in between.
    pub(super) fn covers(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        start != 0 && (start..end).contains(&address) && self.start.load(Ordering::Acquire) == start
    }
}
