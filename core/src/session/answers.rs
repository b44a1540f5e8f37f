//! Trainers: who is there, what they ask for, and what they are answered, in the order of their
//! requests.

use alloc::{collections::VecDeque, sync::Arc, vec::Vec};

use super::{
    Command, Fault, Refusal, Session, Taken, Tally, Wait,
    progress::Content,
    staging::{Arena, Staged, Taker},
    work::Kind,
};
use crate::{
    id::{BatchId, ConnectionId, Epoch, LeaseId, Rank, SampleId, Step},
    order::Shuffle,
    retention::future_accesses::Publication,
};

impl Session {
    pub(super) fn handle_attached(&mut self, connection: ConnectionId, rank: Rank) {
        let Some(staging) = self.ranks.get_mut(&rank) else {
            self.messages.push_back(Command::Reject { connection, rank });
            return;
        };
        match staging.arena {
            Arena::Open => {
                staging.enter(connection);
                self.messages.push_back(Command::Admit { connection, rank });
            }
            Arena::Opening | Arena::Closing => staging.knocking.push(connection),
            Arena::Closed | Arena::Refused => {
                staging.knocking.push(connection);
                self.open_arena(rank);
            }
        }
    }

    pub(super) fn handle_requested(&mut self, connection: ConnectionId, batch: BatchId) {
        if !self.ranks.values().any(|staging| staging.connections.contains(&connection)) {
            return;
        }
        let refusal = self.request(connection, batch).err();
        if refusal.is_none() {
            self.paces.asked(self.need_of(batch), self.now);
        }
        self.waiting.entry(connection).or_default().push_back((batch, refusal));
        self.answer(connection);
    }

    fn request(&mut self, connection: ConnectionId, batch: BatchId) -> Result<(), Refusal> {
        let spec = *self.future.spec();
        let staging = self.ranks.get_mut(&batch.rank);
        let staging =
            staging.filter(|it| it.connections.contains(&connection) && spec.contains(batch));
        let staging = staging.ok_or(Refusal::NotInOrder)?;
        let is_jump = !self.future.holds(batch.epoch) && staging.is_far(batch, &spec);
        if is_jump && !self.jumps.allow(batch.rank, spec.samples, self.now) {
            return Err(Refusal::TooManyJumps);
        }
        if spec.shuffle == Shuffle::Published {
            let samples = self.future.batch(batch).ok_or(Refusal::NotPublished)?;
            if samples.is_empty() {
                return Err(Refusal::NotInOrder);
            }
        }
        let is_known = staging.staged.contains_key(&batch);
        staging.reach(connection, batch, spec.batches_between(batch, staging.cursor));
        let is_gone = |staged: &Staged| staged.is_stale && staged.taker == Taker::Dropped;
        let staged = staging.staged.get_mut(&batch).filter(|it| is_known && !is_gone(it));
        if let Some(staged) = staged {
            if !matches!(staged.taker, Taker::Nobody | Taker::Dropped) {
                return Err(Refusal::AlreadyTaken);
            }
            staged.taker = Taker::Requested(connection);
            return Ok(());
        }
        if staging.wanted_by(batch).is_some() {
            return Err(Refusal::AlreadyTaken);
        }
        staging.want(batch, connection);
        Ok(())
    }

    /// The wait ended before now: the trainer tells of it with its next request.
    pub(super) fn handle_delivered(
        &mut self,
        connection: ConnectionId,
        lease: LeaseId,
        wait: Wait,
    ) {
        let until = wait.until.min(self.now);
        let wait = Wait { since: wait.since.min(until), until };
        for staging in self.ranks.values_mut() {
            let Some(staged) = staging.leased(connection, lease) else { continue };
            if staged.taker != Taker::Leased(connection, lease) {
                continue;
            }
            staged.taker = Taker::Held(connection, lease);
            self.paces.took(staged.need, wait.until, wait.len());
            let samples = staged.batch.entries.iter().filter(|entry| entry.len.is_some()).count();
            let skipped = staged.batch.entries.len() - samples;
            let len = staged.batch.payload();
            let taken = Taken {
                batch: staged.batch.id,
                placed: staged.marks.placed,
                ready: staged.marks.ready(),
                at: wait.until,
                waited: wait.len(),
                causes: staged.marks.delivered(wait),
            };
            let content = Content { samples: samples as u64, skipped: skipped as u64, len };
            self.progress.delivered(taken, content);
            staging.is_blocked = false;
        }
    }

    pub(super) fn handle_tallied(&mut self, connection: ConnectionId, rank: Rank, tally: &Tally) {
        if self.ranks.get(&rank).is_some_and(|staging| staging.connections.contains(&connection)) {
            self.progress.tallied(rank, tally);
        }
    }

    pub(super) fn handle_released(&mut self, connection: ConnectionId, lease: LeaseId) {
        for staging in self.ranks.values_mut() {
            if let Some(staged) = staging.leased(connection, lease) {
                let (batch, held) = (staged.batch.id, staged.marks.held(self.now));
                held.into_iter().for_each(|held| self.progress.released(held));
                staging.vacate(batch);
            }
        }
    }

    pub(super) fn handle_gone(&mut self, connection: ConnectionId) {
        self.waiting.remove(&connection);
        self.turns.remove(&connection);
        for (rank, staging) in &mut self.ranks {
            if !staging.connections.contains(&connection) {
                staging.knocking.retain(|other| *other != connection);
                continue;
            }
            staging.leave(connection);
            if staging.connections.is_empty() && staging.arena == Arena::Open {
                staging.cursor = match self.progress.farthest(*rank) {
                    Some(batch) => self.future.spec().after(batch),
                    None => Some(self.future.spec().first(*rank)),
                };
                self.paces.left(*rank);
                staging.arena = Arena::Closing;
                staging.abandon();
            }
        }
        self.close_arenas();
    }

    /// A trainer says what it will read. If it changes its mind, nothing staged under the old order is
    /// handed over: what it had asked for is refused, and it reads that itself.
    pub(super) fn handle_published(
        &mut self,
        rank: Rank,
        epoch: Epoch,
        samples: Arc<Vec<SampleId>>,
    ) {
        let publication = self.future.publish(rank, epoch, samples);
        self.drop_elsewhere();
        let Some(staging) = self.ranks.get_mut(&rank) else { return };
        staging.is_blocked = false;
        if publication == Publication::Changed {
            staging.cursor = Some(BatchId { epoch, step: Step(0), rank });
            for (batch, connection) in staging.drop_epoch(epoch) {
                self.refuse(connection, batch, Refusal::NotPublished);
            }
        }
    }

    /// Gives a connection the answers that are ready, in the order of its requests.
    pub(super) fn answer(&mut self, connection: ConnectionId) {
        while let Some(&(batch, refusal)) = self.waiting.get(&connection).and_then(|it| it.front())
        {
            let message = match refusal {
                Some(reason) => Command::Refuse { connection, batch, reason },
                None => match self.hand_over(connection, batch) {
                    Some(message) => message,
                    None => return,
                },
            };
            if let Command::Refuse { reason, .. } = message {
                self.progress.refused(reason);
            }
            self.messages.push_back(message);
            self.waiting.get_mut(&connection).and_then(VecDeque::pop_front);
        }
        self.waiting.remove(&connection);
    }

    /// The lease of a batch if it is complete, or the refusal if a sample of it is missing.
    fn hand_over(&mut self, connection: ConnectionId, batch: BatchId) -> Option<Command> {
        let staging = self.ranks.get_mut(&batch.rank)?;
        let staged = staging.staged.get_mut(&batch).filter(|it| it.pending == 0)?;
        let turn = self.turns.entry(connection).or_default();
        staged.marks.had_its_turn(*turn);
        *turn = staged.marks.ready().max(*turn);
        if let Some((sample, fault)) = staged.unreadable {
            staging.vacate(batch);
            let reason = match fault {
                // The trainer can read it: what is missing is memory here.
                Fault::NoSpace => Refusal::NoRoom,
                fault => Refusal::Unreadable(sample, fault),
            };
            return Some(Command::Refuse { connection, batch, reason });
        }
        self.leases += 1;
        let lease = LeaseId(self.leases);
        staged.taker = Taker::Leased(connection, lease);
        let (offset, batch) = (staged.piece.offset, staged.batch.clone());
        Some(Command::Lease { connection, lease, offset, batch })
    }

    /// Notes that a request which has no batch yet will get none.
    pub(super) fn refuse(&mut self, connection: ConnectionId, batch: BatchId, reason: Refusal) {
        let Some(waiting) = self.waiting.get_mut(&connection) else { return };
        let answer =
            waiting.iter_mut().find(|(other, refusal)| *other == batch && refusal.is_none());
        if let Some((_, refusal)) = answer {
            *refusal = Some(reason);
            self.turns.insert(connection, self.now);
        }
        self.answer(connection);
    }

    pub(super) fn open_arena(&mut self, rank: Rank) {
        let op = self.ops.name();
        let Some(staging) = self.ranks.get_mut(&rank) else { return };
        staging.arena = Arena::Opening;
        let command = Command::OpenArena { op, rank, len: staging.len() };
        self.plan(op, Kind::OpenArena(rank), command, &[], None);
    }

    /// Closes the arenas whose trainers left, once nothing is on its way into them.
    pub(super) fn close_arenas(&mut self) {
        let mut reopen = Vec::new();
        for (rank, staging) in &mut self.ranks {
            if staging.arena == Arena::Closing && staging.is_empty() {
                staging.closed();
                self.errands.push_back(Command::CloseArena { rank: *rank });
                if !staging.knocking.is_empty() {
                    reopen.push(*rank);
                }
            }
        }
        for rank in reopen {
            self.open_arena(rank);
        }
    }
}
