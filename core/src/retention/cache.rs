//! Where in the tiers of a node every kept sample lies, and what must move so that it gets there.
//!
//! A policy decides which sample lies in which tier; the cache gives it a place there. Room that no sample
//! has takes what is fetched ahead of its use ([`ahead`]), and gets it back when a sample is to stay. A
//! tier takes memory chunk by chunk up to its limit. The cache moves no bytes: [`crate::session`] turns each [`Change`] into
//! copies, and waits where a place is given to another sample while bytes are still on their way.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. A sample lies in at most one place, in the tier that the residency names, and no two places share a
//!    byte.
//! 2. No tier holds more chunks than its limit, except pinned ones when the limit falls.
//! 3. A pinned place keeps its bytes: no other sample lies there, and its chunk stays.

mod ahead;
mod pins;
mod places;
#[cfg(test)]
mod tests;

use alloc::{boxed::Box, sync::Arc, vec::Vec};

pub use self::ahead::Due;

use self::{
    ahead::{Ahead, Goes},
    pins::{Freed, Pins, Presence},
    places::Places,
};
use crate::{
    batch::InPlace,
    id::{BatchId, ChunkId, Epoch, NodeId, Rank, SampleId, TierId},
    place::{Pieces, Place},
    retention::{
        future_accesses::FutureAccesses,
        partition::Membership,
        policy::{Need, Planned, Policy, Preparation, Read},
        residency::{Level, Move, Residency},
        wear::Wear,
    },
    space::{PIECES_MAX, Space},
    tier::{Buffer, Kind},
    units::Bytes,
};

/// A change of places, which the caller carries out on the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The tier needs one more chunk before anything is written there.
    ChunkAdded {
        tier: TierId,
        chunk: ChunkId,
    },
    /// Nothing lies in the chunk any more; it can be given back.
    ChunkDropped {
        tier: TierId,
        chunk: ChunkId,
    },
    /// The sample that was read stays: its bytes are copied from staging to its place.
    Kept {
        sample: SampleId,
        to: Place,
    },
    Demoted {
        sample: SampleId,
        len: Bytes,
        from: Place,
        to: Place,
    },
    /// A sample that no tier holds is fetched into one, where it waits for its use.
    FetchedAhead {
        sample: SampleId,
        due: Due,
        len: Bytes,
        to: Place,
    },
    /// A sample that waits for its use moved to another tier.
    Shifted {
        sample: SampleId,
        due: Due,
        len: Bytes,
        from: Place,
        to: Place,
    },
    /// A sample gave up its place before the use that it waited for.
    Abandoned {
        sample: SampleId,
        due: Due,
        len: Bytes,
    },
    /// A sample that stayed only as long as its room was not wanted gave way to one that is fetched ahead.
    GaveWay {
        sample: SampleId,
        from: TierId,
    },
    Evicted {
        sample: SampleId,
        /// The tier where it lay; `None` if it found no place at all.
        from: Option<TierId>,
    },
}

impl Change {
    /// Whether bytes at places move, or a chunk comes or goes.
    #[must_use]
    pub fn uses_places(&self) -> bool {
        !matches!(self, Self::Abandoned { .. } | Self::GaveWay { .. } | Self::Evicted { .. })
    }
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
    places: Places,
    ahead: Ahead,
    /// By [`TierId`], whether samples wait there for their use; true for a tier without an entry.
    takes_ahead: Vec<bool>,
    keeps_empty: bool,
    /// Room for samples that wait for their use, which is kept from the policy.
    reserve: Bytes,
    /// Room that is left empty when a sample is fetched ahead into a tier where others stay: a mean sample,
    /// if they have several lengths. A sample that moves is seldom as long as the hole that it finds, and
    /// would push out samples that were fetched already.
    spare: Bytes,
    chunk: Bytes,
    changes: Vec<Change>,
    /// Empty between reads.
    moves: Vec<Move>,
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
            places: Places::new(Arc::clone(&sizes)),
            spare: spare(&sizes),
            sizes,
            tiers: tiers.collect(),
            ahead: Ahead::new(buffers.len()),
            takes_ahead: Vec::new(),
            keeps_empty: true,
            reserve: Bytes(0),
            chunk,
            changes: Vec::new(),
            moves: Vec::new(),
            wear: Wear::default(),
        }
    }

    #[must_use]
    pub fn with_wear(self, wear: Wear) -> Self {
        Self { wear, ..self }
    }

    /// Fetches nothing ahead into tiers that are `false` in `takes`, by [`TierId`]; all others take samples
    /// ahead.
    #[must_use]
    pub fn with_ahead_in(self, takes: Vec<bool>) -> Self {
        Self { takes_ahead: takes, ..self }
    }

    /// Keeps no sample without bytes: such a sample lacks the form in which tiers hold samples.
    #[must_use]
    pub fn without_empty(self) -> Self {
        Self { keeps_empty: false, ..self }
    }

    /// The place where a sample stays or waits for its use.
    #[must_use]
    pub fn place(&self, sample: SampleId) -> Option<Place> {
        self.places.get(sample)
    }

    /// Brings the entries of samples into the CPU caches, before they are read one by one.
    pub(crate) fn touch(&self, samples: &[SampleId]) {
        self.residency.touch(samples);
        self.places.touch(samples);
        self.policy.touch(samples);
    }

    #[must_use]
    pub fn has_place(&self, sample: SampleId) -> bool {
        self.places.contains(sample)
    }

    /// Samples that stay in some tier, without those that wait for their use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.ahead.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fill level of each tier, counting the chunks that it may still take.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        self.residency.levels()
    }

    /// Chunks that a tier has, or is getting, or is about to give back.
    #[must_use]
    pub fn chunk_count(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, Tier::chunk_count)
    }

    /// Chunks that a tier may have, by [`Self::resize`], [`Self::lose_chunk`] and [`Self::give_up_chunk`].
    #[must_use]
    pub fn chunks_max(&self, tier: TierId) -> u32 {
        self.tiers.get(usize::from(tier.0)).map_or(0, |tier| tier.chunks_max)
    }

    /// Keeps a sample's bytes where they are for a batch that reads them in place, until [`Self::unpin`];
    /// `None` if the sample lies in no tier, or in several pieces.
    pub fn pin(&mut self, sample: SampleId) -> Option<InPlace> {
        let Place { tier, pieces } = self.places.get(sample)?;
        let [piece] = *pieces else { return None };
        self.tiers[usize::from(tier.0)].pins.pin(piece);
        Some(InPlace { tier, chunk: piece.chunk, offset: piece.offset })
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

    /// The changes since the last call, in the order in which they were made.
    pub fn take_changes(&mut self) -> Vec<Change> {
        core::mem::take(&mut self.changes)
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// As [`Self::take_changes`], into an empty vector, whose memory is used for the next changes.
    pub(crate) fn swap_changes(&mut self, spare: &mut Vec<Change>) {
        core::mem::swap(&mut self.changes, spare);
    }

    /// Lets the policy decide whether the sample stays and which others leave, and gives out places.
    pub fn read(&mut self, read: Read, future: &FutureAccesses) {
        self.wear.enter(read.at.epoch);
        self.policy.read(read, future, &mut self.residency);
        let mut moves = core::mem::take(&mut self.moves);
        moves.extend(self.residency.drain_moves());
        self.keep_where_it_waited(read.sample, &moves);
        for Move { sample, to, .. } in moves.drain(..) {
            match to {
                // A sample that found no place in a tier above was removed already.
                Some(_) if self.residency.tier_of(sample).is_none() => {}
                // It waited where it stays.
                Some(tier) if sample == read.sample && self.lies_in(sample, tier) => {}
                Some(tier) => self.settle(sample, tier, Some(read.sample)),
                None => self.evict(sample),
            }
        }
        self.moves = moves;
    }

    /// Takes a sample that is read out of the place where it waited, unless it stays in that tier. This
    /// comes first, so that samples that move find that room and take none from samples that still wait.
    fn keep_where_it_waited(&mut self, sample: SampleId, moves: &[Move]) {
        if self.ahead.remove(sample).is_none() {
            return;
        }
        let stays_in = moves.iter().rev().find(|it| it.sample == sample).and_then(|it| it.to);
        if stays_in.is_none_or(|tier| !self.lies_in(sample, tier)) {
            self.vacate(sample);
        }
    }

    fn lies_in(&self, sample: SampleId, tier: TierId) -> bool {
        self.places.get(sample).is_some_and(|place| place.tier == tier)
    }

    pub fn prepare(&mut self, epoch: Epoch, need: Need, future: &FutureAccesses) -> Preparation {
        self.policy.prepare(epoch, need, future, &self.residency)
    }

    pub fn prepared(&mut self, planned: Planned) {
        self.policy.prepared(planned);
    }

    pub fn follow(&mut self, membership: Membership) {
        self.policy.follow(membership);
    }

    /// The node that holds a sample, if nodes share what they hold.
    #[must_use]
    pub fn holder(&self, sample: SampleId) -> Option<NodeId> {
        self.policy.holder(sample)
    }

    #[must_use]
    pub fn due(&self, sample: SampleId) -> Option<Due> {
        self.ahead.due(sample)
    }

    #[must_use]
    pub fn ahead_count(&self) -> usize {
        self.ahead.len()
    }

    /// Bytes that wait in a tier for their use, rounded as places are.
    #[must_use]
    pub fn ahead_in(&self, tier: TierId) -> Bytes {
        self.ahead.used(tier)
    }

    /// The first sample in the order of use that waits for a batch of a rank, and that batch.
    #[must_use]
    pub fn first_ahead(&self, rank: Rank) -> Option<(SampleId, BatchId)> {
        self.ahead.first_of(rank)
    }

    #[must_use]
    pub fn ahead_of(&self, rank: Rank, epoch: Epoch) -> Vec<SampleId> {
        self.ahead.of_epoch(rank, epoch)
    }

    /// Notes that a waiting sample is being read into its place.
    pub fn note_arriving(&mut self, sample: SampleId) {
        self.ahead.arriving(sample);
    }

    /// Notes that a waiting sample is in its place, or will not be. Returns whether it was being read into
    /// it.
    pub fn note_arrived(&mut self, sample: SampleId) -> bool {
        self.ahead.arrived(sample)
    }

    /// Whether a sample could be fetched ahead if all tiers were empty.
    #[must_use]
    pub fn may_fetch_ahead(&self, sample: SampleId) -> bool {
        let len = self.residency.len_of(sample);
        let mut tiers = self.residency.tiers().filter(|tier| self.takes_ahead(*tier));
        len.0 > 0 && self.is_placeable(len) && tiers.any(|tier| len <= self.capacity(tier))
    }

    /// Whether a sample lies in few enough pieces if the chunks are empty.
    fn is_placeable(&self, len: Bytes) -> bool {
        Space::rounded(len).0 <= self.chunk.0.saturating_mul(PIECES_MAX as u64)
    }

    /// Gives a sample that lies nowhere a place in the tier where it is going to stay, or else in the
    /// fastest tier with room for it; samples that are needed later give way. Returns whether there is such
    /// a tier.
    pub fn fetch_ahead(&mut self, sample: SampleId, due: Due) -> bool {
        let len = self.sizes[sample.0 as usize];
        let stays_in = self.policy.tier_after(sample, due.batch.epoch);
        loop {
            let place = stays_in.and_then(|tier| self.occupy_free(len, tier));
            let goes = if place.is_some() { Goes::Nowhere } else { Goes::Up };
            let elsewhere = || self.residency.tiers().find_map(|tier| self.occupy_spare(len, tier));
            let mut place = place.or_else(elsewhere);
            let later = self.ahead.last().filter(|(last, _)| *last > due);
            if place.is_none() && later.is_some() {
                place = self.residency.tiers().find_map(|tier| self.occupy_free(len, tier));
            }
            if let Some(to) = place {
                self.keep_ahead(sample, due, to.clone(), goes);
                self.changes.push(Change::FetchedAhead { sample, due, len, to });
                return true;
            }
            match later {
                Some((_, last)) => self.abandon(last),
                None => return false,
            }
        }
    }

    /// Moves the sample that is needed first up into a faster tier with room, if there is one. Returns
    /// whether one was moved.
    pub fn advance(&mut self) -> bool {
        let mut tiers = self.residency.tiers();
        let next = tiers.find_map(|tier| {
            let sample = self.ahead.first_below(tier)?;
            let to = self.occupy_free(self.sizes[sample.0 as usize], tier)?;
            Some((sample, to))
        });
        next.map(|(sample, to)| self.shift(sample, to)).is_some()
    }

    /// Removes a waiting sample whose use will not come.
    pub fn abandon(&mut self, sample: SampleId) {
        if let Some(due) = self.ahead.due(sample) {
            let len = self.sizes[sample.0 as usize];
            self.vacate(sample);
            self.changes.push(Change::Abandoned { sample, due, len });
        }
    }

    /// Gives back the place of a waiting sample: its use is now.
    pub fn use_up(&mut self, sample: SampleId) {
        if self.ahead.due(sample).is_some() {
            self.vacate(sample);
        }
    }

    fn takes_ahead(&self, tier: TierId) -> bool {
        self.takes_ahead.get(usize::from(tier.0)) != Some(&false)
    }

    /// Room in a tier that no sample has.
    fn room(&self, tier: TierId) -> Bytes {
        let used = self.residency.levels()[usize::from(tier.0)].used;
        let left = self.capacity(tier).0.saturating_sub(used.0);
        Bytes(left.saturating_sub(self.ahead.used(tier).0))
    }

    /// Takes a place from the room that no sample has. It is one piece if some hole is large enough;
    /// several otherwise, as a sample that is larger than any hole, or than a chunk, would hold up all
    /// those behind it.
    fn occupy_free(&mut self, len: Bytes, tier: TierId) -> Option<Place> {
        let rounded = Space::rounded(len);
        if !self.takes_ahead(tier) || rounded > self.room(tier) || !self.is_placeable(len) {
            return None;
        }
        let of_tier = &mut self.tiers[usize::from(tier.0)];
        if of_tier.space.chunk_count() > of_tier.chunks_max {
            // It is being emptied.
            return None;
        }
        let pieces = loop {
            if let Some(piece) = of_tier.space.take_contiguous(len) {
                break Pieces::One(piece);
            }
            if of_tier.chunk_count() >= of_tier.chunks_max {
                break of_tier.space.take(len)?.into();
            }
            let chunk = of_tier.add_chunk(self.chunk);
            self.changes.push(Change::ChunkAdded { tier, chunk });
            if rounded > self.chunk
                && let Some(pieces) = of_tier.space.take(len)
            {
                break pieces.into();
            }
        };
        if !self.wear.admits(tier, rounded) {
            of_tier.space.give_back(&pieces);
            return None;
        }
        Some(Place { tier, pieces })
    }

    /// As [`Self::occupy_free`], if need be with the room of samples that the policy will not miss. Leaves
    /// [`Self::spare`] empty.
    fn occupy_spare(&mut self, len: Bytes, tier: TierId) -> Option<Place> {
        loop {
            let has_room = self.needed(len, tier) <= self.room(tier);
            let place = has_room.then(|| self.occupy_free(len, tier)).flatten();
            if place.is_some() || !self.takes_ahead(tier) || !self.give_way(len, tier) {
                return place;
            }
        }
    }

    /// The room that a tier must have for a sample to be fetched ahead into it.
    fn needed(&self, len: Bytes, tier: TierId) -> Bytes {
        let keeps = self.residency.levels()[usize::from(tier.0)].capacity > Bytes(0);
        let spare = if keeps { self.spare.0 } else { 0 };
        Bytes(Space::rounded(len).0.saturating_add(spare))
    }

    /// If a tier lacks room for `len` more, evicts a sample there that stays only as long as its room is
    /// not wanted. Returns whether one was evicted.
    fn give_way(&mut self, len: Bytes, tier: TierId) -> bool {
        // With room enough, that room may lie in pieces, or the tier was written enough in this epoch.
        let lacks_room = self.needed(len, tier) > self.room(tier) || !self.wear.is_limited();
        if !lacks_room || !self.policy.give_way(tier, &mut self.residency) {
            return false;
        }
        let moves: Vec<Move> = self.residency.drain_moves().collect();
        for Move { sample, .. } in moves {
            self.vacate(sample);
            self.changes.push(Change::GaveWay { sample, from: tier });
        }
        true
    }

    fn keep_ahead(&mut self, sample: SampleId, due: Due, place: Place, goes: Goes) {
        self.ahead.insert(sample, due, place.tier, self.residency.len_of(sample), goes);
        self.places.insert(sample, place);
    }

    fn shift(&mut self, sample: SampleId, to: Place) {
        let (Some(due), Some(from)) = (self.ahead.due(sample), self.places.get(sample)) else {
            return;
        };
        self.give_back(sample);
        self.ahead.moved(sample, to.tier);
        self.places.insert(sample, to.clone());
        let len = self.sizes[sample.0 as usize];
        self.changes.push(Change::Shifted { sample, due, len, from, to });
    }

    /// Takes room of a tier back from the sample there that waits longest for its use: it goes down to the
    /// next tier with room, or up if there is none, else out. Returns whether there was one.
    fn reclaim_ahead(&mut self, tier: TierId) -> bool {
        let last = self.ahead.last_in(tier);
        last.inspect(|sample| self.displace_ahead(*sample, tier)).is_some()
    }

    fn displace_ahead(&mut self, sample: SampleId, from: TierId) {
        let len = self.sizes[sample.0 as usize];
        let below = self.residency.tiers().filter(|tier| *tier > from);
        let above = self.residency.tiers().filter(|tier| *tier < from);
        let mut others = below.chain(above);
        match others.find_map(|tier| self.occupy_free(len, tier)) {
            Some(to) => self.shift(sample, to),
            None => self.abandon(sample),
        }
    }

    /// Removes a sample whose bytes were lost.
    pub fn forget(&mut self, sample: SampleId) {
        self.vacate(sample);
        self.remove(sample);
    }

    /// Sets how many chunks a tier may hold, and empties the chunks beyond, the youngest first: samples
    /// there go down where there is room, else out.
    pub fn resize(&mut self, tier: TierId, chunks_max: u32) {
        let Some(state) = self.tiers.get_mut(usize::from(tier.0)) else { return };
        state.chunks_max = chunks_max;
        let surplus = state.space.chunks().skip(chunks_max as usize).collect::<Vec<_>>();
        self.limit_residency();
        for chunk in surplus.into_iter().rev() {
            for sample in self.places.in_chunk(tier, chunk) {
                if self.ahead.due(sample).is_some() {
                    self.displace_ahead(sample, tier);
                } else {
                    self.displace(sample, tier);
                }
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
        for sample in self.places.in_chunk(tier, chunk) {
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
        for sample in self.places.in_chunk(tier, chunk) {
            if self.ahead.due(sample).is_some() {
                self.abandon(sample);
            } else {
                self.evict(sample);
                self.remove(sample);
            }
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
        self.limit_residency();
    }

    /// Sets the room that is kept free of retained samples. It lies in the fastest tiers, where it is used
    /// most often. Samples that lie there stay until the policy lets them go.
    pub fn reserve(&mut self, room: Bytes) {
        self.reserve = room;
        self.limit_residency();
    }

    fn limit_residency(&mut self) {
        let mut reserve = self.reserve.0;
        for tier in self.residency.tiers() {
            let capacity = self.capacity(tier).0;
            let reserved = if self.takes_ahead(tier) { capacity.min(reserve) } else { 0 };
            reserve -= reserved;
            let retained = Bytes(capacity - reserved);
            if self.residency.levels()[usize::from(tier.0)].capacity != retained {
                self.residency.resize(tier, retained);
            }
        }
    }

    /// Bytes that each tier may hold, of samples that stay and of those that wait for their use.
    pub fn capacities(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.residency.tiers().map(|tier| self.capacity(tier))
    }

    fn capacity(&self, tier: TierId) -> Bytes {
        let chunks_max = self.tiers[usize::from(tier.0)].chunks_max;
        Bytes(u64::from(chunks_max).saturating_mul(self.chunk.0))
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
    /// lie in staging. The sample is evicted after all if the free bytes lie in too many pieces, or the
    /// tier was written enough in this epoch, or the policy will not miss it and other samples wait there.
    fn settle(&mut self, sample: SampleId, tier: TierId, staged: Option<SampleId>) {
        let len = self.sizes[sample.0 as usize];
        let from = self.places.get(sample);
        let is_idle = self.policy.is_idle(sample);
        let may_go = (len.0 > 0 || self.keeps_empty)
            && (!is_idle || self.has_room_left(tier))
            && self.wear.admits(tier, Space::rounded(len));
        let place = if !may_go {
            None
        } else if is_idle {
            self.occupy(len, tier)
        } else {
            self.occupy_or_reclaim(len, tier)
        };
        let Some(place) = place else {
            self.evict(sample);
            self.remove(sample);
            return;
        };
        self.vacate(sample);
        self.places.insert(sample, place.clone());
        match from {
            Some(from) if staged != Some(sample) => {
                self.changes.push(Change::Demoted { sample, len, from, to: place });
            }
            _ => self.changes.push(Change::Kept { sample, to: place }),
        }
    }

    /// Whether the samples that the residency put into a tier fit beside those that wait there.
    fn has_room_left(&self, tier: TierId) -> bool {
        let used = self.residency.levels()[usize::from(tier.0)].used;
        used.0 + self.ahead.used(tier).0 <= self.capacity(tier).0
    }

    /// Takes a place in `tier`, if need be that of samples which wait there for their use.
    fn occupy_or_reclaim(&mut self, len: Bytes, tier: TierId) -> Option<Place> {
        loop {
            let place = self.occupy(len, tier);
            if place.is_some() || !self.reclaim_ahead(tier) {
                return place;
            }
        }
    }

    /// Takes a place in `tier`, with new chunks if need be.
    fn occupy(&mut self, len: Bytes, tier: TierId) -> Option<Place> {
        if !self.is_placeable(len) {
            return None;
        }
        let of_tier = self.tiers.get_mut(usize::from(tier.0))?;
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
        Some(Place { tier, pieces: pieces?.into() })
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
        let from = self.places.get(sample).map(|place| place.tier);
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

    /// Gives the place of a sample back, and ends its wait for a use.
    fn vacate(&mut self, sample: SampleId) {
        if self.give_back(sample) {
            self.ahead.remove(sample);
        }
    }

    /// Returns whether the sample had a place.
    fn give_back(&mut self, sample: SampleId) -> bool {
        let Some(Place { tier, pieces }) = self.places.remove(sample) else { return false };
        let Tier { space, pins, .. } = &mut self.tiers[usize::from(tier.0)];
        let free = pieces.iter().filter(|piece| !pins.vacate(piece));
        free.for_each(|piece| space.give_back(core::slice::from_ref(piece)));
        true
    }
}

/// [`Cache::spare`] among samples of these lengths.
fn spare(sizes: &[Bytes]) -> Bytes {
    if sizes.windows(2).all(|pair| pair[0] == pair[1]) {
        return Bytes(0);
    }
    let all = sizes.iter().fold(0_u64, |sum, len| sum.saturating_add(len.0));
    Space::rounded(Bytes(all / sizes.len() as u64))
}

/// On a disk, samples that are written one after another lie side by side, so that they are written at
/// once.
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
