//! The place of every sample in the tiers, and the samples of every chunk.
//!
//! A read asks for the place of its sample, so the place of almost every one is a word in a table: one
//! piece, whose length follows from that of the sample. A place in several pieces stands apart.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The table holds what a map would.
//! 2. A chunk has the samples whose place has a piece in it, and lists at most [`SPARSE`] times as many
//!    pieces, and [`LIST_MIN`] more.

use alloc::{collections::BTreeMap, sync::Arc, vec, vec::Vec};
use core::hint::black_box;

use crate::{
    id::{ChunkId, SampleId, TierId},
    place::{Pieces, Place},
    space::{GRAIN, Piece, Space},
    units::Bytes,
};

/// Entries in the list of a chunk for each piece there, at most.
const SPARSE: usize = 2;

/// A list of up to this length is never shortened.
const LIST_MIN: usize = 64;

/// The places of the samples of a dataset: 8 bytes for each of them, and 4 to 8 for each that has a place.
#[derive(Debug)]
pub(super) struct Places {
    sizes: Arc<[Bytes]>,
    words: Vec<Word>,
    /// The places that do not fit into a word.
    others: BTreeMap<SampleId, Place>,
    len: usize,
    chunks: BTreeMap<(TierId, ChunkId), Chunk>,
}

/// The place of a sample: tier, chunk and offset, or [`Word::NOWHERE`], or [`Word::OTHER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    /// The sample has no place. All bits are zero, so that a table without places takes no memory.
    const NOWHERE: Self = Self(0);
    /// The place is in [`Places::others`].
    const OTHER: Self = Self(u64::MAX);

    const CHUNK_SHIFT: u32 = 36;
    const TIER_SHIFT: u32 = 60;
    const GRAINS_MAX: u64 = (1 << Self::CHUNK_SHIFT) - 1;
    const CHUNK_MAX: u32 = (1 << (Self::TIER_SHIFT - Self::CHUNK_SHIFT)) - 1;
    /// A tier above would reach [`Self::OTHER`].
    const TIER_MAX: u8 = 14;

    /// A place in one piece that is as long as its sample of `len` bytes.
    fn of(place: &Place, len: Bytes) -> Self {
        let (Pieces::One(piece), TierId(tier)) = (&place.pieces, place.tier) else {
            return Self::OTHER;
        };
        let (Piece { chunk: ChunkId(chunk), offset, .. }, grains) =
            (*piece, piece.offset.0 / GRAIN);
        let is_plain = piece.len == Space::rounded(len) && offset.0.is_multiple_of(GRAIN);
        if !is_plain
            || tier > Self::TIER_MAX
            || chunk > Self::CHUNK_MAX
            || grains > Self::GRAINS_MAX
        {
            return Self::OTHER;
        }
        let tier = u64::from(tier) << Self::TIER_SHIFT;
        Self((tier | u64::from(chunk) << Self::CHUNK_SHIFT | grains) + 1)
    }

    /// The place of a sample of `len` bytes; the word is one of [`Self::of`].
    fn place(self, len: Bytes) -> Place {
        let bits = self.0 - 1;
        let tier = u8::try_from(bits >> Self::TIER_SHIFT).expect("four bits");
        let chunk = bits >> Self::CHUNK_SHIFT & u64::from(Self::CHUNK_MAX);
        let piece = Piece {
            chunk: ChunkId(u32::try_from(chunk).expect("24 bits")),
            offset: Bytes((bits & Self::GRAINS_MAX) * GRAIN),
            len: Space::rounded(len),
        };
        Place { tier: TierId(tier), pieces: Pieces::One(piece) }
    }
}

#[derive(Debug, Default)]
struct Chunk {
    /// The samples that got a piece here, those that left since included.
    listed: Vec<SampleId>,
    /// Pieces that lie here.
    pieces: usize,
}

impl Places {
    pub(super) fn new(sizes: Arc<[Bytes]>) -> Self {
        let words = vec![Word::NOWHERE; sizes.len()];
        Self { sizes, words, others: BTreeMap::new(), len: 0, chunks: BTreeMap::new() }
    }

    /// Samples that have a place.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Reads the entries of samples that are asked for one by one soon, independently of each other, so
    /// that they are in the CPU caches then.
    pub(super) fn touch(&self, samples: &[SampleId]) {
        let word = |sample: &SampleId| self.words.get(sample.0 as usize).map_or(0, |word| word.0);
        black_box(samples.iter().fold(0, |sum, sample| sum ^ word(sample)));
    }

    pub(super) fn get(&self, sample: SampleId) -> Option<Place> {
        match *self.words.get(sample.0 as usize)? {
            Word::NOWHERE => None,
            Word::OTHER => self.others.get(&sample).cloned(),
            word => Some(word.place(self.sizes[sample.0 as usize])),
        }
    }

    pub(super) fn contains(&self, sample: SampleId) -> bool {
        self.words.get(sample.0 as usize).is_some_and(|word| *word != Word::NOWHERE)
    }

    /// Gives a place to a sample that has none.
    pub(super) fn insert(&mut self, sample: SampleId, place: Place) {
        for piece in &place.pieces {
            let chunk = self.chunks.entry((place.tier, piece.chunk)).or_default();
            chunk.listed.push(sample);
            chunk.pieces += 1;
        }
        let word = Word::of(&place, self.sizes[sample.0 as usize]);
        self.words[sample.0 as usize] = word;
        if word == Word::OTHER {
            self.others.insert(sample, place);
        }
        self.len += 1;
    }

    pub(super) fn remove(&mut self, sample: SampleId) -> Option<Place> {
        let place = self.get(sample)?;
        self.words[sample.0 as usize] = Word::NOWHERE;
        self.others.remove(&sample);
        self.len -= 1;
        for piece in &place.pieces {
            self.leave((place.tier, piece.chunk));
        }
        Some(place)
    }

    /// The samples with a piece in a chunk, in ascending order.
    pub(super) fn in_chunk(&self, tier: TierId, chunk: ChunkId) -> Vec<SampleId> {
        let listed = self.chunks.get(&(tier, chunk)).map(|chunk| chunk.listed.clone());
        self.there((tier, chunk), listed.unwrap_or_default())
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (SampleId, Place)> + '_ {
        let samples = (0..u32::try_from(self.words.len()).unwrap()).map(SampleId);
        samples.filter_map(|sample| Some((sample, self.get(sample)?)))
    }

    fn leave(&mut self, key: (TierId, ChunkId)) {
        let Some(chunk) = self.chunks.get_mut(&key) else { return };
        chunk.pieces -= 1;
        if chunk.pieces == 0 {
            self.chunks.remove(&key);
        } else if chunk.listed.len() > SPARSE * chunk.pieces + LIST_MIN {
            let listed = core::mem::take(&mut chunk.listed);
            let there = self.there(key, listed);
            self.chunks.entry(key).or_default().listed = there;
        }
    }

    /// Those of the samples that have a piece in a chunk, each once, in ascending order.
    fn there(&self, (tier, chunk): (TierId, ChunkId), mut listed: Vec<SampleId>) -> Vec<SampleId> {
        listed.sort_unstable();
        listed.dedup();
        listed.retain(|sample| {
            let place = self.get(*sample).filter(|place| place.tier == tier);
            place.is_some_and(|place| place.pieces.iter().any(|piece| piece.chunk == chunk))
        });
        listed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: u32 = 40;

    #[derive(Debug, Clone)]
    enum Op {
        Put(u8, Vec<(u32, u64)>),
        Remove,
    }

    fn any_op() -> impl Strategy<Value = Op> {
        let chunk = prop_oneof![9 => 0_u32..4, 1 => Word::CHUNK_MAX..u32::MAX];
        let offset = prop_oneof![9 => 0_u64..9, 1 => Word::GRAINS_MAX - 1..Word::GRAINS_MAX + 9];
        let tier = prop_oneof![9 => 0_u8..3, 1 => 13_u8..16];
        let pieces = prop_oneof![
            6 => prop::collection::vec((chunk.clone(), offset.clone()), 1),
            1 => prop::collection::vec((chunk, offset), 2..5),
        ];
        prop_oneof![3 => (tier, pieces).prop_map(|(tier, pieces)| Op::Put(tier, pieces)),
                    2 => Just(Op::Remove)]
    }

    proptest! {
        #[test]
        fn the_table_is_a_map_and_knows_what_lies_in_each_chunk(
            ops in prop::collection::vec((0..SAMPLES, any_op()), 1..400),
            lens in prop::collection::vec(0_u64..300, SAMPLES as usize),
        ) {
            let sizes: Arc<[Bytes]> = lens.into_iter().map(Bytes).collect();
            let mut places = Places::new(Arc::clone(&sizes));
            let mut map: BTreeMap<SampleId, Place> = BTreeMap::new();
            for (sample, op) in ops {
                let sample = SampleId(sample);
                prop_assert_eq!(places.remove(sample), map.remove(&sample), "invariant 1");
                if let Op::Put(tier, pieces) = op {
                    let len = Space::rounded(sizes[sample.0 as usize]);
                    let piece = |(chunk, grain): (u32, u64)| {
                        Piece { chunk: ChunkId(chunk), offset: Bytes(grain * GRAIN), len }
                    };
                    let pieces = pieces.into_iter().map(piece).collect();
                    let place = Place { tier: TierId(tier), pieces };
                    places.insert(sample, place.clone());
                    map.insert(sample, place);
                }
                for (key, chunk) in &places.chunks {
                    let most = SPARSE * chunk.pieces + LIST_MIN;
                    prop_assert!(chunk.listed.len() <= most, "invariant 2: {key:?}");
                }
            }
            prop_assert_eq!(places.len(), map.len());
            prop_assert!(places.iter().eq(map.iter().map(|(sample, place)| (*sample, place.clone()))));
            let there = |tier, chunk| {
                let lies = |place: &Place| {
                    place.tier == tier && place.pieces.iter().any(|piece| piece.chunk == chunk)
                };
                map.iter().filter(|(_, place)| lies(place)).map(|(it, _)| *it).collect::<Vec<_>>()
            };
            for (tier, chunk) in (0..4).flat_map(|tier| (0..5).map(move |it| (TierId(tier), ChunkId(it)))) {
                prop_assert_eq!(places.in_chunk(tier, chunk), there(tier, chunk), "invariant 2");
            }
        }
    }
}
