//! What arrived in staging and was not handed over yet, by where it lies.
//!
//! Arenas are divided into blocks of about a quarter of a batch, so that a batch looks only at what lies
//! beside it.

use alloc::{vec, vec::Vec};

use super::{Destination, Read};
use crate::{id::SampleId, session::Settings, units::Bytes};

/// Blocks of an arena for each batch that may be staged.
const BLOCKS_PER_BATCH: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    pub(super) offset: Bytes,
    pub(super) sample: SampleId,
    pub(super) read: Read,
}

#[derive(Debug)]
pub(super) struct Arrivals {
    first_rank: u32,
    block: u64,
    /// The blocks of each rank.
    ranks: Vec<Vec<Vec<Arrived>>>,
}

impl Arrivals {
    pub(super) fn new(settings: &Settings, first_rank: u32) -> Self {
        let blocks = u64::from(settings.staged_max().max(1)).saturating_mul(BLOCKS_PER_BATCH);
        let ranks = settings.order.world.ranks_per_node as usize;
        Self {
            first_rank,
            block: (settings.arena.0 / blocks).max(1),
            ranks: vec![Vec::new(); ranks],
        }
    }

    pub(super) fn add(&mut self, (rank, offset, sample): Destination, read: Read) {
        let Some(blocks) = self.ranks.get_mut((rank.0 - self.first_rank) as usize) else { return };
        let block = number(offset, self.block);
        if blocks.len() <= block {
            blocks.resize(block + 1, Vec::new());
        }
        blocks[block].push(Arrived { offset, sample, read });
    }

    /// Takes the last arrival of a sample at an offset.
    pub(super) fn remove(&mut self, (rank, offset, sample): Destination) -> Option<Read> {
        let blocks = self.ranks.get_mut((rank.0 - self.first_rank) as usize)?;
        let block = blocks.get_mut(number(offset, self.block))?;
        let at = block.iter().rposition(|it| (it.offset, it.sample) == (offset, sample))?;
        Some(block.remove(at).read)
    }

    /// Takes the arrivals in a range of an arena, in the order of offsets and samples. Of a sample that
    /// arrived twice at the same place, the last arrival comes last.
    pub(super) fn take(&mut self, rank: u32, offset: Bytes, len: Bytes, into: &mut Vec<Arrived>) {
        into.clear();
        let end = Bytes(offset.0.saturating_add(len.0));
        let (first, last) = (number(offset, self.block), number(end, self.block));
        let blocks = self.ranks.get_mut((rank - self.first_rank) as usize);
        for block in blocks.into_iter().flatten().take(last + 1).skip(first) {
            block.retain(|it| {
                let is_outside = it.offset < offset || it.offset >= end;
                if !is_outside {
                    into.push(*it);
                }
                is_outside
            });
        }
        into.sort_by_key(|it| (it.offset, it.sample));
    }
}

fn number(offset: Bytes, block: u64) -> usize {
    usize::try_from(offset.0 / block).unwrap_or(usize::MAX - 1)
}

/// Finds the arrivals of entries that come in ascending order of their offsets.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    left: &'a [Arrived],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(arrived: &'a [Arrived]) -> Self {
        Self { left: arrived }
    }

    pub(super) fn find(&mut self, offset: Bytes, sample: SampleId) -> Option<Read> {
        let behind = self.left.iter().position(|it| it.offset >= offset).unwrap_or(self.left.len());
        self.left = &self.left[behind..];
        // Empty samples share an offset with the next one.
        let there = self.left.iter().take_while(|it| it.offset == offset);
        there.filter(|it| it.sample == sample).last().map(|it| it.read)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{super::Source, *};
    use crate::id::Rank;

    proptest! {
        #[test]
        fn a_range_of_an_arena_has_what_a_map_has_there(
            arrived in prop::collection::vec((2_u32..4, 0_u64..40, 0_u32..3, 0_u64..90), 0..200),
            takes in prop::collection::vec((2_u32..4, 0_u64..40, 1_u64..20), 1..9),
            block in 1_u64..20,
        ) {
            let mut arrivals = Arrivals { first_rank: 2, block, ranks: vec![Vec::new(); 2] };
            let mut map = BTreeMap::new();
            for (rank, offset, sample, len) in arrived {
                let read = Read { source: Source::Cold, len: Bytes(len) };
                arrivals.add((Rank(rank), Bytes(offset), SampleId(sample)), read);
                map.insert((Rank(rank), Bytes(offset), SampleId(sample)), read);
            }
            let mut taken = Vec::new();
            for (rank, offset, len) in takes {
                arrivals.take(rank, Bytes(offset), Bytes(len), &mut taken);
                let mut cursor = Cursor::new(&taken);
                for at in (offset..offset + len).map(Bytes) {
                    for sample in (0..3).rev().map(SampleId) {
                        let expected = map.remove(&(Rank(rank), at, sample));
                        prop_assert_eq!(cursor.find(at, sample), expected);
                    }
                }
            }
        }
    }
}
