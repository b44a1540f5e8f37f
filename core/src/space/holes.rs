//! The holes of the chunks of one tier: by where they start and end, to join neighbours, and by length, to
//! find the best fit.
//!
//! Every read that enters or leaves a tier takes and gives room, so nothing here is searched in a tree but
//! what is rare: holes of 4 MiB and more, and a hundred holes of one length.
//!
//! Invariant, checked by `mod tests`: every question has the answer that a sorted list of holes gives.

mod lengths;

use alloc::vec::Vec;

use self::lengths::Lengths;
use crate::{hash_table::HashTable, id::ChunkId, space::Piece, units::Bytes};

/// Chunk, and offset from its start.
type Position = (ChunkId, u64);

/// Ranges of chunks that are free. No two of them touch.
#[derive(Debug, Default)]
pub(super) struct Holes {
    by_start: HashTable<Position, u64>,
    by_end: HashTable<Position, u64>,
    lengths: Lengths,
    free: u64,
}

impl Holes {
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.by_start.len()
    }

    pub(super) fn starting_at(&self, chunk: ChunkId, offset: u64) -> Option<u64> {
        self.by_start.get((chunk, offset))
    }

    pub(super) fn ending_at(&self, chunk: ChunkId, end: u64) -> Option<u64> {
        self.by_end.get((chunk, end))
    }

    pub(super) fn insert(&mut self, chunk: ChunkId, offset: u64, len: u64) {
        self.by_start.insert((chunk, offset), len);
        self.by_end.insert((chunk, offset + len), len);
        self.lengths.insert((len, chunk, offset));
        self.free += len;
    }

    pub(super) fn remove(&mut self, chunk: ChunkId, offset: u64, len: u64) {
        self.by_start.remove((chunk, offset));
        self.by_end.remove((chunk, offset + len));
        self.lengths.remove((len, chunk, offset));
        self.free -= len;
    }

    /// Takes bytes from the start of the hole of `len` bytes at `offset`.
    pub(super) fn cut(&mut self, chunk: ChunkId, offset: u64, len: u64, taken: u64) {
        let left = len - taken;
        let end = self.by_end.get_mut((chunk, offset + len)).filter(|_| left > 0);
        let Some(end) = end else {
            self.remove(chunk, offset, len);
            return;
        };
        *end = left;
        self.by_start.remove((chunk, offset));
        self.by_start.insert((chunk, offset + taken), left);
        self.lengths.remove((len, chunk, offset));
        self.lengths.insert((left, chunk, offset + taken));
        self.free -= taken;
    }

    /// Adds bytes at `offset`, before the hole of `len` bytes that starts behind them.
    pub(super) fn prepend(&mut self, chunk: ChunkId, offset: u64, added: u64, len: u64) {
        let (start, whole) = (offset + added, added + len);
        self.by_start.remove((chunk, start));
        self.by_start.insert((chunk, offset), whole);
        self.by_end.insert((chunk, start + len), whole);
        self.lengths.remove((len, chunk, start));
        self.lengths.insert((whole, chunk, offset));
        self.free += added;
    }

    /// Adds bytes at `offset`, behind the hole of `len` bytes that ends there.
    pub(super) fn append(&mut self, chunk: ChunkId, offset: u64, added: u64, len: u64) {
        let (start, whole) = (offset - len, added + len);
        self.by_end.remove((chunk, offset));
        self.by_end.insert((chunk, offset + added), whole);
        self.by_start.insert((chunk, start), whole);
        self.lengths.remove((len, chunk, start));
        self.lengths.insert((whole, chunk, start));
        self.free += added;
    }

    /// The shortest hole of at least `needed` bytes; the lowest of several.
    pub(super) fn best_fit(&self, needed: u64) -> Option<Piece> {
        self.lengths.best_fit(needed).map(|(len, chunk, offset)| piece(chunk, offset, len))
    }

    /// The longest hole first; of equal ones the highest.
    pub(super) fn longest_first(&self) -> impl Iterator<Item = Piece> + '_ {
        self.lengths.descending().map(|(len, chunk, offset)| piece(chunk, offset, len))
    }

    /// In ascending order. Linear in all holes.
    pub(super) fn of_chunk(&self, chunk: ChunkId) -> Vec<Piece> {
        let of_chunk = self.by_start.iter().filter(|((of, _), _)| *of == chunk);
        let mut holes: Vec<Piece> =
            of_chunk.map(|((chunk, offset), len)| piece(chunk, offset, len)).collect();
        holes.sort_unstable();
        holes
    }
}

fn piece(chunk: ChunkId, offset: u64, len: u64) -> Piece {
    Piece { chunk, offset: Bytes(offset), len: Bytes(len) }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::space::GRAIN;

    fn touches(holes: &BTreeMap<Position, u64>, (chunk, offset): Position, len: u64) -> bool {
        holes.iter().any(|((other, start), other_len)| {
            *other == chunk && *start <= offset + len && offset <= start + other_len
        })
    }

    proptest! {
        #[test]
        fn every_hole_is_found_as_in_a_sorted_list(
            acts in prop::collection::vec((0_u32..3, 0_u64..400, 0_usize..6, 0_u64..3), 1..300),
            needed in prop::collection::vec(1_u64..600, 8),
        ) {
            let (mut holes, mut sorted) = (Holes::default(), BTreeMap::new());
            for (chunk, offset, len, rest) in acts {
                // Most are short; some lie in the tree of long ones, and not all are whole grains.
                let len = [1, 1, 2, 9, 65, 70_000][len] * GRAIN + rest / 2 * 7;
                let at = (ChunkId(chunk), offset * 100_000 * GRAIN);
                let (known, is_little) = (sorted.remove(&at), len < 100 * GRAIN);
                if let Some(known) = known.filter(|known| *known > len && rest == 1) {
                    holes.cut(at.0, at.1, known, len);
                    sorted.insert((at.0, at.1 + len), known - len);
                } else if let Some(known) = known.filter(|_| rest == 2 && is_little) {
                    holes.append(at.0, at.1 + known, len, known);
                    sorted.insert(at, known + len);
                } else if let Some(known) = known.filter(|_| at.1 >= len && is_little) {
                    holes.prepend(at.0, at.1 - len, len, known);
                    sorted.insert((at.0, at.1 - len), known + len);
                } else if let Some(known) = known {
                    holes.remove(at.0, at.1, known);
                } else if !touches(&sorted, at, len) {
                    holes.insert(at.0, at.1, len);
                    sorted.insert(at, len);
                }
            }
            let mut by_len: Vec<_> = sorted.iter().map(|((chunk, at), len)| (*len, *chunk, *at)).collect();
            by_len.sort_unstable();
            let by_len: Vec<_> = by_len.into_iter().map(|(len, chunk, at)| piece(chunk, at, len)).collect();
            for needed in needed.into_iter().flat_map(|it| [it * GRAIN, it * 3_000 * GRAIN]) {
                let best = by_len.iter().find(|it| it.len.0 >= needed).copied();
                prop_assert_eq!(holes.best_fit(needed), best);
            }
            prop_assert!(holes.longest_first().eq(by_len.iter().rev().copied()));
            for chunk in (0..3).map(ChunkId) {
                let of_chunk = sorted.iter().filter(|((of, _), _)| *of == chunk);
                let of_chunk = of_chunk.map(|((chunk, at), len)| piece(*chunk, *at, *len));
                prop_assert!(holes.of_chunk(chunk).into_iter().eq(of_chunk));
            }
            for ((chunk, at), len) in &sorted {
                prop_assert_eq!(holes.starting_at(*chunk, *at), Some(*len));
                prop_assert_eq!(holes.ending_at(*chunk, at + len), Some(*len));
            }
            prop_assert_eq!(holes.free(), sorted.values().sum::<u64>());
            prop_assert_eq!(holes.len(), sorted.len());
        }
    }
}
