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
    horizon::Publication,
    id::{BatchId, Epoch, HolderId, LeaseId, Rank, SampleId, Step},
    order::Shuffle,
};

impl Session {
    pub(super) fn handle_attached(&mut self, holder: HolderId, rank: Rank) {
        let Some(staging) = self.ranks.get_mut(&rank) else {
            self.messages.push_back(Command::Reject { holder, rank });
            return;
        };
        match staging.arena {
            Arena::Open => {
                staging.enter(holder);
                self.messages.push_back(Command::Admit { holder, rank });
            }
            Arena::Opening | Arena::Closing => staging.knocking.push(holder),
            Arena::Closed | Arena::Refused => {
                staging.knocking.push(holder);
                self.open_arena(rank);
            }
        }
    }

    pub(super) fn handle_requested(&mut self, holder: HolderId, batch: BatchId) {
        if !self.ranks.values().any(|staging| staging.holders.contains(&holder)) {
            return;
        }
        let refusal = self.request(holder, batch).err();
        if refusal.is_none() {
            self.paces.asked(self.need_of(batch), self.now);
        }
        self.waiting.entry(holder).or_default().push_back((batch, refusal));
        self.answer(holder);
    }

    fn request(&mut self, holder: HolderId, batch: BatchId) -> Result<(), Refusal> {
        let spec = *self.horizon.spec();
        let staging = self.ranks.get_mut(&batch.rank);
        let staging = staging.filter(|it| it.holders.contains(&holder) && spec.contains(batch));
        let staging = staging.ok_or(Refusal::NotInOrder)?;
        let is_jump = !self.horizon.holds(batch.epoch) && staging.is_far(batch, &spec);
        if is_jump && !self.jumps.allow(batch.rank, spec.samples, self.now) {
            return Err(Refusal::TooManyJumps);
        }
        if spec.shuffle == Shuffle::Published {
            let samples = self.horizon.batch(batch).ok_or(Refusal::NotPublished)?;
            if samples.is_empty() {
                return Err(Refusal::NotInOrder);
            }
        }
        let is_known = staging.staged.contains_key(&batch);
        staging.reach(holder, batch, spec.batches_between(batch, staging.cursor));
        let is_gone = |staged: &Staged| staged.is_stale && staged.taker == Taker::Dropped;
        let staged = staging.staged.get_mut(&batch).filter(|it| is_known && !is_gone(it));
        if let Some(staged) = staged {
            if !matches!(staged.taker, Taker::Nobody | Taker::Dropped) {
                return Err(Refusal::AlreadyTaken);
            }
            staged.taker = Taker::Requested(holder);
            return Ok(());
        }
        if staging.wanted_by(batch).is_some() {
            return Err(Refusal::AlreadyTaken);
        }
        staging.want(batch, holder);
        Ok(())
    }

    /// The wait ended before now: the trainer tells of it with its next request.
    pub(super) fn handle_delivered(&mut self, holder: HolderId, lease: LeaseId, wait: Wait) {
        let until = wait.until.min(self.now);
        let wait = Wait { since: wait.since.min(until), until };
        for staging in self.ranks.values_mut() {
            let Some(staged) = staging.leased(holder, lease) else { continue };
            if staged.taker != Taker::Leased(holder, lease) {
                continue;
            }
            staged.taker = Taker::Held(holder, lease);
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

    pub(super) fn handle_tallied(&mut self, holder: HolderId, rank: Rank, tally: &Tally) {
        if self.ranks.get(&rank).is_some_and(|staging| staging.holders.contains(&holder)) {
            self.progress.tallied(rank, tally);
        }
    }

    pub(super) fn handle_released(&mut self, holder: HolderId, lease: LeaseId) {
        for staging in self.ranks.values_mut() {
            if let Some(staged) = staging.leased(holder, lease) {
                let (batch, held) = (staged.batch.id, staged.marks.held(self.now));
                held.into_iter().for_each(|held| self.progress.released(held));
                staging.vacate(batch);
            }
        }
    }

    pub(super) fn handle_gone(&mut self, holder: HolderId) {
        self.waiting.remove(&holder);
        self.turns.remove(&holder);
        for (rank, staging) in &mut self.ranks {
            if !staging.holders.contains(&holder) {
                staging.knocking.retain(|other| *other != holder);
                continue;
            }
            staging.leave(holder);
            if staging.holders.is_empty() && staging.arena == Arena::Open {
                staging.cursor = match self.progress.farthest(*rank) {
                    Some(batch) => self.horizon.spec().after(batch),
                    None => Some(self.horizon.spec().first(*rank)),
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
        let publication = self.horizon.publish(rank, epoch, samples);
        self.drop_elsewhere();
        let Some(staging) = self.ranks.get_mut(&rank) else { return };
        staging.is_blocked = false;
        if publication == Publication::Changed {
            staging.cursor = Some(BatchId { epoch, step: Step(0), rank });
            for (batch, holder) in staging.drop_epoch(epoch) {
                self.refuse(holder, batch, Refusal::NotPublished);
            }
        }
    }

    /// Gives a holder the answers that are ready, in the order of its requests.
    pub(super) fn answer(&mut self, holder: HolderId) {
        while let Some(&(batch, refusal)) = self.waiting.get(&holder).and_then(|it| it.front()) {
            let message = match refusal {
                Some(reason) => Command::Refuse { holder, batch, reason },
                None => match self.hand_over(holder, batch) {
                    Some(message) => message,
                    None => return,
                },
            };
            if let Command::Refuse { reason, .. } = message {
                self.progress.refused(reason);
            }
            self.messages.push_back(message);
            self.waiting.get_mut(&holder).and_then(VecDeque::pop_front);
        }
        self.waiting.remove(&holder);
    }

    /// The lease of a batch if it is complete, or the refusal if a sample of it is missing.
    fn hand_over(&mut self, holder: HolderId, batch: BatchId) -> Option<Command> {
        let staging = self.ranks.get_mut(&batch.rank)?;
        let staged = staging.staged.get_mut(&batch).filter(|it| it.pending == 0)?;
        let turn = self.turns.entry(holder).or_default();
        staged.marks.had_its_turn(*turn);
        *turn = staged.marks.ready().max(*turn);
        if let Some((sample, fault)) = staged.unreadable {
            staging.vacate(batch);
            let reason = match fault {
                // The trainer can read it: what is missing is memory here.
                Fault::NoSpace => Refusal::NoRoom,
                fault => Refusal::Unreadable(sample, fault),
            };
            return Some(Command::Refuse { holder, batch, reason });
        }
        self.leases += 1;
        let lease = LeaseId(self.leases);
        staged.taker = Taker::Leased(holder, lease);
        let (offset, batch) = (staged.piece.offset, staged.batch.clone());
        Some(Command::Lease { holder, lease, offset, batch })
    }

    /// Notes that a request which has no batch yet will get none.
    pub(super) fn refuse(&mut self, holder: HolderId, batch: BatchId, reason: Refusal) {
        let Some(waiting) = self.waiting.get_mut(&holder) else { return };
        let answer =
            waiting.iter_mut().find(|(other, refusal)| *other == batch && refusal.is_none());
        if let Some((_, refusal)) = answer {
            *refusal = Some(reason);
            self.turns.insert(holder, self.now);
        }
        self.answer(holder);
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
