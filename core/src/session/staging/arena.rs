//! Which part of an arena has memory: all of it, or its beginning while memory is short.
//!
//! The end of the arena is given back range by range, as its batches leave, and taken again when the limit
//! is lifted or when a batch that a trainer waits for finds no room. A range that is being trimmed or
//! restored holds no batch: it was taken out of the arena's free space before.

use alloc::vec::Vec;

use crate::{
    batch::BATCH_ALIGN,
    id::{ChunkId, Rank},
    session::Operation,
    space::{Piece, Space},
    units::Bytes,
};

/// The arena is one chunk.
pub(super) const ARENA: ChunkId = ChunkId(0);

#[derive(Debug)]
pub(super) struct ArenaMemory {
    len: Bytes,
    /// The number of batches for which the whole length was meant.
    batches: u32,
    limit: Option<u32>,
    /// The longest batch that was to be placed.
    longest: Bytes,
    /// Ranges without memory.
    trimmed: Vec<Piece>,
    /// Ranges that are being trimmed or restored.
    changing: u32,
    /// Whether a batch found no room in what is left.
    is_short: bool,
    /// Whether there was no memory to restore a range.
    is_refused: bool,
    /// Whether a device holds the pages: it would read those that were given back.
    is_pinned: bool,
}

impl ArenaMemory {
    pub(super) fn new(len: Bytes, batches: u32) -> Self {
        Self {
            len,
            batches: batches.max(1),
            limit: None,
            longest: Bytes(0),
            trimmed: Vec::new(),
            changing: 0,
            is_short: false,
            is_refused: false,
            is_pinned: false,
        }
    }

    pub(super) fn len(&self) -> Bytes {
        self.len
    }

    pub(super) fn is_whole(&self) -> bool {
        self.trimmed.is_empty() && self.usable() == self.len
    }

    pub(super) fn is_changing(&self) -> bool {
        self.changing > 0
    }

    pub(super) fn closed(&mut self) {
        self.trimmed.clear();
        self.is_short = false;
        self.is_refused = false;
    }

    /// From now on, gives no memory back.
    pub(super) fn pin(&mut self) {
        self.is_pinned = true;
    }

    pub(super) fn unpin(&mut self) {
        self.is_pinned = false;
    }

    pub(super) fn limit(&mut self, batches: Option<u32>) {
        self.limit = batches;
        self.is_short = false;
        self.is_refused = false;
    }

    pub(super) fn note_batch(&mut self, len: Bytes) {
        self.longest = self.longest.max(len);
    }

    /// Asks for all memory back. Returns `false` if all is there, or if there was none to be had.
    pub(super) fn restore(&mut self) -> bool {
        if self.trimmed.is_empty() || self.is_refused {
            return false;
        }
        self.is_short = true;
        true
    }

    /// The changes that are due now: free space of `space` behind the usable part is trimmed, trimmed
    /// ranges within it are restored.
    pub(super) fn resize(&mut self, rank: Rank, space: &mut Space) -> Vec<Operation> {
        let usable = self.usable();
        let mut operations = Vec::new();
        if usable < self.len {
            let trim = |Piece { offset, len, .. }| Operation::TrimArena { rank, offset, len };
            operations.extend(space.take_behind(ARENA, usable).into_iter().map(trim));
        }
        if !self.is_refused {
            let restore = |Piece { offset, len, .. }| Operation::RestoreArena { rank, offset, len };
            for piece in core::mem::take(&mut self.trimmed) {
                let (inside, outside) = split(piece, usable);
                operations.extend(inside.map(restore));
                self.trimmed.extend(outside);
            }
        }
        self.changing += u32::try_from(operations.len()).expect("an arena has few ranges");
        operations
    }

    /// Records a trimmed range. A range that could not be trimmed stays out of use too, so that it is not
    /// tried over and over.
    pub(super) fn trimmed(&mut self, piece: Piece) {
        self.changing = self.changing.saturating_sub(1);
        self.trimmed.push(piece);
    }

    /// Returns whether batches may lie in the range again.
    pub(super) fn restored(&mut self, piece: Piece, is_there: bool) -> bool {
        self.changing = self.changing.saturating_sub(1);
        if !is_there {
            self.is_refused = true;
            self.trimmed.push(piece);
        }
        is_there
    }

    /// The length of the arena that may be used: its part for the allowed batches, but room for two of the
    /// longest.
    fn usable(&self) -> Bytes {
        let is_limited = !self.is_short && !self.is_pinned;
        let Some(limit) = self.limit.filter(|_| is_limited) else { return self.len };
        let part = self.len.0 / u64::from(self.batches) * u64::from(limit);
        let usable = part.max(self.longest.0.saturating_mul(2));
        Bytes(usable.checked_next_multiple_of(BATCH_ALIGN).unwrap_or(u64::MAX).min(self.len.0))
    }
}

fn split(piece: Piece, at: Bytes) -> (Option<Piece>, Option<Piece>) {
    let end = piece.offset.0 + piece.len.0;
    let middle = at.0.clamp(piece.offset.0, end);
    let part = |from: u64, to: u64| {
        (from < to).then_some(Piece { offset: Bytes(from), len: Bytes(to - from), ..piece })
    };
    (part(piece.offset.0, middle), part(middle, end))
}
