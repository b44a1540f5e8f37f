//! A queue of 64-byte entries between two processes that do not trust each other.
//!
//! One side pushes, the other pops; each keeps its own position in private memory and publishes a
//! copy of it in the shared memory for the other. A side never reads its own copy back, reads the
//! other's once per call and accepts it only inside the window that its own position allows. So the
//! worst effect of arbitrary writes by the other process is [`Corrupt`] or an entry with arbitrary
//! content, which the layer above decodes with its own checks.
//!
//! Positions count entries from 0 and wrap with their 64 bits; the slot of an entry is its position
//! modulo the capacity, a power of two. Every shared word is an atomic, so nothing here is `unsafe`
//! and no read can be torn below a word. `verification/models/` compiles this file with the atomics
//! of loom and shuttle in place of the real ones.
//!
//! Invariants, checked by the tests:
//!
//! 1. Entries come out as they went in: in order, each once.
//! 2. At most `capacity` entries wait; a further one is refused, none is overwritten.
//! 3. No content of the shared memory makes a side panic or touch a word outside its ring.

use super::words::{AtomicU64, Ordering};

/// The bytes of one entry: one cache line.
pub(super) const ENTRY_BYTES: u64 = 64;

pub(super) type Entry = [u64; 8];

/// Size of the two positions, one cache line each, which come before the entries.
const POSITIONS_BYTES: u64 = 2 * ENTRY_BYTES;

const WORD_BYTES: u64 = 8;

/// Shared memory as words that another process may change at any time.
pub(super) trait Words {
    /// The word at `offset`, or `None` if it is not aligned or not inside the memory.
    fn word(&self, offset: u64) -> Option<&AtomicU64>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    start: u64,
    capacity: u64,
}

impl Layout {
    /// A ring of `capacity` entries that starts at `start`, a multiple of 64.
    pub(super) const fn new(start: u64, capacity: u32) -> Self {
        assert!(capacity.is_power_of_two() && start.is_multiple_of(ENTRY_BYTES));
        Self { start, capacity: capacity as u64 }
    }

    pub(super) const fn end(self) -> u64 {
        self.start + POSITIONS_BYTES + self.capacity * ENTRY_BYTES
    }

    const fn pushed(self) -> u64 {
        self.start
    }

    const fn popped(self) -> u64 {
        self.start + ENTRY_BYTES
    }

    const fn entry(self, position: u64) -> u64 {
        self.start + POSITIONS_BYTES + (position & (self.capacity - 1)) * ENTRY_BYTES
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "position {theirs} of the other side is impossible: ours is {ours}, the ring holds {capacity}"
)]
pub(super) struct Corrupt {
    theirs: u64,
    ours: u64,
    capacity: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PushError {
    #[error("the ring is full: {capacity} entries wait")]
    Full { capacity: u64 },
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

#[derive(Debug)]
pub(super) struct Producer {
    layout: Layout,
    pushed: u64,
}

impl Producer {
    pub(super) const fn new(layout: Layout) -> Self {
        Self { layout, pushed: 0 }
    }

    /// Number of entries that the other side has not read yet, at most the capacity.
    pub(super) fn waiting(&self, memory: &impl Words) -> Result<u64, Corrupt> {
        let Layout { capacity, .. } = self.layout;
        // Acquire: the other side reads an entry before it publishes its position, and this side
        // overwrites it.
        let popped = word(memory, self.layout.popped()).load(Ordering::Acquire);
        let waiting = self.pushed.wrapping_sub(popped);
        if waiting > capacity {
            return Err(Corrupt { theirs: popped, ours: self.pushed, capacity });
        }
        Ok(waiting)
    }

    /// The caller wakes the other side afterwards.
    pub(super) fn push(&mut self, memory: &impl Words, entry: Entry) -> Result<(), PushError> {
        let Layout { capacity, .. } = self.layout;
        if self.waiting(memory)? == capacity {
            return Err(PushError::Full { capacity });
        }
        let mut place = self.layout.entry(self.pushed);
        for value in entry {
            word(memory, place).store(value, Ordering::Relaxed);
            place += WORD_BYTES;
        }
        self.pushed = self.pushed.wrapping_add(1);
        // Release: a process that sees the position also sees the entry, and everything written
        // before the push.
        word(memory, self.layout.pushed()).store(self.pushed, Ordering::Release);
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Consumer {
    layout: Layout,
    popped: u64,
}

impl Consumer {
    pub(super) const fn new(layout: Layout) -> Self {
        Self { layout, popped: 0 }
    }

    /// Number of entries that wait at this moment, at most the capacity.
    pub(super) fn waiting(&self, memory: &impl Words) -> Result<u64, Corrupt> {
        let Layout { capacity, .. } = self.layout;
        // Acquire: pairs with the release store in `push`.
        let pushed = word(memory, self.layout.pushed()).load(Ordering::Acquire);
        let waiting = pushed.wrapping_sub(self.popped);
        if waiting > capacity {
            return Err(Corrupt { theirs: pushed, ours: self.popped, capacity });
        }
        Ok(waiting)
    }

    pub(super) fn pop(&mut self, memory: &impl Words) -> Result<Option<Entry>, Corrupt> {
        if self.waiting(memory)? == 0 {
            return Ok(None);
        }
        let mut place = self.layout.entry(self.popped);
        let mut entry = [0; 8];
        for value in &mut entry {
            *value = word(memory, place).load(Ordering::Relaxed);
            place += WORD_BYTES;
        }
        self.popped = self.popped.wrapping_add(1);
        // Release: the other side overwrites the entry only after it has seen that this side read
        // it.
        word(memory, self.layout.popped()).store(self.popped, Ordering::Release);
        Ok(Some(entry))
    }
}

fn word(memory: &impl Words, offset: u64) -> &AtomicU64 {
    memory.word(offset).expect("both sides check the length of the memory before they use a ring")
}

#[cfg(test)]
mod tests;
