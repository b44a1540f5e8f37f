//! Passes events of trainers to the session, and the session's answers to the trainers.

use std::sync::Arc;

use tierfeed_core::{
    id::{BatchId, HolderId, LeaseId, Rank},
    session::{Command, Event, Refusal, Wait},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{ClientEvent, Delivery};
use tierfeed_prefetcher::recorder::What;

use super::{Agent, publications::Publication};

/// A connection that reads batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchReader {
    rank: Rank,
}

/// The time from the first connection of a trainer to the last event of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrainingSpan {
    first: Nanoseconds,
    last: Nanoseconds,
    /// Bytes that were read from the cold store before the first connection.
    pub(super) cold_before: Bytes,
}

impl TrainingSpan {
    pub(super) fn len(self) -> Nanoseconds {
        Nanoseconds(self.last.0 - self.first.0)
    }
}

impl Agent {
    pub(super) fn apply_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Attached { holder, rank, role, trainer } => {
                tracing::info!(holder = holder.0, rank = rank.0, "trainer connected");
                self.note_training();
                self.ranks.connected(rank, self.clock.now());
                self.holders.insert(holder, Some(BatchReader { rank }));
                self.readers.connect(holder, role, self.clock.now());
                self.starvation.connect(holder, trainer);
                self.observer.note(What::Came(rank));
                self.tell(Event::Attached { holder, rank });
            }
            ClientEvent::TurnedAway { reason } => {
                tracing::warn!(%reason, "a process that is no rank of the job was turned away");
                self.ranks.turned_away(reason);
            }
            ClientEvent::Requested { holder, batch } => {
                self.readers.mark_active(holder);
                self.tell(Event::Requested { holder, batch });
            }
            ClientEvent::Delivered { holder, lease, wait } => {
                self.delivered(holder, lease, wait);
            }
            ClientEvent::Tallied { holder, rank, tally } => {
                self.note_training();
                let tally = self.readers.clamp_tally(holder, tally, self.clock.now());
                self.tell(Event::Tallied { holder, rank, tally });
            }
            ClientEvent::Released { holder, lease, parting } => {
                self.note_training();
                self.observer.released(lease, parting);
                self.tell(Event::Released { holder, lease });
            }
            ClientEvent::Published { holder, request, rank, epoch, samples } => {
                let samples = Arc::new(samples);
                self.published.keep(Publication { rank, epoch, samples: Arc::clone(&samples) });
                self.tell(Event::Published { rank, epoch, samples });
                self.server.took_order(holder, request);
            }
            ClientEvent::MemoryRequested { holder, request, bytes } => {
                self.holders.entry(holder).or_default();
                let actions = self.loans.request(holder, request, bytes);
                self.lend_or_not(actions);
            }
            ClientEvent::MemoryFreed { holder: _, grant } => {
                let actions = self.loans.freed(grant);
                self.lend_or_not(actions);
            }
            ClientEvent::Gone { holder, cause } => {
                if let Some(Some(BatchReader { rank })) = self.holders.remove(&holder) {
                    tracing::info!(holder = holder.0, rank = rank.0, %cause, "trainer gone");
                    self.note_training();
                    self.observer.gone(holder, rank);
                    self.readers.disconnect(holder);
                    self.starvation.disconnect(holder);
                    self.tell(Event::Gone { holder });
                }
                let actions = self.loans.gone(holder);
                self.lend_or_not(actions);
            }
        }
    }

    /// A trainer received a batch and reports how long it waited.
    fn delivered(&mut self, holder: HolderId, lease: LeaseId, wait: Wait) {
        self.note_training();
        let of_host = |time| self.clock.of_host(time);
        let told = Wait { since: of_host(wait.since), until: of_host(wait.until) };
        let wait = self.readers.clamp_wait(holder, told, self.clock.now());
        let before = self.session.progress().waits.count();
        self.tell(Event::Delivered { holder, lease, wait });
        let progress = self.session.progress();
        if let Some(taken) = progress.taken.as_ref().filter(|_| progress.waits.count() > before) {
            self.observer.taken(holder, lease, taken);
        }
    }

    /// Carries out a command for the hand-off.
    pub(super) fn answer_trainer(&mut self, command: Command) {
        match command {
            Command::Admit { holder, rank } => self.admit(holder, rank),
            Command::Reject { holder, rank } => {
                let reason = format!(
                    "there is no staging memory here for rank {}; this node has ranks {}",
                    rank.0,
                    self.rank_names()
                );
                self.server.close(holder, reason);
            }
            Command::Lease { holder, lease, offset, batch } => {
                let index = &self.index;
                let label = |sample| index.label(sample).map(i64::from);
                let outcome = self.server.lease(holder, lease, offset, &batch, label);
                self.check(holder, outcome);
            }
            Command::Refuse { holder, batch, reason } => self.refuse(holder, batch, reason),
            other => unreachable!("the data plane gives back only what is for trainers: {other:?}"),
        }
    }

    fn admit(&mut self, holder: HolderId, rank: Rank) {
        let Some(arena) = self.plane.arena(rank) else {
            self.server.close(holder, "the staging memory of this rank is gone; connect again");
            return;
        };
        let briefing = tierfeed_handoff::Briefing { rank, ..self.briefing.clone() };
        let outcome = self.server.admit(holder, &briefing, arena);
        self.check(holder, outcome);
    }

    fn refuse(&mut self, holder: HolderId, batch: BatchId, reason: Refusal) {
        if let Refusal::Unreadable(sample, fault) = reason {
            let object = self.index.object_name(sample);
            tracing::warn!(sample = sample.0, object, fault = fault.name(), "unreadable sample");
        }
        let outcome = self.server.refuse(holder, batch, reason);
        self.check(holder, outcome);
    }

    /// Disconnects a client that cannot be answered: it continues by reading the cold store itself.
    fn check<E: std::error::Error>(&self, holder: HolderId, outcome: Result<Delivery, E>) {
        if let Err(error) = outcome {
            tracing::warn!(holder = holder.0, %error, "trainer let go");
            self.server.close(holder, error);
        }
    }

    fn note_training(&mut self) {
        let now = self.clock.now();
        let read = || self.session.progress().epochs.iter().map(|epoch| epoch.cold.0).sum();
        let span = self.training.get_or_insert_with(|| TrainingSpan {
            first: now,
            last: now,
            cold_before: Bytes(read()),
        });
        span.last = now;
    }

    fn rank_names(&self) -> String {
        let ranks = self.assignment.order.world.ranks_of(self.assignment.node);
        let ranks: Vec<_> = ranks.map(|rank| rank.0.to_string()).collect();
        ranks.join(", ")
    }
}
