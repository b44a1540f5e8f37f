//! Planned operations: when they may run, and what follows when they end or fail.

use alloc::vec::Vec;

use super::{
    Command, Fault, OnError, Place, Session, Slot,
    ops::Touch,
    staging::{Arena, Staging},
};
use crate::id::{BatchId, ChunkId, OpId, Rank, SampleId, TierId};

/// Why an operation exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    OpenArena(Rank),
    AddChunk { tier: TierId, chunk: ChunkId },
    DropChunk { tier: TierId, chunk: ChunkId },
    Arrive { batch: BatchId, entry: usize, sample: SampleId, tier: Option<TierId>, slot: Slot },
    Retain { batch: BatchId, sample: SampleId, place: Place },
    Move { sample: SampleId, place: Place },
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
            Self::Retain { sample, place, .. } | Self::Move { sample, place } => {
                Some((*sample, place))
            }
            _ => None,
        }
    }
}

/// An operation that has not ended.
#[derive(Debug)]
pub(super) struct Work {
    kind: Kind,
    /// Given out when the operation may run.
    command: Option<Command>,
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
        let blockers = self.ops.plan(op, touches, source);
        self.works.insert(op, Work { kind, command: Some(command), source, lost: None });
        if blockers.is_empty() {
            self.run(&[op]);
        }
    }

    pub(super) fn handle_completed(&mut self, op: OpId, outcome: Result<(), Fault>) {
        let is_running = self.works.get(&op).is_some_and(|work| work.command.is_none());
        if is_running {
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
                (_, None) => self.errands.push_back(command),
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
        let runnable = self.ops.end(op);
        if let Some(batch) = kind.batch() {
            if let Some(staged) = self.staged_of(&kind) {
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
            Kind::Retain { sample, place, .. } | Kind::Move { sample, place } => {
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
            self.errands.push_back(Command::Fetch { op, sample: *sample, to: *slot });
        }
    }

    fn staged_of(&mut self, kind: &Kind) -> Option<&mut super::Staged> {
        let batch = kind.batch()?;
        self.ranks.get_mut(&batch.rank).and_then(|it: &mut Staging| it.staged.get_mut(&batch))
    }
}
