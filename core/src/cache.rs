//! What the tiers of a node hold, and what must move so that a sample gets its place.
//!
//! A tier takes memory chunk by chunk up to its limit. When it is full, the oldest samples leave in
//! FIFO order: one tier down if the policy still wants them, else out. The cache only keeps the
//! books; [`crate::session`] turns each [`Change`] into copies, and waits where a place changes hands
//! while bytes are still on their way.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A sample lies in at most one place, and no two places share a byte.
//! 2. No tier holds more chunks than its limit.
//! 3. A sample only ever moves to a slower tier.

#[cfg(test)]
mod tests;

use alloc::{collections::BTreeMap, vec::Vec};

use crate::{
    id::{ChunkId, SampleId, TierId},
    policy::{Candidate, Level, Outlook, Policy},
    session::Place,
    space::{PIECES_MAX, Space},
    tier::Buffer,
    units::Bytes,
};

/// Something that happened to the books and that bytes must follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The tier needs one more chunk before anything is written there.
    ChunkAdded {
        /// Which tier.
        tier: TierId,
        /// The name of the chunk.
        chunk: ChunkId,
    },
    /// Nothing lies in the chunk any more; it can be given back.
    ChunkDropped {
        /// Which tier.
        tier: TierId,
        /// Which chunk.
        chunk: ChunkId,
    },
    /// A sample went one or more tiers down.
    Demoted {
        /// Which sample.
        sample: SampleId,
        /// Its length.
        len: Bytes,
        /// Where it lay.
        from: Place,
        /// Where it lies now.
        to: Place,
    },
    /// A sample left the cache.
    Evicted {
        /// Which sample.
        sample: SampleId,
    },
}

#[derive(Debug)]
struct Resident {
    place: Place,
    len: Bytes,
    /// Its ticket in the FIFO queue of its tier.
    ticket: u64,
}

#[derive(Debug)]
struct Tier {
    space: Space,
    queue: BTreeMap<u64, SampleId>,
    chunks_max: u32,
    /// Chunks that the tier ever had. Numbers are not used again: an answer about a chunk that is
    /// long gone must not be taken for one about its successor.
    chunks_named: u32,
}

/// The books of all cache tiers of a node, fastest first.
#[derive(Debug)]
pub struct Cache {
    tiers: Vec<Tier>,
    residents: BTreeMap<SampleId, Resident>,
    chunk: Bytes,
    ticket: u64,
    changes: Vec<Change>,
}

impl Cache {
    /// Empty tiers that take memory in units of `chunk`.
    #[must_use]
    pub fn new(buffers: &[Buffer], chunk: Bytes) -> Self {
        let tiers = buffers.iter().map(|buffer| Tier {
            space: Space::new(),
            queue: BTreeMap::new(),
            chunks_max: buffer.chunks_max,
            chunks_named: 0,
        });
        Self {
            tiers: tiers.collect(),
            residents: BTreeMap::new(),
            chunk,
            ticket: 0,
            changes: Vec::new(),
        }
    }

    /// Where a sample lies.
    #[must_use]
    pub fn place(&self, sample: SampleId) -> Option<&Place> {
        self.residents.get(&sample).map(|resident| &resident.place)
    }

    /// Samples that lie in some tier.
    #[must_use]
    pub fn len(&self) -> usize {
        self.residents.len()
    }

    /// Whether no sample lies in any tier.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.residents.is_empty()
    }

    /// How full each tier is, counting the chunks that it may still take.
    #[must_use]
    pub fn levels(&self) -> Vec<Level> {
        self.tiers.iter().map(|tier| tier.level(self.chunk)).collect()
    }

    /// Chunks that a tier has, or is getting.
    #[must_use]
    pub fn chunk_count(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, |books| books.space.chunk_count())
    }

    /// Takes the changes since the last call, in the order in which they were made.
    pub fn take_changes(&mut self) -> Vec<Change> {
        core::mem::take(&mut self.changes)
    }

    /// Keeps a sample that is being staged, if the policy wants it and it can have a place.
    pub fn admit(
        &mut self,
        sample: SampleId,
        len: Bytes,
        policy: &dyn Policy,
        outlook: &dyn Outlook,
    ) -> Option<Place> {
        let candidate = Candidate { sample, len: Space::rounded(len) };
        if candidate.len.0 > self.chunk.0.saturating_mul(PIECES_MAX as u64) {
            return None;
        }
        let tier = policy.admit(candidate, outlook, &self.levels())?;
        self.settle(sample, len, tier, policy, outlook)
    }

    /// Strikes a sample whose bytes were lost.
    pub fn forget(&mut self, sample: SampleId) {
        self.remove(sample);
    }

    /// Sets how many chunks a tier may hold, and empties the chunks beyond, the youngest first.
    pub fn resize(
        &mut self,
        tier: TierId,
        chunks_max: u32,
        policy: &dyn Policy,
        outlook: &dyn Outlook,
    ) {
        let Some(books) = self.tiers.get_mut(usize::from(tier.0)) else { return };
        books.chunks_max = chunks_max;
        let surplus = books.space.chunks().skip(chunks_max as usize).collect::<Vec<_>>();
        for chunk in surplus.into_iter().rev() {
            self.clear_chunk(tier, chunk, policy, outlook);
        }
    }

    /// Strikes a chunk that could not be had, with every sample that was to lie there.
    ///
    /// The tier does not ask for more than it has until [`Self::resize`] says that it may.
    pub fn lose_chunk(&mut self, tier: TierId, chunk: ChunkId) {
        let has_chunk = |books: &Tier| books.space.chunks().any(|other| other == chunk);
        if !self.tiers.get(usize::from(tier.0)).is_some_and(has_chunk) {
            return;
        }
        for sample in self.residents_of(tier, chunk) {
            self.remove(sample);
        }
        let books = &mut self.tiers[usize::from(tier.0)];
        books.space.remove_chunk(chunk);
        books.chunks_max = books.space.chunk_count();
    }

    /// Finds a place in `tier`, which may first have to give up its oldest samples.
    fn settle(
        &mut self,
        sample: SampleId,
        len: Bytes,
        tier: TierId,
        policy: &dyn Policy,
        outlook: &dyn Outlook,
    ) -> Option<Place> {
        loop {
            if let Some(place) = self.occupy(sample, len, tier) {
                return Some(place);
            }
            let oldest = self.tiers[usize::from(tier.0)].queue.first_key_value();
            let oldest = oldest.map(|(_, sample)| *sample)?;
            self.displace(oldest, policy, outlook);
        }
    }

    /// Takes a place in `tier` without giving anything up, with a new chunk if need be.
    fn occupy(&mut self, sample: SampleId, len: Bytes, tier: TierId) -> Option<Place> {
        let books = self.tiers.get_mut(usize::from(tier.0))?;
        while books.space.free() < Space::rounded(len) {
            if books.space.chunk_count() >= books.chunks_max {
                return None;
            }
            let chunk = books.add_chunk(self.chunk);
            self.changes.push(Change::ChunkAdded { tier, chunk });
        }
        let mut pieces = books.space.take(len);
        while pieces.is_none() && books.space.chunk_count() < books.chunks_max {
            // Enough is free, but in too many pieces.
            let chunk = books.add_chunk(self.chunk);
            self.changes.push(Change::ChunkAdded { tier, chunk });
            pieces = books.space.take(len);
        }
        let place = Place { tier, pieces: pieces? };
        if books.space.free().0 < self.chunk.0 / 2 && books.space.chunk_count() < books.chunks_max {
            // Ahead of need: filling a chunk with pages takes longer than filling it with bytes.
            let chunk = books.add_chunk(self.chunk);
            self.changes.push(Change::ChunkAdded { tier, chunk });
        }
        let ticket = self.ticket;
        self.ticket += 1;
        books.queue.insert(ticket, sample);
        self.residents.insert(sample, Resident { place: place.clone(), len, ticket });
        Some(place)
    }

    /// Makes a sample leave its tier: to the next slower one that can hold it, else out.
    fn displace(&mut self, sample: SampleId, policy: &dyn Policy, outlook: &dyn Outlook) {
        let Some(Resident { place: from, len, .. }) = self.remove(sample) else { return };
        let candidate = Candidate { sample, len: Space::rounded(len) };
        let levels = self.levels();
        let below = usize::from(from.tier.0) + 1;
        let target = (below..levels.len()).find(|tier| levels[*tier].capacity >= candidate.len);
        let target = target.filter(|_| policy.wants(candidate, outlook, &levels));
        let place = target.and_then(|tier| {
            let tier = TierId(u8::try_from(tier).expect("tiers are counted in a byte"));
            self.settle(sample, len, tier, policy, outlook)
        });
        self.changes.push(match place {
            Some(to) => Change::Demoted { sample, len, from, to },
            None => Change::Evicted { sample },
        });
    }

    fn clear_chunk(
        &mut self,
        tier: TierId,
        chunk: ChunkId,
        policy: &dyn Policy,
        outlook: &dyn Outlook,
    ) {
        for sample in self.residents_of(tier, chunk) {
            self.displace(sample, policy, outlook);
        }
        self.tiers[usize::from(tier.0)].space.remove_chunk(chunk);
        self.changes.push(Change::ChunkDropped { tier, chunk });
    }

    /// The samples with a piece in a chunk, oldest first. Linear: chunks are given back seldom.
    fn residents_of(&self, tier: TierId, chunk: ChunkId) -> Vec<SampleId> {
        let lies_there = |sample: &&SampleId| {
            let place = self.place(**sample);
            place.is_some_and(|it| it.pieces.iter().any(|piece| piece.chunk == chunk))
        };
        let Some(books) = self.tiers.get(usize::from(tier.0)) else { return Vec::new() };
        books.queue.values().filter(lies_there).copied().collect()
    }

    fn remove(&mut self, sample: SampleId) -> Option<Resident> {
        let resident = self.residents.remove(&sample)?;
        let books = &mut self.tiers[usize::from(resident.place.tier.0)];
        books.queue.remove(&resident.ticket);
        books.space.give_back(&resident.place.pieces);
        Some(resident)
    }
}

impl Tier {
    fn add_chunk(&mut self, len: Bytes) -> ChunkId {
        let chunk = ChunkId(self.chunks_named);
        self.chunks_named += 1;
        self.space.add_chunk(chunk, len);
        chunk
    }

    fn level(&self, chunk: Bytes) -> Level {
        let to_come = u64::from(self.chunks_max.saturating_sub(self.space.chunk_count()));
        Level {
            capacity: Bytes(u64::from(self.chunks_max).saturating_mul(chunk.0)),
            free: Bytes(self.space.free().0.saturating_add(to_come.saturating_mul(chunk.0))),
        }
    }
}
