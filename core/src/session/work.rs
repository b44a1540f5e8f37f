//! Planned operations: when they may run, and what follows when they end or fail.

mod turns;

use alloc::{collections::VecDeque, vec::Vec};

use super::{
    Command, Fault, OnError, Place, Retention, Session, Slot,
    line::{Carried, Given, Link},
    ops::Touch,
    pace::Need,
    staging::{Arena, Passage, Staging},
};
use crate::{
    id::{BatchId, ChunkId, OpId, Rank, SampleId, TierId},
    units::Bytes,
};

/// Why an operation exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    OpenArena(Rank),
    Pass {
        rank: Rank,
        passage: Passage,
    },
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
    /// The sample is read where it lies, once it is there.
    Show {
        batch: BatchId,
        entry: usize,
        sample: SampleId,
        tier: TierId,
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
            Self::Arrive { batch, .. } | Self::Show { batch, .. } | Self::Retain { batch, .. } => {
                Some(*batch)
            }
            Self::OpenArena(_)
            | Self::Pass { .. }
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
            Self::Arrive { batch, .. } | Self::Show { batch, .. } | Self::Retain { batch, .. } => {
                Some(*batch)
            }
            Self::Move { batch, .. } => *batch,
            Self::OpenArena(_)
            | Self::Pass { .. }
            | Self::AddChunk { .. }
            | Self::DropChunk { .. } => None,
        }
    }

    /// Where the operation needs its turn. A move takes place on two links; the slower one counts.
    fn link(&self) -> Option<Link> {
        match self {
            Self::Arrive { tier, .. } => Some(tier.map_or(Link::Cold, Link::Tier)),
            Self::Retain { place, .. } | Self::Move { place, .. } => Some(Link::Tier(place.tier)),
            Self::OpenArena(_)
            | Self::Pass { .. }
            | Self::AddChunk { .. }
            | Self::DropChunk { .. }
            | Self::Show { .. } => None,
        }
    }
}

/// How far an operation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for others.
    Blocked,
    /// It waits for its turn.
    InLine,
    /// It was given out.
    Running(Given),
}

/// An operation that has not ended.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) kind: Kind,
    state: State,
    /// Taken when it is given out.
    command: Option<Command>,
    /// The batch whose deadline it has: its own, or an earlier one that waits for it.
    need: Option<Need>,
    /// The operations that it had to wait for when it was planned.
    waits_for: Vec<OpId>,
    /// The operation that brings the bytes which this one reads.
    source: Option<OpId>,
    /// What befell the bytes that this one was to read, or the chunk that it was to write to.
    pub(super) lost: Option<Fault>,
}

impl Session {
    /// Plans an operation, and gives its command out if nothing stands in its way. One without a command
    /// only waits.
    pub(super) fn plan(
        &mut self,
        op: OpId,
        kind: Kind,
        command: impl Into<Option<Command>>,
        touches: &[Touch],
        source: Option<OpId>,
    ) {
        let need = match self.staged_of(&kind) {
            Some(staged) => {
                staged.pending += 1;
                Some(staged.need)
            }
            None => kind.needed_by().map(|batch| self.need_of(batch)),
        };
        let waits_for = self.ops.plan(op, touches, source);
        let is_free = waits_for.is_empty();
        if let Some(need) = need {
            self.hasten(&waits_for, need);
        }
        let (state, command) = (State::Blocked, command.into());
        self.works.insert(op, Work { kind, state, command, need, waits_for, source, lost: None });
        if is_free {
            let runnable = self.start(op);
            self.run(runnable);
        }
    }

    pub(super) fn handle_completed(&mut self, op: OpId, outcome: Result<(), Fault>) {
        let Some(work) = self.works.get(op) else { return };
        let State::Running(given) = work.state else { return };
        if let Some(link) = work.kind.link() {
            let carried = match (&work.kind, outcome) {
                (Kind::Arrive { slot, .. }, Ok(())) => Carried::Read(slot.len),
                _ => Carried::Nothing,
            };
            self.line.ended(link, given, carried, self.now);
            self.progress.busy(link).into_iter().for_each(|busy| busy.ended(self.now));
        }
        self.running = self.running.saturating_sub(1);
        let runnable = self.end(op, outcome);
        self.run(runnable);
        self.close_arenas();
    }

    /// Starts operations that nothing blocks any more, and those that may run once these ended at once.
    fn run(&mut self, ops: Vec<OpId>) {
        let mut runnable = VecDeque::from(ops);
        while let Some(op) = runnable.pop_front() {
            runnable.extend(self.start(op));
        }
    }

    /// Puts an operation in line; one whose bytes were lost takes another way. Returns what may run now
    /// because it ended at once.
    fn start(&mut self, op: OpId) -> Vec<OpId> {
        let Some(work) = self.works.get_mut(op) else { return Vec::new() };
        match (&work.kind, work.lost) {
            (Kind::Arrive { tier: Some(_), .. } | Kind::Show { .. }, Some(_)) => {
                self.fetch_instead(op);
            }
            (Kind::Show { .. }, None) => return self.end(op, Ok(())),
            (_, Some(fault)) => return self.end(op, Err(fault)),
            (Kind::DropChunk { .. }, None) => {
                self.errands.extend(work.command.take());
                return self.end(op, Ok(()));
            }
            (kind, None) => {
                if let Some(link) = kind.link() {
                    work.state = State::InLine;
                    self.line.push(link, work.need, self.now, op);
                } else {
                    work.state = State::Running(Given::DIRECTLY);
                    self.errands.extend(work.command.take());
                }
            }
        }
        Vec::new()
    }

    /// Ends an operation. Returns those that may run now.
    fn end(&mut self, op: OpId, outcome: Result<(), Fault>) -> Vec<OpId> {
        if let Err(Fault::Poisoned(tier, chunk)) = outcome {
            self.give_up(tier, chunk);
        }
        let Some(work) = self.works.get(op) else { return Vec::new() };
        if let (Kind::Arrive { sample, tier: Some(_), .. }, Err(_)) = (&work.kind, outcome) {
            let sample = *sample;
            self.progress.tier_faults += 1;
            self.forget(sample);
            self.fetch_instead(op);
            return Vec::new();
        }
        let Work { kind, lost, .. } = self.works.remove(op).expect("it was just looked at");
        self.mark(&kind, outcome);
        match outcome {
            Ok(()) => self.succeed(op, &kind),
            Err(fault) => self.fail(op, &kind, fault, lost.is_some()),
        }
        self.leave(op, &kind)
    }

    /// Does without a chunk whose memory broke.
    pub(super) fn give_up(&mut self, tier: TierId, chunk: ChunkId) {
        self.cache.give_up_chunk(tier, chunk);
        self.follow_changes(None);
        self.fetch_what_is_shown_in(tier, chunk);
    }

    /// Strikes an operation from the residency. Returns those that may run now.
    fn leave(&mut self, op: OpId, kind: &Kind) -> Vec<OpId> {
        let runnable = self.ops.end(op);
        if let Kind::AddChunk { .. } = kind {
            self.mark_chunk(&runnable);
        }
        if let Some(batch) = kind.batch() {
            if let Some(staged) = self.staged_of(kind) {
                staged.pending -= 1;
            }
            self.look_at(batch);
        }
        runnable
    }

    /// Takes note for its batch of when an operation ended.
    fn mark(&mut self, kind: &Kind, outcome: Result<(), Fault>) {
        let now = self.event_at;
        let Some(staged) = self.staged_of(kind) else { return };
        match kind {
            Kind::Arrive { tier, slot, .. } => {
                let len = outcome.map_or(Bytes(0), |()| slot.len);
                staged.marks.arrived(*tier, len, now);
            }
            // It was read for this batch no more than for any other.
            Kind::Show { tier, .. } => staged.marks.arrived(Some(*tier), Bytes(0), now),
            _ => staged.marks.kept(now),
        }
    }

    /// Takes note of the batches that waited for a chunk.
    fn mark_chunk(&mut self, ops: &[OpId]) {
        let now = self.event_at;
        for op in ops {
            let batch = self.works.get(*op).and_then(|work| work.kind.batch());
            let staging = batch.and_then(|batch| self.ranks.get_mut(&batch.rank));
            let staged = staging.zip(batch).and_then(|(it, batch)| it.staged.get_mut(&batch));
            staged.into_iter().for_each(|staged| staged.marks.chunk_came(now));
        }
    }

    /// Takes note that a command is given out.
    pub(super) fn begin(&mut self, command: &Command) {
        let work = command.op().and_then(|op| self.works.get(op));
        let link = work.and_then(|work| work.kind.link());
        let busy = link.and_then(|link| self.progress.busy(link));
        busy.into_iter().for_each(|busy| busy.begun(self.now));
    }

    fn succeed(&mut self, op: OpId, kind: &Kind) {
        match kind {
            Kind::OpenArena(rank) => {
                let Some(staging) = self.ranks.get_mut(rank) else { return };
                for connection in staging.opened(self.now) {
                    self.messages.push_back(Command::Admit { connection, rank: *rank });
                }
            }
            Kind::Pass { rank, passage } => {
                if let Some(staging) = self.ranks.get_mut(rank) {
                    staging.passed(*passage, false);
                }
            }
            Kind::Arrive { batch, tier, slot, .. } => {
                self.progress.read(batch.epoch, *tier, slot.len);
            }
            Kind::Show { batch, tier, slot, .. } => {
                self.progress.shown(batch.epoch, *tier, slot.len);
            }
            Kind::Retain { sample, place, .. } | Kind::Move { sample, place, .. } => {
                if let Some(batch) = kind.needed_by() {
                    self.progress.wrote(batch.epoch, place);
                }
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
                for connection in core::mem::take(&mut staging.knocking) {
                    self.messages.push_back(Command::Reject { connection, rank: *rank });
                }
            }
            Kind::Pass { rank, passage } => {
                if let Some(staging) = self.ranks.get_mut(rank) {
                    staging.passed(*passage, true);
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
                    if uses_it && work.state == State::Blocked {
                        work.lost = Some(fault);
                    }
                }
            }
            Kind::Arrive { entry, sample, .. } => {
                self.progress.fault(*sample, fault);
                let on_error = self.settings.on_error;
                if let Some(staged) = self.staged_of(kind) {
                    match on_error {
                        // The sample is there, only the memory for it is not.
                        OnError::Skip if fault != Fault::NoSpace => {
                            staged.batch.entries[*entry].len = None;
                        }
                        OnError::Skip | OnError::Fail => {
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
            Kind::DropChunk { .. } | Kind::Show { .. } => {}
        }
        for work in self.works.values_mut().filter(|work| work.source == Some(op)) {
            work.lost = Some(fault);
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
        let Some(work) = self.works.get_mut(op) else { return };
        if let Kind::Arrive { batch, entry, sample, slot, .. }
        | Kind::Show { batch, entry, sample, slot, .. } = work.kind
        {
            work.kind = Kind::Arrive { batch, entry, sample, tier: None, slot };
            work.lost = None;
            work.state = State::InLine;
            // Whether it stays was decided when its tier still had it.
            let (to, retention) = (slot, Retention::Kept);
            work.command = Some(Command::Fetch { op, sample, to, retention });
            self.line.push(Link::Cold, work.need, self.now, op);
            self.unname(batch, entry);
        }
    }

    pub(super) fn staged_of(&mut self, kind: &Kind) -> Option<&mut super::Staged> {
        let batch = kind.batch()?;
        self.ranks.get_mut(&batch.rank).and_then(|it: &mut Staging| it.staged.get_mut(&batch))
    }
}
