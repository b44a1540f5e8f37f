//! Which part of an arena has memory: all of it, or its beginning while memory is short.
//!
//! The end of the arena leaves range by range, as its batches do, and comes back when the limit is
//! lifted or when a batch that somebody waits for finds no room. Nothing lies in a range that is on its
//! way out or in, for it was taken out of the arena's free space before.

use alloc::vec::Vec;

use super::ARENA;
use crate::{
    batch::BATCH_ALIGN,
    space::{Piece, Space},
    units::Bytes,
};

/// A range that changes its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::session) enum Passage {
    /// Its memory is given back.
    Out(Piece),
    /// It gets memory again.
    In(Piece),
}

impl Passage {
    pub(in crate::session) fn range(self) -> (Bytes, Bytes) {
        let (Self::Out(piece) | Self::In(piece)) = self;
        (piece.offset, piece.len)
    }
}

/// The memory behind an arena.
#[derive(Debug)]
pub(super) struct Memory {
    len: Bytes,
    /// Batches for which the whole length was meant.
    batches: u32,
    limit: Option<u32>,
    /// The longest batch that was to get a place.
    longest: Bytes,
    /// Ranges without memory, by offset.
    gone: Vec<Piece>,
    /// Ranges that are on their way out or in.
    moving: u32,
    /// A batch could not be placed in what is left.
    is_short: bool,
    /// There was no memory to come back to.
    is_refused: bool,
}

impl Memory {
    pub(super) fn new(len: Bytes, batches: u32) -> Self {
        Self {
            len,
            batches: batches.max(1),
            limit: None,
            longest: Bytes(0),
            gone: Vec::new(),
            moving: 0,
            is_short: false,
            is_refused: false,
        }
    }

    pub(super) fn len(&self) -> Bytes {
        self.len
    }

    pub(super) fn is_moving(&self) -> bool {
        self.moving > 0
    }

    pub(super) fn closed(&mut self) {
        self.gone.clear();
        self.is_short = false;
        self.is_refused = false;
    }

    pub(super) fn limit(&mut self, batches: Option<u32>) {
        self.limit = batches;
        self.is_short = false;
        self.is_refused = false;
    }

    /// Takes note of a batch that is to get a place.
    pub(super) fn saw(&mut self, len: Bytes) {
        self.longest = self.longest.max(len);
    }

    /// Asks for everything back; `false` if all is there, or if there was nothing to be had.
    pub(super) fn restore(&mut self) -> bool {
        if self.gone.is_empty() || self.is_refused {
            return false;
        }
        self.is_short = true;
        true
    }

    /// What is to change now: free space of `space` behind the usable part leaves, ranges within it
    /// come back.
    pub(super) fn passages(&mut self, space: &mut Space) -> Vec<Passage> {
        let usable = self.usable();
        let mut passages = Vec::new();
        if usable < self.len {
            passages.extend(space.take_behind(ARENA, usable).into_iter().map(Passage::Out));
        }
        if !self.is_refused {
            let gone = core::mem::take(&mut self.gone);
            for piece in gone {
                let (inside, outside) = split(piece, usable);
                passages.extend(inside.map(Passage::In));
                self.gone.extend(outside);
            }
        }
        self.moving += u32::try_from(passages.len()).expect("an arena has few ranges");
        passages
    }

    /// A passage ended. Returns the range if batches may lie there again. One that could not leave stays
    /// out of use all the same, so that it is not tried over and over.
    pub(super) fn passed(&mut self, passage: Passage, has_failed: bool) -> Option<Piece> {
        self.moving = self.moving.saturating_sub(1);
        match (passage, has_failed) {
            (Passage::In(piece), false) => return Some(piece),
            (Passage::In(piece), true) => {
                self.is_refused = true;
                self.gone.push(piece);
            }
            (Passage::Out(piece), _) => self.gone.push(piece),
        }
        None
    }

    /// How much of the arena may be used: its part for the batches that are allowed, but room for two
    /// of the longest.
    fn usable(&self) -> Bytes {
        let Some(limit) = self.limit.filter(|_| !self.is_short) else { return self.len };
        let part = self.len.0 / u64::from(self.batches) * u64::from(limit);
        let usable = part.max(self.longest.0.saturating_mul(2));
        Bytes(usable.checked_next_multiple_of(BATCH_ALIGN).unwrap_or(u64::MAX).min(self.len.0))
    }
}

/// The parts of a range before and behind an offset.
fn split(piece: Piece, at: Bytes) -> (Option<Piece>, Option<Piece>) {
    let end = piece.offset.0 + piece.len.0;
    let middle = at.0.clamp(piece.offset.0, end);
    let part = |from: u64, to: u64| {
        (from < to).then_some(Piece { offset: Bytes(from), len: Bytes(to - from), ..piece })
    };
    (part(piece.offset.0, middle), part(middle, end))
}
