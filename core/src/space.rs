//! Which bytes of a tier's chunks are free, and which are taken.
//!
//! A cached sample that is copied need not lie in one piece: a request takes the smallest hole that
//! holds it, or if there is none, the largest holes until it is satisfied. Holes that are too small
//! for any sample are therefore used again, and a tier fills to its last grain. On a disk a request
//! takes the next hole, as a log would, as long as one holds it.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A byte is free or belongs to exactly one place.
//! 2. `free` equals the sum of all holes; neighbouring holes are one hole.
//! 3. A request is satisfied if and only if `free` suffices and it needs at most [`PIECES_MAX`]
//!    pieces.
//! 4. Equal requests in equal order give equal places: ties go to the lowest chunk and offset.

mod holes;

use alloc::{collections::BTreeMap, vec::Vec};

use self::holes::Holes;
use crate::{id::ChunkId, units::Bytes};

/// The allocation granularity, so that copies start on a cache line.
pub const GRAIN: u64 = 64;

/// A sample that needs more pieces than this is not kept: the copies would be too small.
pub const PIECES_MAX: usize = 64;

/// A range of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    pub chunk: ChunkId,
    pub offset: Bytes,
    /// Length, a multiple of [`GRAIN`].
    pub len: Bytes,
}

impl Piece {
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.chunk == other.chunk
            && self.offset.0 < other.offset.0 + other.len.0
            && other.offset.0 < self.offset.0 + self.len.0
    }
}

/// Holes that are examined in log order; if none of them fits, the best fit is taken.
const LOOK_AHEAD: usize = 64;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Fit {
    /// The smallest hole that holds the request.
    #[default]
    Best,
    /// The next hole that holds it, starting at the end of the previous request.
    Next(ChunkId, u64),
}

/// The lengths of holes by position, for tiers in log order.
type InOrder = BTreeMap<(ChunkId, u64), u64>;

#[derive(Debug, Default)]
pub struct Space {
    holes: Holes,
    /// The same holes in the order of their positions; empty without log order.
    in_order: InOrder,
    chunks: BTreeMap<ChunkId, u64>,
    fit: Fit,
}

impl Space {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A tier without chunks in which consecutive requests lie side by side, as far as the holes allow, so
    /// that a disk writes them together.
    #[must_use]
    pub fn in_log_order() -> Self {
        Self { fit: Fit::Next(ChunkId(0), 0), ..Self::default() }
    }

    #[must_use]
    pub fn free(&self) -> Bytes {
        Bytes(self.holes.free())
    }

    #[must_use]
    pub fn capacity(&self) -> Bytes {
        Bytes(self.chunks.values().sum())
    }

    /// In ascending order.
    pub fn chunks(&self) -> impl DoubleEndedIterator<Item = ChunkId> + '_ {
        self.chunks.keys().copied()
    }

    /// The number of chunks.
    ///
    /// # Panics
    ///
    /// Beyond 2^32 chunks, which no limit admits.
    #[must_use]
    pub fn chunk_count(&self) -> u32 {
        u32::try_from(self.chunks.len()).expect("chunks are numbered in 32 bits")
    }

    /// Bytes that a sample of this length occupies.
    #[must_use]
    pub fn rounded(len: Bytes) -> Bytes {
        Bytes(len.0.max(1).next_multiple_of(GRAIN))
    }

    /// Adds an empty chunk.
    ///
    /// # Panics
    ///
    /// If the chunk was added before: two places would share its bytes.
    pub fn add_chunk(&mut self, chunk: ChunkId, len: Bytes) {
        let previous = self.chunks.insert(chunk, len.0);
        assert!(previous.is_none(), "{chunk:?} was added twice");
        self.insert_hole(chunk, 0, len.0);
    }

    /// Removes a chunk whose bytes are all free.
    ///
    /// # Panics
    ///
    /// If a byte of it is in use: its owner would lose it.
    pub fn remove_chunk(&mut self, chunk: ChunkId) {
        let len = self.chunks.remove(&chunk).expect("only a chunk that was added is removed");
        let hole = self.holes.starting_at(chunk, 0);
        assert_eq!(hole, Some(len), "{chunk:?} is still in use");
        self.remove_hole(chunk, 0, len);
    }

    /// Removes a chunk with everything that lies in it. Pieces taken from it must not be given
    /// back.
    ///
    /// # Panics
    ///
    /// If there is no such chunk.
    pub fn abandon_chunk(&mut self, chunk: ChunkId) {
        self.take_behind(chunk, Bytes(0));
        let len = self.chunks.remove(&chunk);
        assert!(len.is_some(), "only a chunk that was added is abandoned");
    }

    /// Takes `len` bytes, in one piece if some hole holds them.
    ///
    /// Returns `None`, and takes nothing, if too few bytes are free or they would form too many
    /// pieces.
    pub fn take(&mut self, len: Bytes) -> Option<Vec<Piece>> {
        let needed = Self::rounded(len).0;
        if needed > self.holes.free() {
            return None;
        }
        match self.take_next(needed).or_else(|| self.take_contiguous(len)) {
            Some(piece) => Some(alloc::vec![piece]),
            None => self.take_scattered(needed),
        }
    }

    /// Gives a place back.
    ///
    /// # Panics
    ///
    /// If it starts or ends with a hole: it was given back twice.
    pub fn give_back(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            self.give_back_piece(*piece);
        }
    }

    /// In one piece; `None` if no hole is large enough.
    pub fn take_contiguous(&mut self, len: Bytes) -> Option<Piece> {
        let needed = Self::rounded(len).0;
        let hole = self.holes.best_fit(needed)?;
        self.cut(hole, needed);
        Some(Piece { len: Bytes(needed), ..hole })
    }

    /// `None` if the tier has no log order, or none of the next [`LOOK_AHEAD`] holes fits.
    fn take_next(&mut self, needed: u64) -> Option<Piece> {
        let Fit::Next(chunk, offset) = self.fit else { return None };
        let (ahead, behind) = (self.in_order.range((chunk, offset)..), ..(chunk, offset));
        let mut ahead = ahead.chain(self.in_order.range(behind)).take(LOOK_AHEAD);
        let (&(chunk, offset), &len) = ahead.find(|(_, hole_len)| **hole_len >= needed)?;
        let hole = Piece { chunk, offset: Bytes(offset), len: Bytes(len) };
        self.cut(hole, needed);
        self.fit = Fit::Next(chunk, offset + needed);
        Some(Piece { len: Bytes(needed), ..hole })
    }

    /// Takes every free byte of a chunk from `offset` on, a multiple of [`GRAIN`].
    pub fn take_behind(&mut self, chunk: ChunkId, offset: Bytes) -> Vec<Piece> {
        let holes = self.holes.of_chunk(chunk).into_iter();
        let behind = holes.filter(|hole| hole.offset.0 + hole.len.0 > offset.0);
        let take = |hole: Piece| {
            let (start, from) = (hole.offset.0, hole.offset.0.max(offset.0));
            self.remove_hole(chunk, start, hole.len.0);
            if from > start {
                self.insert_hole(chunk, start, from - start);
            }
            Piece { offset: Bytes(from), len: Bytes(start + hole.len.0 - from), ..hole }
        };
        behind.map(take).collect()
    }

    fn take_scattered(&mut self, needed: u64) -> Option<Vec<Piece>> {
        let mut missing = needed;
        let mut cuts = Vec::new();
        for hole in self.holes.longest_first().take(PIECES_MAX) {
            let len = hole.len.0.min(missing);
            cuts.push((hole, len));
            missing -= len;
            if missing == 0 {
                break;
            }
        }
        if missing > 0 {
            return None;
        }
        let cut = |(hole, len): (Piece, u64)| {
            self.cut(hole, len);
            Piece { len: Bytes(len), ..hole }
        };
        Some(cuts.into_iter().map(cut).collect())
    }

    /// Takes the start of a hole.
    fn cut(&mut self, hole: Piece, taken: u64) {
        let Piece { chunk, offset, len } = hole;
        self.holes.cut(chunk, offset.0, len.0, taken);
        if self.fit != Fit::Best {
            self.in_order.remove(&(chunk, offset.0));
            if len.0 > taken {
                self.in_order.insert((chunk, offset.0 + taken), len.0 - taken);
            }
        }
    }

    fn give_back_piece(&mut self, piece: Piece) {
        let Piece { chunk, offset: Bytes(start), len: Bytes(len) } = piece;
        let end = start + len;
        let is_free = self.holes.starting_at(chunk, start).is_some()
            || self.holes.ending_at(chunk, end).is_some();
        assert!(!is_free, "{piece:?} was given back twice");
        let behind = self.holes.starting_at(chunk, end);
        let before = self.holes.ending_at(chunk, start);
        match (before, behind) {
            (None, None) => self.holes.insert(chunk, start, len),
            (None, Some(behind)) => self.holes.prepend(chunk, start, len, behind),
            (Some(before), None) => self.holes.append(chunk, start, len, before),
            (Some(before), Some(behind)) => {
                self.holes.remove(chunk, end, behind);
                self.holes.append(chunk, start, len + behind, before);
            }
        }
        if self.fit != Fit::Best {
            let (before, behind) = (before.unwrap_or(0), behind.unwrap_or(0));
            self.in_order.remove(&(chunk, end));
            self.in_order.insert((chunk, start - before), before + len + behind);
        }
    }

    fn insert_hole(&mut self, chunk: ChunkId, offset: u64, len: u64) {
        self.holes.insert(chunk, offset, len);
        if self.fit != Fit::Best {
            self.in_order.insert((chunk, offset), len);
        }
    }

    fn remove_hole(&mut self, chunk: ChunkId, offset: u64, len: u64) {
        self.holes.remove(chunk, offset, len);
        if self.fit != Fit::Best {
            self.in_order.remove(&(chunk, offset));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CHUNK: u64 = 64 * GRAIN;

    fn space_of(chunks: u32) -> Space {
        let mut space = Space::new();
        (0..chunks).for_each(|chunk| space.add_chunk(ChunkId(chunk), Bytes(CHUNK)));
        space
    }

    #[test]
    fn a_sample_takes_the_smallest_hole_that_holds_it() {
        let mut space = space_of(1);
        let first = space.take(Bytes(2 * GRAIN)).unwrap();
        let second = space.take(Bytes(GRAIN)).unwrap();
        space.take(Bytes(GRAIN)).unwrap();
        space.give_back(&first);
        space.give_back(&second);
        space.take(Bytes(3 * GRAIN)).unwrap();
        let third = space.take(Bytes(GRAIN)).unwrap();
        assert_eq!(third[0].offset, Bytes(4 * GRAIN), "the two holes became one and were used");
    }

    #[test]
    fn holes_that_hold_no_sample_are_used_together() {
        let mut space = space_of(1);
        let places: Vec<_> = (0..64).map(|_| space.take(Bytes(GRAIN)).unwrap()).collect();
        places.iter().step_by(2).for_each(|place| space.give_back(place));
        let scattered = space.take(Bytes(32 * GRAIN)).unwrap();
        assert_eq!(scattered.len(), 32);
        assert_eq!(space.free(), Bytes(0));
    }

    #[test]
    fn in_log_order_requests_lie_beside_one_another() {
        let mut space = Space::in_log_order();
        (0..2).for_each(|chunk| space.add_chunk(ChunkId(chunk), Bytes(CHUNK)));
        let places: Vec<_> = (0..40).map(|_| space.take(Bytes(3 * GRAIN)).unwrap()).collect();
        let pieces: Vec<Piece> = places.iter().flatten().copied().collect();
        assert_eq!(pieces.len(), 40, "one piece each");
        let is_next = |a: &Piece, b: &Piece| {
            b.offset.0 == a.offset.0 + a.len.0 || (b.chunk > a.chunk && b.offset.0 == 0)
        };
        assert!(pieces.is_sorted_by(is_next), "{pieces:?}");
        // Space given back behind the log's end is used when the log wraps around to it.
        space.give_back(&places[0]);
        space.give_back(&places[1]);
        let next = space.take(Bytes(GRAIN)).unwrap();
        assert_eq!((next[0].chunk, next[0].offset.0), (ChunkId(1), 19 * 3 * GRAIN));
    }

    proptest! {
        #[test]
        fn what_is_taken_behind_an_offset_is_all_that_is_free_there(
            lens in prop::collection::vec(1_u64..12 * GRAIN, 1..20),
            kept in prop::collection::vec(any::<bool>(), 20),
            offset in 0_u64..64,
        ) {
            let mut space = space_of(2);
            let places: Vec<_> = lens.iter().filter_map(|len| space.take(Bytes(*len))).collect();
            let (kept, freed): (Vec<_>, Vec<_>) =
                places.into_iter().zip(kept).partition(|(_, kept)| *kept);
            freed.iter().for_each(|(place, _)| space.give_back(place));
            let (chunk, offset) = (ChunkId(0), Bytes(offset * GRAIN));
            let behind = |piece: &&Piece| piece.chunk == chunk;
            let taken: u64 = kept.iter().flat_map(|(place, _)| place).filter(behind)
                .map(|it| (it.offset.0 + it.len.0).saturating_sub(it.offset.0.max(offset.0))).sum();
            let free = space.free();
            let pieces = space.take_behind(chunk, offset);
            prop_assert!(pieces.iter().all(|it| it.chunk == chunk && it.offset >= offset));
            let found: u64 = pieces.iter().map(|it| it.len.0).sum();
            prop_assert_eq!(found, CHUNK - offset.0 - taken);
            prop_assert_eq!(space.free().0, free.0 - found, "invariant 2");
            prop_assert_eq!(space.take_behind(chunk, offset), []);
            space.give_back(&pieces);
            prop_assert_eq!(space.free(), free, "invariant 2");
        }

        #[test]
        fn no_byte_has_two_owners_and_none_is_lost(
            requests in prop::collection::vec((1_u64..30 * GRAIN, any::<bool>(), 0_usize..8), 1..200),
            is_log: bool,
        ) {
            let mut space = if is_log { Space::in_log_order() } else { Space::new() };
            (0..3).for_each(|chunk| space.add_chunk(ChunkId(chunk), Bytes(CHUNK)));
            let mut owned: Vec<Vec<Piece>> = Vec::new();
            for (len, give_back, which) in requests {
                if give_back && !owned.is_empty() {
                    let place = owned.swap_remove(which % owned.len());
                    space.give_back(&place);
                } else {
                    let free = space.free().0;
                    let place = space.take(Bytes(len));
                    prop_assert_eq!(place.is_some(), Space::rounded(Bytes(len)).0 <= free, "invariant 3");
                    owned.extend(place);
                }
                let taken: u64 = owned.iter().flatten().map(|piece| piece.len.0).sum();
                prop_assert_eq!(space.free().0, 3 * CHUNK - taken, "invariant 2");
                let mut pieces: Vec<_> = owned.iter().flatten().copied().collect();
                pieces.sort();
                prop_assert!(pieces.is_sorted_by(|a, b| !a.overlaps(b)), "invariant 1");
            }
            owned.iter().for_each(|place| space.give_back(place));
            prop_assert_eq!(space.holes.len(), 3, "holes did not join");
            (0..3).for_each(|chunk| space.remove_chunk(ChunkId(chunk)));
            prop_assert_eq!(space.capacity(), Bytes(0));
        }
    }
}
