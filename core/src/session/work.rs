//! Planned operations: when they may run, and what follows when they end or fail.

use alloc::{collections::BTreeSet, vec::Vec};

use super::{
    Command, Fault, OnError, Place, Session, Slot,
    line::Link,
    ops::Touch,
    pace::Need,
    staging::{Arena, Staging, Taker},
};
use crate::id::{BatchId, ChunkId, OpId, Rank, SampleId, TierId};

/// Why an operation exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    OpenArena(Rank),
    AddChunk {
        tier: TierId,
        chunk: ChunkId,
    },
    DropChunk {
        tier: TierId,
        chunk: ChunkId,
    },
    Arrive {
        batch: BatchId,
        entry: usize,
        sample: SampleId,
        tier: Option<TierId>,
        slot: Slot,
    },
    Retain {
        batch: BatchId,
        sample: SampleId,
        place: Place,
    },
    /// `batch` is the one for which it makes room.
    Move {
        batch: Option<BatchId>,
        sample: SampleId,
        place: Place,
    },
}

impl Kind {
    /// The batch whose staging bytes the operation uses.
    fn batch(&self) -> Option<BatchId> {
        match self {
            Self::Arrive { batch, .. } | Self::Retain { batch, .. } => Some(*batch),
            Self::OpenArena(_)
            | Self::AddChunk { .. }
            | Self::DropChunk { .. }
            | Self::Move { .. } => None,
        }
    }

    /// Where the operation leaves a sample in a tier.
    fn target(&self) -> Option<(SampleId, &Place)> {
        match self {
            Self::Retain { sample, place, .. } | Self::Move { sample, place, .. } => {
                Some((*sample, place))
            }
            _ => None,
        }
    }

    /// The batch that cannot be handed over before the operation ended.
    fn needed_by(&self) -> Option<BatchId> {
        match self {
            Self::Arrive { batch, .. } | Self::Retain { batch, .. } => Some(*batch),
            Self::Move { batch, .. } => *batch,
            Self::OpenArena(_) | Self::AddChunk { .. } | Self::DropChunk { .. } => None,
        }
    }

    /// Where the operation needs its turn. A move takes place on two links; the slower one counts.
    fn link(&self) -> Option<Link> {
        match self {
            Self::Arrive { tier, .. } => Some(tier.map_or(Link::Cold, Link::Tier)),
            Self::Retain { place, .. } | Self::Move { place, .. } => Some(Link::Tier(place.tier)),
            Self::OpenArena(_) | Self::AddChunk { .. } | Self::DropChunk { .. } => None,
        }
    }
}

/// An operation that has not ended.
#[derive(Debug)]
pub(super) struct Work {
    kind: Kind,
    /// Put in line when the operation may run.
    command: Option<Command>,
    /// The batch whose deadline it has: its own, or an earlier one that waits for it.
    need: Option<Need>,
    /// The operations that it had to wait for when it was planned.
    waits_for: Vec<OpId>,
    /// The operation that brings the bytes which this one reads.
    source: Option<OpId>,
    /// What befell the bytes that this one was to read, or the chunk that it was to write to.
    lost: Option<Fault>,
}

impl Session {
    /// Plans an operation, and gives its command out if nothing stands in its way.
    pub(super) fn plan(
        &mut self,
        op: OpId,
        kind: Kind,
        command: Command,
        touches: &[Touch],
        source: Option<OpId>,
    ) {
        if let Some(staged) = self.staged_of(&kind) {
            staged.pending += 1;
        }
        let need = kind.needed_by().map(|batch| self.need_of(batch));
        let waits_for = self.ops.plan(op, touches, source);
        let is_free = waits_for.is_empty();
        if let Some(need) = need {
            self.hasten(&waits_for, need);
        }
        let command = Some(command);
        self.works.insert(op, Work { kind, command, need, waits_for, source, lost: None });
        if is_free {
            self.run(&[op]);
        }
    }

    /// Gives operations, and what they wait for in turn, the deadline of a batch that waits for them.
    fn hasten(&mut self, ops: &[OpId], need: Need) {
        let mut left = ops.to_vec();
        while let Some(op) = left.pop() {
            let Some(work) = self.works.get_mut(&op) else { continue };
            let Some(before) = work.need.filter(|before| *before != need) else { continue };
            if self.paces.expected(before) <= self.paces.expected(need) {
                continue;
            }
            work.need = Some(need);
            left.extend(&work.waits_for);
            if let (None, Some(link)) = (&work.command, work.kind.link()) {
                self.line.hasten(link, op, before, need);
            }
        }
    }

    /// Puts an operation in line that nothing blocks any more.
    fn give_out(&mut self, op: OpId, command: Command) {
        let Some(work) = self.works.get(&op) else { return };
        match work.kind.link() {
            Some(link) => self.line.push(link, work.need, self.now, op, command),
            None => self.errands.push_back(command),
        }
    }

    pub(super) fn handle_completed(&mut self, op: OpId, outcome: Result<(), Fault>) {
        let running = self.works.get(&op).filter(|work| work.command.is_none());
        if let Some(work) = running {
            if let Some(link) = work.kind.link() {
                self.line.ended(link);
            }
            self.running = self.running.saturating_sub(1);
            let runnable = self.end(op, outcome);
            self.run(&runnable);
            self.close_arenas();
        }
    }

    /// Starts operations that nothing blocks any more; those whose bytes were lost take another way.
    fn run(&mut self, ops: &[OpId]) {
        let mut runnable: Vec<OpId> = ops.to_vec();
        while let Some(op) = (!runnable.is_empty()).then(|| runnable.remove(0)) {
            let Some(work) = self.works.get_mut(&op) else { continue };
            let command = work.command.take().expect("an operation is started once");
            match (&work.kind, work.lost) {
                (Kind::Arrive { tier: Some(_), .. }, Some(_)) => self.fetch_instead(op),
                (_, Some(fault)) => runnable.extend(self.end(op, Err(fault))),
                (Kind::DropChunk { .. }, None) => {
                    self.errands.push_back(command);
                    runnable.extend(self.end(op, Ok(())));
                }
                (_, None) => self.give_out(op, command),
            }
        }
    }

    /// Ends an operation. Returns those that may run now.
    fn end(&mut self, op: OpId, outcome: Result<(), Fault>) -> Vec<OpId> {
        let Some(work) = self.works.get(&op) else { return Vec::new() };
        let (kind, was_lost) = (work.kind.clone(), work.lost.is_some());
        if let (Kind::Arrive { sample, tier: Some(_), .. }, Err(_)) = (&kind, outcome) {
            self.progress.tier_faults += 1;
            self.forget(*sample);
            self.fetch_instead(op);
            return Vec::new();
        }
        self.works.remove(&op);
        match outcome {
            Ok(()) => self.succeed(op, &kind),
            Err(fault) => self.fail(op, &kind, fault, was_lost),
        }
        self.leave(op, &kind)
    }

    /// Strikes an operation from the books. Returns those that may run now.
    fn leave(&mut self, op: OpId, kind: &Kind) -> Vec<OpId> {
        let runnable = self.ops.end(op);
        if let Some(batch) = kind.batch() {
            if let Some(staged) = self.staged_of(kind) {
                staged.pending -= 1;
            }
            self.look_at(batch);
        }
        runnable
    }

    fn succeed(&mut self, op: OpId, kind: &Kind) {
        match kind {
            Kind::OpenArena(rank) => {
                let Some(staging) = self.ranks.get_mut(rank) else { return };
                staging.opened();
                for holder in core::mem::take(&mut staging.knocking) {
                    staging.holders.insert(holder);
                    self.messages.push_back(Command::Admit { holder, rank: *rank });
                }
            }
            Kind::Arrive { batch, tier, slot, .. } => {
                self.progress.read(batch.epoch, *tier, slot.len);
            }
            Kind::Retain { sample, .. } | Kind::Move { sample, .. } => {
                if self.writers.get(sample) == Some(&op) {
                    self.writers.remove(sample);
                }
            }
            Kind::AddChunk { .. } | Kind::DropChunk { .. } => {}
        }
    }

    fn fail(&mut self, op: OpId, kind: &Kind, fault: Fault, was_lost: bool) {
        match kind {
            Kind::OpenArena(rank) => {
                let Some(staging) = self.ranks.get_mut(rank) else { return };
                staging.arena = Arena::Refused;
                for holder in core::mem::take(&mut staging.knocking) {
                    self.messages.push_back(Command::Reject { holder, rank: *rank });
                }
            }
            Kind::AddChunk { tier, chunk } => {
                self.progress.tier_faults += 1;
                self.cache.lose_chunk(*tier, *chunk);
                for work in self.works.values_mut() {
                    let uses_it = match &work.kind {
                        Kind::DropChunk { tier: of, chunk: dropped } => {
                            (of, dropped) == (tier, chunk)
                        }
                        kind => kind.target().is_some_and(|(_, place)| {
                            place.tier == *tier && place.pieces.iter().any(|it| it.chunk == *chunk)
                        }),
                    };
                    if uses_it && work.command.is_some() {
                        work.lost = Some(fault);
                    }
                }
            }
            Kind::Arrive { entry, sample, .. } => {
                self.progress.fault(*sample, fault);
                let on_error = self.settings.on_error;
                if let Some(staged) = self.staged_of(kind) {
                    match on_error {
                        OnError::Skip => staged.batch.entries[*entry].len = None,
                        OnError::Fail => {
                            staged.unreadable.get_or_insert((*sample, fault));
                        }
                    }
                }
            }
            Kind::Retain { sample, place, .. } | Kind::Move { sample, place, .. } => {
                if !was_lost {
                    self.progress.tier_faults += 1;
                }
                if self.cache.place(*sample) == Some(place) {
                    self.cache.forget(*sample);
                }
                if self.writers.get(sample) == Some(&op) {
                    self.writers.remove(sample);
                }
            }
            Kind::DropChunk { .. } => {}
        }
        for work in self.works.values_mut().filter(|work| work.source == Some(op)) {
            work.lost = Some(fault);
        }
    }

    /// Takes back the arrivals of dropped batches that were not given out, unless a copy of them is to
    /// be kept, so that their room is free for what was asked for instead.
    pub(super) fn call_off(&mut self) {
        if !self.ranks.values().any(|staging| staging.has_leftovers) {
            return;
        }
        let sources: BTreeSet<OpId> = self.works.values().filter_map(|work| work.source).collect();
        let arrivals: Vec<OpId> =
            self.works.keys().copied().filter(|op| !sources.contains(op)).collect();
        for op in arrivals {
            self.call_off_one(op);
        }
        self.ranks.values_mut().for_each(|staging| staging.has_leftovers = false);
    }

    fn call_off_one(&mut self, op: OpId) {
        let Some(work) = self.works.get(&op) else { return };
        let &Kind::Arrive { batch, .. } = &work.kind else { return };
        let staged = self.ranks.get(&batch.rank).and_then(|it| it.staged.get(&batch));
        if staged.is_none_or(|staged| staged.taker != Taker::Dropped) {
            return;
        }
        let is_in_line = match (&work.command, work.kind.link(), work.need) {
            (None, Some(link), Some(need)) => self.line.call_off(link, op, need),
            (None, ..) => false,
            (Some(_), ..) => true,
        };
        if is_in_line {
            let kind = self.works.remove(&op).expect("it was just looked at").kind;
            if let Some(staged) = self.staged_of(&kind) {
                staged.is_stale = true;
            }
            let runnable = self.leave(op, &kind);
            self.run(&runnable);
        }
    }

    /// Strikes a sample whose bytes could not be read back, unless it is being written anew.
    fn forget(&mut self, sample: SampleId) {
        if !self.writers.contains_key(&sample) {
            self.cache.forget(sample);
        }
    }

    /// Reads a sample from the cold store that its tier could not give.
    fn fetch_instead(&mut self, op: OpId) {
        let Some(work) = self.works.get_mut(&op) else { return };
        if let Kind::Arrive { sample, tier, slot, .. } = &mut work.kind {
            *tier = None;
            work.lost = None;
            let command = Command::Fetch { op, sample: *sample, to: *slot };
            self.give_out(op, command);
        }
    }

    fn staged_of(&mut self, kind: &Kind) -> Option<&mut super::Staged> {
        let batch = kind.batch()?;
        self.ranks.get_mut(&batch.rank).and_then(|it: &mut Staging| it.staged.get_mut(&batch))
    }
}
