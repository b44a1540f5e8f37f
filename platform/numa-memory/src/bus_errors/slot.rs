//! One watched mapping, which a handler of signals looks up while others are added and taken away.
//!
//! The owner of a slot writes it, one at a time; who looks takes no lock. `verification/models/` compiles this very file
//! with the atomics of loom in the place of the real ones.

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
    /// Whether it is free. The caller is the only one who takes slots.
    pub(super) fn is_free(&self) -> bool {
        self.start.load(Ordering::Relaxed) == 0
    }

    /// Makes it that of a mapping. It must be free.
    pub(super) fn take(&self, start: usize, end: usize, page_bytes: usize) {
        // Release: whoever sees this end sees that the mapping before has no start any more.
        self.end.store(end, Ordering::Release);
        self.page_bytes.store(page_bytes, Ordering::Relaxed);
        self.errors.store(0, Ordering::Relaxed);
        // Last: from here on the handler finds it.
        self.start.store(start, Ordering::Release);
    }

    /// Frees it: from now on no address is covered by it.
    pub(super) fn leave(&self) {
        self.start.store(0, Ordering::Release);
    }

    /// Whether it is that of the mapping around `address`.
    ///
    /// A slot that is given to another mapping meanwhile is seen by its start, which is 0 in between.
    pub(super) fn covers(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        start != 0 && (start..end).contains(&address) && self.start.load(Ordering::Acquire) == start
    }
}
