//! Where in the tiers of a node every kept sample lies, and what must move so that it gets there.
//!
//! A policy decides which sample lies in which tier; the cache gives it a place there. A tier takes memory
//! chunk by chunk up to its limit. The cache moves no bytes: [`crate::session`] turns each [`Change`] into
//! copies, and waits where a place is given to another sample while bytes are still on their way.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A sample lies in at most one place, in the tier that the residency names, and no two places share a
//!    byte.
//! 2. No tier holds more chunks than its limit, except pinned ones when the limit falls.
//! 3. A pinned place keeps its bytes: no other sample lies there, and its chunk stays.

mod pins;
#[cfg(test)]
mod tests;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};

use self::pins::{Freed, Pins, Presence};
use crate::{
    batch::InPlace,
    id::{ChunkId, Epoch, SampleId, TierId},
    place::Place,
    retention::{
        future_accesses::FutureAccesses,
        policy::{Need, Planned, Policy, Preparation, Read},
        residency::{Level, Move, Residency},
        wear::Wear,
    },
    space::{PIECES_MAX, Space},
    tier::{Buffer, Kind},
    units::Bytes,
};

/// A change of places, which the bytes must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The tier needs one more chunk before anything is written there.
    ChunkAdded {
        /// The tier that grows.
        tier: TierId,
        /// The name of the new chunk.
        chunk: ChunkId,
    },
    /// Nothing lies in the chunk any more; it can be given back.
    ChunkDropped {
        /// The tier that shrinks.
        tier: TierId,
        /// The chunk that is empty.
        chunk: ChunkId,
    },
    /// The sample that was read stays: its bytes go from staging to its place.
    Kept {
        /// The sample that stays.
        sample: SampleId,
        /// Where it lies now.
        to: Place,
    },
    /// A sample went to another tier.
    Demoted {
        /// The sample that moved.
        sample: SampleId,
        /// The length of the sample.
        len: Bytes,
        /// Where it lay before.
        from: Place,
        /// Where it lies now.
        to: Place,
    },
    /// A sample left the cache.
    Evicted {
        /// The sample that left.
        sample: SampleId,
        /// The tier where it lay; `None` if it found no place at all.
        from: Option<TierId>,
    },
}

#[derive(Debug)]
struct Tier {
    space: Space,
    chunks_max: u32,
    /// Chunks that the tier ever had. Ids are not used again: an answer about a chunk that is gone must not
    /// be taken for one about its successor.
    chunks_added: u32,
    pins: Pins,
}

/// The places of all kept samples of a node, tiers fastest first.
#[derive(Debug)]
pub struct Cache {
    policy: Box<dyn Policy>,
    residency: Residency,
    sizes: Arc<[Bytes]>,
    tiers: Vec<Tier>,
    places: BTreeMap<SampleId, Place>,
    /// What has a piece in each chunk, so that a chunk is given back without a look at every place.
    residents: BTreeSet<(TierId, ChunkId, SampleId)>,
    chunk: Bytes,
    changes: Vec<Change>,
    wear: Wear,
}

impl Cache {
    /// Empty tiers that take memory in units of `chunk`, for samples of `sizes`.
    #[must_use]
    pub fn new(
        buffers: &[Buffer],
        chunk: Bytes,
        sizes: Arc<[Bytes]>,
        policy: Box<dyn Policy>,
    ) -> Self {
        let capacities = buffers.iter().map(|buffer| buffer.capacity(chunk));
        let tiers = buffers.iter().map(|buffer| Tier {
            space: space_of(buffer.kind),
            chunks_max: buffer.chunks_max,
            chunks_added: 0,
            pins: Pins::default(),
        });
        Self {
            policy,
            residency: Residency::new(Arc::clone(&sizes), capacities),
            sizes,
            tiers: tiers.collect(),
            places: BTreeMap::new(),
            residents: BTreeSet::new(),
            chunk,
            changes: Vec::new(),
            wear: Wear::default(),
        }
    }

    /// Writes no more to a tier than its wear allows.
    #[must_use]
    pub fn with_wear(self, wear: Wear) -> Self {
        Self { wear, ..self }
    }

    /// Where a sample lies.
    #[must_use]
    pub fn place(&self, sample: SampleId) -> Option<&Place> {
        self.places.get(&sample)
    }

    /// Samples that lie in some tier.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no sample lies in any tier.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How full each tier is, counting the chunks that it may still take.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        self.residency.levels()
    }

    /// Chunks that a tier has, or is getting, or is about to give back.
    #[must_use]
    pub fn chunk_count(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, Tier::chunk_count)
    }

    /// Chunks that a tier may have, by [`Self::resize`] and [`Self::lose_chunk`].
    #[must_use]
    pub fn chunks_max(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, |tier| tier.chunks_max)
    }

    /// Keeps a sample's bytes where they are for a batch that reads them in place, until [`Self::unpin`];
    /// `None` if the sample lies in no tier, or in several pieces.
    pub fn pin(&mut self, sample: SampleId) -> Option<InPlace> {
        let Place { tier, pieces } = self.places.get(&sample)?;
        let [piece] = pieces.as_slice() else { return None };
        self.tiers[usize::from(tier.0)].pins.pin(*piece);
        Some(InPlace { tier: *tier, chunk: piece.chunk, offset: piece.offset })
    }

    /// Removes one pin of a place. Each [`Self::pin`] is undone once.
    pub fn unpin(&mut self, place: InPlace) {
        let Some(tier) = self.tiers.get_mut(usize::from(place.tier.0)) else { return };
        match tier.pins.unpin(place) {
            Some(Freed::Piece(piece)) => tier.space.give_back(&[piece]),
            Some(Freed::Chunk(chunk)) => {
                self.changes.push(Change::ChunkDropped { tier: place.tier, chunk });
            }
            None => {}
        }
    }

    /// Takes the changes since the last call, in the order in which they were made.
    pub fn take_changes(&mut self) -> Vec<Change> {
        core::mem::take(&mut self.changes)
    }

    /// Lets the policy decide what stays of a read, and gives it places.
    pub fn read(&mut self, read: Read, future: &FutureAccesses) {
        self.wear.enter(read.at.epoch);
        self.policy.read(read, future, &mut self.residency);
        let moves: Vec<Move> = self.residency.drain_moves().collect();
        for Move { sample, to, .. } in moves {
            match to {
                // A sample that found no place in a tier above was removed already.
                Some(_) if self.residency.tier_of(sample).is_none() => {}
                Some(tier) => self.settle(sample, tier, Some(read.sample)),
                None => self.evict(sample),
            }
        }
    }

    /// Lets the policy prepare what reads of `epoch` need.
    pub fn prepare(&mut self, epoch: Epoch, need: Need, future: &FutureAccesses) -> Preparation {
        self.policy.prepare(epoch, need, future, &self.residency)
    }

    /// Gives the policy the result of its job.
    pub fn prepared(&mut self, planned: Planned) {
        self.policy.prepared(planned);
    }

    /// Removes a sample whose bytes were lost.
    pub fn forget(&mut self, sample: SampleId) {
        self.vacate(sample);
        self.remove(sample);
    }

    /// Sets how many chunks a tier may hold, and empties the chunks beyond, the youngest first: what
    /// lies there goes down where there is room, else out.
    pub fn resize(&mut self, tier: TierId, chunks_max: u32) {
        let Some(state) = self.tiers.get_mut(usize::from(tier.0)) else { return };
        state.chunks_max = chunks_max;
        self.residency.resize(tier, Bytes(u64::from(chunks_max).saturating_mul(self.chunk.0)));
        let surplus = state.space.chunks().skip(chunks_max as usize).collect::<Vec<_>>();
        for chunk in surplus.into_iter().rev() {
            for sample in self.residents_of(tier, chunk) {
                self.displace(sample, tier);
            }
            self.remove_chunk(tier, chunk, Presence::There);
        }
    }

    /// Removes a chunk that could not be added, with every sample that was to lie there.
    ///
    /// The tier does not ask for more than it has until [`Self::resize`] says that it may.
    pub fn lose_chunk(&mut self, tier: TierId, chunk: ChunkId) {
        if !self.has_chunk(tier, chunk) {
            let tier = self.tiers.get_mut(usize::from(tier.0));
            tier.into_iter().for_each(|tier| tier.pins.lost(chunk));
            return;
        }
        for sample in self.residents_of(tier, chunk) {
            self.forget(sample);
        }
        self.shrink_by(tier, chunk, Presence::Lost);
    }

    /// Gives up a chunk whose memory broke, with every sample in it; the tier is smaller by it, until
    /// [`Self::resize`] says otherwise.
    pub fn give_up_chunk(&mut self, tier: TierId, chunk: ChunkId) {
        if !self.has_chunk(tier, chunk) {
            return;
        }
        for sample in self.residents_of(tier, chunk) {
            self.evict(sample);
            self.remove(sample);
        }
        self.shrink_by(tier, chunk, Presence::There);
    }

    fn has_chunk(&self, tier: TierId, chunk: ChunkId) -> bool {
        let tier = self.tiers.get(usize::from(tier.0));
        tier.is_some_and(|of_tier| of_tier.space.chunks().any(|other| other == chunk))
    }

    /// Removes a chunk in which no sample lies, and its capacity.
    fn shrink_by(&mut self, tier: TierId, chunk: ChunkId, presence: Presence) {
        self.remove_chunk(tier, chunk, presence);
        let of_tier = &mut self.tiers[usize::from(tier.0)];
        of_tier.chunks_max = of_tier.space.chunk_count();
        self.residency
            .resize(tier, Bytes(u64::from(of_tier.chunks_max).saturating_mul(self.chunk.0)));
    }

    /// Removes a chunk in which no sample lies; pinned places there stay until their batches are gone.
    fn remove_chunk(&mut self, tier: TierId, chunk: ChunkId, presence: Presence) {
        let of_tier = &mut self.tiers[usize::from(tier.0)];
        if of_tier.pins.remove_chunk(chunk, presence) {
            of_tier.space.abandon_chunk(chunk);
            return;
        }
        of_tier.space.remove_chunk(chunk);
        if presence == Presence::There {
            self.changes.push(Change::ChunkDropped { tier, chunk });
        }
    }

    /// Gives a sample that the residency put into `tier` its place there; `staged` is the one whose bytes
    /// lie in staging. If the free bytes lie in too many pieces, or the tier was written enough in this
    /// epoch, the sample is evicted after all.
    fn settle(&mut self, sample: SampleId, tier: TierId, staged: Option<SampleId>) {
        let len = self.sizes[sample.0 as usize];
        let from = self.places.get(&sample).cloned();
        let may_go = self.wear.admits(tier, Space::rounded(len));
        let Some(place) = may_go.then(|| self.occupy(len, tier)).flatten() else {
            self.evict(sample);
            self.remove(sample);
            return;
        };
        self.vacate(sample);
        self.places.insert(sample, place.clone());
        let chunks = place.pieces.iter().map(|piece| (tier, piece.chunk, sample));
        self.residents.extend(chunks);
        match from {
            Some(from) if staged != Some(sample) => {
                self.changes.push(Change::Demoted { sample, len, from, to: place });
            }
            _ => self.changes.push(Change::Kept { sample, to: place }),
        }
    }

    /// Takes a place in `tier`, with new chunks if need be.
    fn occupy(&mut self, len: Bytes, tier: TierId) -> Option<Place> {
        let of_tier = self.tiers.get_mut(usize::from(tier.0))?;
        if Space::rounded(len).0 > self.chunk.0.saturating_mul(PIECES_MAX as u64) {
            return None;
        }
        let pieces = loop {
            let pieces = of_tier.space.take(len);
            if pieces.is_some() || of_tier.chunk_count() >= of_tier.chunks_max {
                break pieces;
            }
            let chunk = of_tier.add_chunk(self.chunk);
            self.changes.push(Change::ChunkAdded { tier, chunk });
        };
        if of_tier.space.free().0 < self.chunk.0 / 2 && of_tier.chunk_count() < of_tier.chunks_max {
            // Ahead of need: filling a chunk with pages takes longer than filling it with bytes.
            let chunk = of_tier.add_chunk(self.chunk);
            self.changes.push(Change::ChunkAdded { tier, chunk });
        }
        Some(Place { tier, pieces: pieces? })
    }

    /// Moves a sample out of a chunk that is taken away.
    fn displace(&mut self, sample: SampleId, from: TierId) {
        let below = self.residency.tiers().filter(|tier| *tier > from);
        let len = self.residency.len_of(sample);
        let to = below.into_iter().find(|tier| self.residency.free(*tier) >= len);
        if let Some(to) = to.filter(|to| self.residency.put(sample, *to).is_ok()) {
            self.policy.displaced(sample, from, Some(to));
            self.settle(sample, to, None);
        } else {
            self.evict(sample);
            self.remove(sample);
        }
        self.residency.drain_moves();
    }

    fn evict(&mut self, sample: SampleId) {
        let from = self.places.get(&sample).map(|place| place.tier);
        self.vacate(sample);
        self.changes.push(Change::Evicted { sample, from });
    }

    /// Removes a sample from the residency without a decision of the policy.
    fn remove(&mut self, sample: SampleId) {
        let Some(tier) = self.residency.tier_of(sample) else { return };
        self.residency.take_out(sample);
        self.residency.drain_moves();
        self.policy.displaced(sample, tier, None);
    }

    /// Gives the place of a sample back.
    fn vacate(&mut self, sample: SampleId) {
        let Some(Place { tier, pieces }) = self.places.remove(&sample) else { return };
        for piece in &pieces {
            self.residents.remove(&(tier, piece.chunk, sample));
        }
        let Tier { space, pins, .. } = &mut self.tiers[usize::from(tier.0)];
        let free = pieces.iter().filter(|piece| !pins.vacate(piece));
        free.for_each(|piece| space.give_back(core::slice::from_ref(piece)));
    }

    /// The samples with a piece in a chunk.
    fn residents_of(&self, tier: TierId, chunk: ChunkId) -> Vec<SampleId> {
        let of_chunk = (tier, chunk, SampleId(0))..=(tier, chunk, SampleId(u32::MAX));
        self.residents.range(of_chunk).map(|(.., sample)| *sample).collect()
    }
}

/// On a disk what is written after one another shall lie beside one another: it is written at once then.
fn space_of(kind: Kind) -> Space {
    match kind {
        Kind::Storage => Space::in_log_order(),
        Kind::MainMemory | Kind::CxlMemory | Kind::Scratch => Space::new(),
    }
}

impl Tier {
    fn chunk_count(&self) -> u32 {
        self.space.chunk_count().saturating_add(self.pins.leaving())
    }

    fn add_chunk(&mut self, len: Bytes) -> ChunkId {
        let chunk = ChunkId(self.chunks_added);
        self.chunks_added += 1;
        self.space.add_chunk(chunk, len);
        chunk
    }
}
