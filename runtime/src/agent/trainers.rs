//! What trainers do, told to the session; what the session answers, told to the trainers.

use std::sync::Arc;

use tierfeed_core::{
    id::{BatchId, ConnectionId, LeaseId, Rank},
    session::{Answer, Event, Refusal, Wait},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{ClientEvent, Delivery};
use tierfeed_prefetcher::recorder::What;

use super::{Agent, publications::Publication};

/// A connection that reads batches.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    rank: Rank,
}

/// From the first connection of a trainer to the last sign of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    first: Nanoseconds,
    last: Nanoseconds,
    /// What was read from the cold store before the first connection.
    pub(super) cold_before: Bytes,
}

impl Span {
    pub(super) fn len(self) -> Nanoseconds {
        Nanoseconds(self.last.0 - self.first.0)
    }
}

impl Agent {
    pub(super) fn apply_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Attached { holder: connection, rank, role, trainer } => {
                tracing::info!(connection = connection.0, rank = rank.0, "trainer connected");
                self.note_training();
                self.attendance.came(rank, self.clock.now());
                self.connections.insert(connection, Some(Reading { rank }));
                self.readers.came(connection, role, self.clock.now());
                self.starvation.came(connection, trainer);
                self.observer.note(What::Came(rank));
                self.tell(Event::Attached { connection, rank });
            }
            ClientEvent::TurnedAway { reason } => {
                tracing::warn!(%reason, "a process that is no rank of the job was turned away");
                self.attendance.turned_away(reason);
            }
            ClientEvent::Requested { holder: connection, batch } => {
                self.readers.acts(connection);
                self.tell(Event::Requested { connection, batch });
            }
            ClientEvent::Delivered { holder: connection, lease, wait } => {
                self.delivered(connection, lease, wait);
            }
            ClientEvent::Tallied { holder: connection, rank, tally } => {
                self.note_training();
                let tally = self.readers.believe_tally(connection, tally, self.clock.now());
                self.tell(Event::Tallied { connection, rank, tally });
            }
            ClientEvent::Released { holder: connection, lease, parting } => {
                self.note_training();
                self.observer.released(lease, parting);
                self.tell(Event::Released { connection, lease });
            }
            ClientEvent::Published { holder: connection, request, rank, epoch, samples } => {
                let samples = Arc::new(samples);
                self.published.keep(Publication { rank, epoch, samples: Arc::clone(&samples) });
                self.tell(Event::Published { rank, epoch, samples });
                self.server.took_order(connection, request);
            }
            ClientEvent::MemoryRequested { holder: connection, request, bytes } => {
                self.connections.entry(connection).or_default();
                let actions = self.loans.wish(connection, request, bytes);
                self.lend_or_not(actions);
            }
            ClientEvent::MemoryFreed { holder: _, grant } => {
                let actions = self.loans.freed(grant);
                self.lend_or_not(actions);
            }
            ClientEvent::Gone { holder: connection, cause } => {
                if let Some(Some(Reading { rank })) = self.connections.remove(&connection) {
                    tracing::info!(connection = connection.0, rank = rank.0, %cause, "trainer gone");
                    self.note_training();
                    self.observer.gone(connection, rank);
                    self.readers.left(connection);
                    self.starvation.left(connection);
                    self.tell(Event::Gone { connection });
                }
                let actions = self.loans.gone(connection);
                self.lend_or_not(actions);
            }
        }
    }

    /// A trainer has got a batch, for which it waited as it says.
    fn delivered(&mut self, connection: ConnectionId, lease: LeaseId, wait: Wait) {
        self.note_training();
        let of_host = |time| self.clock.of_host(time);
        let told = Wait { since: of_host(wait.since), until: of_host(wait.until) };
        let wait = self.readers.believe(connection, told, self.clock.now());
        let before = self.session.progress().waits.count();
        self.tell(Event::Delivered { connection, lease, wait });
        let progress = self.session.progress();
        if let Some(taken) = progress.taken.as_ref().filter(|_| progress.waits.count() > before) {
            self.observer.taken(connection, lease, taken);
        }
    }

    /// Passes an answer of the session on to its trainer.
    pub(super) fn answer_trainer(&mut self, answer: Answer) {
        match answer {
            Answer::Admit { connection, rank } => self.admit(connection, rank),
            Answer::Reject { connection, rank } => {
                let reason = format!(
                    "there is no staging memory here for rank {}; this node has ranks {}",
                    rank.0,
                    self.rank_names()
                );
                self.server.close(connection, reason);
            }
            Answer::Lease { connection, lease, offset, batch } => {
                let index = &self.index;
                let label = |sample| index.label(sample).map(i64::from);
                let outcome = self.server.lease(connection, lease, offset, &batch, label);
                self.check(connection, outcome);
            }
            Answer::Refuse { connection, batch, reason } => self.refuse(connection, batch, reason),
        }
    }

    fn admit(&mut self, connection: ConnectionId, rank: Rank) {
        let Some(arena) = self.plane.arena(rank) else {
            self.server.close(connection, "the staging memory of this rank is gone; connect again");
            return;
        };
        let briefing = tierfeed_handoff::Briefing { rank, ..self.briefing.clone() };
        let outcome = self.server.admit(connection, &briefing, arena);
        self.check(connection, outcome);
    }

    fn refuse(&mut self, connection: ConnectionId, batch: BatchId, reason: Refusal) {
        if let Refusal::Unreadable(sample, fault) = reason {
            let object = self.index.object_name(sample);
            tracing::warn!(sample = sample.0, object, fault = fault.name(), "unreadable sample");
        }
        let outcome = self.server.refuse(connection, batch, reason);
        self.check(connection, outcome);
    }

    /// A client that cannot be answered is let go: it reads on by itself.
    fn check<E: std::error::Error>(&self, connection: ConnectionId, outcome: Result<Delivery, E>) {
        if let Err(error) = outcome {
            tracing::warn!(connection = connection.0, %error, "trainer let go");
            self.server.close(connection, error);
        }
    }

    fn note_training(&mut self) {
        let now = self.clock.now();
        let read = || self.session.progress().epochs.iter().map(|epoch| epoch.cold.0).sum();
        let span = self.training.get_or_insert_with(|| Span {
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
