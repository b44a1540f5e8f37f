//! Pinned places of one tier: those that batches read in place.
//!
//! A trainer reads such a sample where it lies, so its bytes stay until the last batch that names them is
//! gone: a place that the residency gave up is free again only when its last pin drops, and so is a chunk.
//!
//! Invariants, checked by the tests of [`crate::retention::cache`]:
//!
//! 1. A pinned place is given to no other sample, and its chunk is not dropped.
//! 2. A place that was given up while it was pinned is freed once, when its last pin drops.

use alloc::collections::BTreeMap;

use crate::{batch::InPlace, id::ChunkId, space::Piece, units::Bytes};

#[derive(Debug, Default)]
pub(super) struct Pins {
    /// By chunk and offset.
    places: BTreeMap<(ChunkId, u64), Pin>,
    /// Chunks that were removed while places in them were pinned.
    leaving: BTreeMap<ChunkId, Leaving>,
}

#[derive(Debug)]
struct Pin {
    /// Batches that name the place.
    count: u32,
    len: Bytes,
    /// Whether its sample was moved or evicted meanwhile.
    is_vacated: bool,
}

#[derive(Debug)]
struct Leaving {
    pinned: u32,
    presence: Presence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has memory, or is getting it.
    There,
    /// Its memory could not be had.
    Lost,
}

/// The memory that becomes free when the last pin of a place drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    Piece(Piece),
    /// The chunk that it was in, which is to be dropped.
    Chunk(ChunkId),
}

impl Pins {
    /// Chunks that were removed and whose memory is still there.
    pub(super) fn leaving(&self) -> u32 {
        let there = self.leaving.values().filter(|it| it.presence == Presence::There);
        u32::try_from(there.count()).expect("chunks are numbered in 32 bits")
    }

    pub(super) fn pin(&mut self, piece: Piece) {
        let pin = Pin { count: 0, len: piece.len, is_vacated: false };
        self.places.entry((piece.chunk, piece.offset.0)).or_insert(pin).count += 1;
    }

    /// Notes that a place is given up. Returns whether a pin keeps it.
    pub(super) fn vacate(&mut self, piece: &Piece) -> bool {
        let pin = self.places.get_mut(&(piece.chunk, piece.offset.0));
        pin.map(|pin| pin.is_vacated = true).is_some()
    }

    /// Returns the memory that becomes free.
    pub(super) fn unpin(&mut self, place: InPlace) -> Option<Freed> {
        let key = (place.chunk, place.offset.0);
        let pin = self.places.get_mut(&key)?;
        pin.count -= 1;
        if pin.count > 0 {
            return None;
        }
        let Pin { len, is_vacated, .. } = self.places.remove(&key)?;
        if !is_vacated {
            return None;
        }
        let Some(chunk) = self.leaving.get_mut(&place.chunk) else {
            return Some(Freed::Piece(Piece { chunk: place.chunk, offset: place.offset, len }));
        };
        chunk.pinned -= 1;
        if chunk.pinned > 0 {
            return None;
        }
        let Leaving { presence, .. } = self.leaving.remove(&place.chunk)?;
        (presence == Presence::There).then_some(Freed::Chunk(place.chunk))
    }

    /// Notes that a chunk is removed in which every sample was vacated. Returns whether a pin keeps it.
    pub(super) fn remove_chunk(&mut self, chunk: ChunkId, presence: Presence) -> bool {
        let pinned = self.places.range((chunk, 0)..=(chunk, u64::MAX)).count();
        let pinned = u32::try_from(pinned).expect("a chunk has fewer places");
        if pinned > 0 {
            self.leaving.insert(chunk, Leaving { pinned, presence });
        }
        pinned > 0
    }

    pub(super) fn lost(&mut self, chunk: ChunkId) {
        if let Some(leaving) = self.leaving.get_mut(&chunk) {
            leaving.presence = Presence::Lost;
        }
    }

    #[cfg(test)]
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Piece, bool)> + '_ {
        self.places.iter().map(|((chunk, offset), pin)| {
            (Piece { chunk: *chunk, offset: Bytes(*offset), len: pin.len }, pin.is_vacated)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: ChunkId = ChunkId(3);

    /// A pinned place of a chunk that was removed.
    fn leaving(presence: Presence) -> (Pins, InPlace) {
        let (offset, mut pins) = (Bytes(64), Pins::default());
        let piece = Piece { chunk: CHUNK, offset, len: Bytes(64) };
        pins.pin(piece);
        assert!(pins.vacate(&piece));
        assert!(pins.remove_chunk(CHUNK, presence));
        (pins, InPlace { tier: crate::id::TierId(0), chunk: CHUNK, offset })
    }

    #[test]
    fn a_chunk_counts_until_its_last_pin_drops() {
        let (mut pins, in_place) = leaving(Presence::There);
        assert_eq!(pins.leaving(), 1);
        assert_eq!(pins.unpin(in_place), Some(Freed::Chunk(CHUNK)));
        assert_eq!((pins.leaving(), pins.unpin(in_place)), (0, None));
    }

    #[test]
    fn a_chunk_without_memory_counts_for_nothing_and_is_not_dropped() {
        let (mut lost, in_place) = leaving(Presence::There);
        lost.lost(CHUNK);
        let (never_there, _) = leaving(Presence::Lost);
        for mut pins in [lost, never_there] {
            assert_eq!(pins.leaving(), 0);
            assert_eq!(pins.unpin(in_place), None);
        }
    }
}
