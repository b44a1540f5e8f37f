//! The contents of staging and tiers, as faults leave them.

use alloc::collections::{BTreeMap, BTreeSet};

use super::{Violation, rank_trainer::Handed};
use crate::{
    batch::{Batch, Entry, InPlace},
    id::{ChunkId, ConnectionId, LeaseId, Rank, SampleId, TierId},
    latency_quantiles::Draws,
    session::{Fault, Operation, Origin, Place, Promotion, Slot},
    space::Piece,
    units::Bytes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Injected {
    None,
    /// The operation ends late.
    Stalls,
    /// The operation fails, and leaves half of its bytes.
    Fails(Fault),
    /// The operation ends without an error, and leaves wrong bytes.
    Corrupts,
}

impl Injected {
    pub(super) fn draw(operation: &Operation, draws: &mut Draws) -> Self {
        let choices: &[Self] = match operation {
            Operation::Fetch { .. } | Operation::Prefetch { .. } => &[
                Self::Stalls,
                Self::Fails(Fault::Vanished),
                Self::Fails(Fault::Changed),
                Self::Fails(Fault::Truncated),
                Self::Fails(Fault::Io),
            ],
            Operation::Receive { .. } | Operation::Promote { .. } => {
                &[Self::Stalls, Self::Fails(Fault::Io)]
            }
            Operation::Advance { .. } | Operation::Demote { .. } => {
                &[Self::Stalls, Self::Fails(Fault::Io), Self::Corrupts]
            }
            Operation::OpenArena { .. } | Operation::AddChunk { .. } => {
                &[Self::Stalls, Self::Fails(Fault::NoSpace)]
            }
            Operation::TrimArena { .. }
            | Operation::RestoreArena { .. }
            | Operation::Transform { .. } => return Self::None,
        };
        choices[super::pick(draws.word(), choices.len())]
    }
}

/// The contents of a slot or a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Sample(SampleId),
    /// Half of a sample, and other bytes.
    Garbage,
    /// A sample until its memory broke or returned other bytes.
    Broken,
    /// The bytes that a trainer wrote over a sample that it was handed.
    Written(ConnectionId, LeaseId),
}

/// Staging memory and tiers of a node.
#[derive(Debug, Default)]
pub(super) struct NodeMemory {
    arenas: BTreeSet<Rank>,
    /// By the start of the slot.
    staged: BTreeMap<(Rank, u64), Content>,
    chunks: BTreeSet<(TierId, ChunkId)>,
    /// By the start of the piece.
    cached: BTreeMap<(TierId, ChunkId, u64), Content>,
    pub(super) lost: BTreeSet<TierId>,
}

impl NodeMemory {
    pub(super) fn arenas_of(&self, ranks: &BTreeSet<Rank>) -> usize {
        self.arenas.intersection(ranks).count()
    }

    pub(super) fn close_arena(&mut self, rank: Rank) {
        self.arenas.remove(&rank);
        self.staged.retain(|(of, _), _| *of != rank);
    }

    pub(super) fn drop_chunk(&mut self, tier: TierId, chunk: ChunkId) {
        self.chunks.remove(&(tier, chunk));
        self.cached.retain(|(of, at, _), _| (*of, *at) != (tier, chunk));
    }

    /// The contents of the tier are lost, and for a while nothing can be written there.
    pub(super) fn lose(&mut self, tier: TierId) {
        self.lost.insert(tier);
        let of_tier = self.cached.iter_mut().filter(|((of, ..), _)| *of == tier);
        of_tier.for_each(|(_, content)| *content = Content::Broken);
    }

    /// Ends an operation: moves its bytes, and returns the outcome for the session.
    pub(super) fn end(
        &mut self,
        operation: &Operation,
        injected: Injected,
    ) -> Result<Result<(), Fault>, Violation> {
        let outcome = match injected {
            Injected::Fails(fault) => Err(fault),
            Injected::None | Injected::Stalls | Injected::Corrupts => Ok(()),
        };
        match operation {
            Operation::OpenArena { rank, .. } => {
                if outcome.is_ok() && !self.arenas.insert(*rank) {
                    return Err(Violation::Misused(operation.clone()));
                }
                Ok(outcome)
            }
            Operation::AddChunk { tier, chunk, .. } => {
                let outcome = self.reach(*tier).map_err(|_| Fault::NoSpace).and(outcome);
                if outcome.is_ok() && !self.chunks.insert((*tier, *chunk)) {
                    return Err(Violation::Misused(operation.clone()));
                }
                Ok(outcome)
            }
            Operation::Fetch { sample, to, .. } | Operation::Receive { sample, to, .. } => {
                self.stage(
                    *to,
                    if outcome.is_ok() { Content::Sample(*sample) } else { Content::Garbage },
                );
                Ok(outcome)
            }
            Operation::Promote { parts } => {
                let mut outcome = outcome;
                for Promotion { sample, from, .. } in parts {
                    outcome = outcome.and(self.read(from, *sample, operation)?);
                }
                for Promotion { sample, to, .. } in parts {
                    let done = outcome.map_or(Content::Garbage, |()| Content::Sample(*sample));
                    self.stage(*to, done);
                }
                Ok(outcome)
            }
            Operation::Prefetch { sample, to, .. } => {
                self.put(*sample, to, outcome, injected, operation)
            }
            Operation::Advance { sample, from, to, .. }
            | Operation::Demote { sample, from: Origin::Tier(from), to, .. } => {
                let outcome = outcome.and(self.read(from, *sample, operation)?);
                self.put(*sample, to, outcome, injected, operation)
            }
            Operation::Demote { sample, from: Origin::Staging(slot), to, .. } => {
                let outcome = outcome.and(self.read_staged(*slot, *sample, operation)?);
                self.put(*sample, to, outcome, injected, operation)
            }
            other => Err(Violation::Misused(other.clone())),
        }
    }

    /// Writes a sample to a tier, if it could be read and the tier can be reached.
    fn put(
        &mut self,
        sample: SampleId,
        to: &Place,
        read: Result<(), Fault>,
        injected: Injected,
        operation: &Operation,
    ) -> Result<Result<(), Fault>, Violation> {
        let outcome = read.and(self.reach(to.tier));
        let content = match outcome {
            Ok(()) if injected == Injected::Corrupts => Content::Broken,
            Ok(()) => Content::Sample(sample),
            Err(_) => Content::Garbage,
        };
        self.write(to, content, operation)?;
        Ok(outcome)
    }

    /// Checks a batch in staging against its layout. A sample that is read in place may be broken by its
    /// memory, but by nothing else.
    pub(super) fn check(&self, batch: &Batch, offset: Bytes) -> Result<(), Violation> {
        for entry in &batch.entries {
            let sample = Some(&Content::Sample(entry.sample));
            let is_right = match (entry.len, entry.in_place) {
                (None | Some(Bytes(0)), _) => true,
                (Some(_), None) => {
                    sample == self.staged.get(&(batch.id.rank, offset.0 + entry.offset.0))
                }
                (Some(_), Some(InPlace { tier, chunk, offset })) => {
                    let there = self.cached.get(&(tier, chunk, offset.0));
                    there == sample || there == Some(&Content::Broken)
                }
            };
            if !is_right {
                return Err(Violation::WrongBytes(batch.id, entry.sample));
            }
        }
        Ok(())
    }

    /// Overwrites every byte of a batch that a trainer may write.
    pub(super) fn overwrite(&mut self, handed: &Handed) {
        let content = Content::Written(handed.connection, handed.lease);
        for place in places_written(handed) {
            self.staged.insert(place, content);
        }
    }

    /// Checks that the bytes that the trainer wrote are still there, and that those that it may only read
    /// are unchanged.
    pub(super) fn check_held(&self, handed: &Handed) -> Result<(), Violation> {
        let written = Content::Written(handed.connection, handed.lease);
        let is_kept = places_written(handed).all(|at| self.staged.get(&at) == Some(&written));
        let in_place = handed.batch.entries.iter().filter(|entry| entry.in_place.is_some());
        let in_place = Batch { entries: in_place.copied().collect(), ..handed.batch.clone() };
        if !is_kept || self.check(&in_place, handed.offset).is_err() {
            return Err(Violation::Overwritten(handed.batch.id));
        }
        Ok(())
    }

    fn stage(&mut self, slot: Slot, content: Content) {
        if slot.len.0 > 0 {
            self.staged.insert((slot.rank, slot.offset.0), content);
        }
    }

    /// Reads a sample in staging for a copy; the session has seen that it arrived.
    fn read_staged(
        &self,
        slot: Slot,
        sample: SampleId,
        operation: &Operation,
    ) -> Result<Result<(), Fault>, Violation> {
        match self.staged.get(&(slot.rank, slot.offset.0)) {
            _ if slot.len.0 == 0 => Ok(Ok(())),
            Some(Content::Sample(there)) if *there == sample => Ok(Ok(())),
            _ => Err(Violation::Misused(operation.clone())),
        }
    }

    /// Reads a sample in a tier. Its checksum tells wrong bytes; another sample in its place is an error of
    /// the session.
    fn read(
        &self,
        place: &Place,
        sample: SampleId,
        operation: &Operation,
    ) -> Result<Result<(), Fault>, Violation> {
        let mut outcome = self.reach(place.tier);
        for piece in &place.pieces {
            match self.cached.get(&key(place.tier, *piece)) {
                Some(Content::Sample(there)) if *there == sample => {}
                Some(Content::Garbage | Content::Broken) => {
                    outcome = outcome.and(Err(Fault::Corrupt));
                }
                _ => return Err(Violation::Misused(operation.clone())),
            }
        }
        Ok(outcome)
    }

    fn write(
        &mut self,
        place: &Place,
        content: Content,
        operation: &Operation,
    ) -> Result<(), Violation> {
        for piece in &place.pieces {
            if !self.chunks.contains(&(place.tier, piece.chunk)) {
                return Err(Violation::Misused(operation.clone()));
            }
            self.cached.insert(key(place.tier, *piece), content);
        }
        Ok(())
    }

    fn reach(&self, tier: TierId) -> Result<(), Fault> {
        if self.lost.contains(&tier) { Err(Fault::Io) } else { Ok(()) }
    }
}

/// The starts of the samples of a batch that were copied for its trainer.
fn places_written(handed: &Handed) -> impl Iterator<Item = (Rank, u64)> + '_ {
    let is_own =
        |entry: &&Entry| entry.in_place.is_none() && entry.len.is_some_and(|len| len.0 > 0);
    let start = |entry: &Entry| (handed.batch.id.rank, handed.offset.0 + entry.offset.0);
    handed.batch.entries.iter().filter(is_own).map(start)
}

fn key(tier: TierId, piece: Piece) -> (TierId, ChunkId, u64) {
    (tier, piece.chunk, piece.offset.0)
}
