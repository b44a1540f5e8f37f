//! Positions of one tier that batches name, and what became of them meanwhile.
//!
//! A trainer reads a shown sample where it lies, so its bytes stay until the last batch that names them
//! is gone, whatever the residency say: a place that is given up comes back to the tier only then, and so
//! does a chunk.
//!
//! Invariants, checked by the tests of [`crate::retention::cache`]:
//!
//! 1. A place that is named is free to nobody else, and its chunk is not dropped.
//! 2. What was given up while it was named comes back once, when it is named no more.

use alloc::collections::BTreeMap;

use crate::{batch::Shown, id::ChunkId, space::Piece, units::Bytes};

/// The named places of one tier.
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// By chunk and offset.
    places: BTreeMap<(ChunkId, u64), Pin>,
    leaving: BTreeMap<ChunkId, Leaving>,
}

#[derive(Debug)]
struct Pin {
    /// How often it is named.
    count: u32,
    len: Bytes,
    /// Its sample lies elsewhere by now, or nowhere.
    is_vacated: bool,
}

/// A chunk that was taken away while places in it were named.
#[derive(Debug)]
struct Leaving {
    /// Such places that are left.
    named: u32,
    presence: Presence,
}

/// Whether there is memory behind a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    /// There is, or it is on its way.
    There,
    /// It could not be had.
    Lost,
}

/// What comes back to the tier with the last name of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    /// The place.
    Piece(Piece),
    /// The whole chunk that it was in, which is to be dropped.
    Chunk(ChunkId),
}

impl Pins {
    /// Chunks that are taken away and whose memory is still there.
    pub(super) fn leaving(&self) -> u32 {
        let there = self.leaving.values().filter(|it| it.presence == Presence::There);
        u32::try_from(there.count()).expect("chunks are numbered in 32 bits")
    }

    /// Names a place once more.
    pub(super) fn name(&mut self, piece: Piece) {
        let pin = Pin { count: 0, len: piece.len, is_vacated: false };
        self.places.entry((piece.chunk, piece.offset.0)).or_insert(pin).count += 1;
    }

    /// Takes note that a place is given up; returns whether it has to stay for now.
    pub(super) fn vacate(&mut self, piece: &Piece) -> bool {
        let pin = self.places.get_mut(&(piece.chunk, piece.offset.0));
        pin.map(|pin| pin.is_vacated = true).is_some()
    }

    /// Names a place once less. Returns what nobody needs any more.
    pub(super) fn unname(&mut self, shown: Shown) -> Option<Freed> {
        let key = (shown.chunk, shown.offset.0);
        let pin = self.places.get_mut(&key)?;
        pin.count -= 1;
        if pin.count > 0 {
            return None;
        }
        let Pin { len, is_vacated, .. } = self.places.remove(&key)?;
        if !is_vacated {
            return None;
        }
        let Some(chunk) = self.leaving.get_mut(&shown.chunk) else {
            return Some(Freed::Piece(Piece { chunk: shown.chunk, offset: shown.offset, len }));
        };
        chunk.named -= 1;
        if chunk.named > 0 {
            return None;
        }
        let Leaving { presence, .. } = self.leaving.remove(&shown.chunk)?;
        (presence == Presence::There).then_some(Freed::Chunk(shown.chunk))
    }

    /// Takes note that a chunk is taken away, every sample in it having been vacated; returns whether it
    /// has to stay for now.
    pub(super) fn leave(&mut self, chunk: ChunkId, presence: Presence) -> bool {
        let named = self.places.range((chunk, 0)..=(chunk, u64::MAX)).count();
        let named = u32::try_from(named).expect("a chunk has fewer places");
        if named > 0 {
            self.leaving.insert(chunk, Leaving { named, presence });
        }
        named > 0
    }

    /// Takes note that there is no memory behind a chunk that was taken away.
    pub(super) fn lost(&mut self, chunk: ChunkId) {
        if let Some(leaving) = self.leaving.get_mut(&chunk) {
            leaving.presence = Presence::Lost;
        }
    }

    /// The places that are named, for tests.
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

    /// One place of a chunk that was taken away while it was named.
    fn leaving(presence: Presence) -> (Pins, Shown) {
        let (offset, mut pins) = (Bytes(64), Pins::default());
        let piece = Piece { chunk: CHUNK, offset, len: Bytes(64) };
        pins.name(piece);
        assert!(pins.vacate(&piece));
        assert!(pins.leave(CHUNK, presence));
        (pins, Shown { tier: crate::id::TierId(0), chunk: CHUNK, offset })
    }

    #[test]
    fn a_chunk_counts_until_its_last_place_is_named_no_more() {
        let (mut pins, shown) = leaving(Presence::There);
        assert_eq!(pins.leaving(), 1);
        assert_eq!(pins.unname(shown), Some(Freed::Chunk(CHUNK)));
        assert_eq!((pins.leaving(), pins.unname(shown)), (0, None));
    }

    #[test]
    fn a_chunk_without_memory_counts_for_nothing_and_is_not_dropped() {
        let (mut lost, shown) = leaving(Presence::There);
        lost.lost(CHUNK);
        let (never_there, _) = leaving(Presence::Lost);
        for mut pins in [lost, never_there] {
            assert_eq!(pins.leaving(), 0);
            assert_eq!(pins.unname(shown), None);
        }
    }
}
