//! Passes events of trainers to the session, and the session's answers to the trainers.

use std::sync::Arc;

use tierfeed_core::{
    id::{BatchId, ConnectionId, LeaseId, Rank},
    session::{Answer, Event, Refusal, Wait},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{ClientEvent, Delivery, Explained, Pages};
use tierfeed_prefetcher::recorder::EventKind;
use tierfeed_resource_gatherer::Sysroot;

use super::{Agent, publications::Publication};
use crate::clock::process_cpu_time;

#[derive(Debug, Clone, Copy)]
pub(super) struct BatchReader {
    rank: Rank,
}

#[derive(Debug)]
pub(super) struct Training {
    /// When the agent began to read for it.
    since: Nanoseconds,
    /// `None` until a trainer has connected.
    pub(super) span: Option<TrainingSpan>,
}

impl Training {
    pub(super) const fn awaited_since(since: Nanoseconds) -> Self {
        Self { since, span: None }
    }
}

/// The time from the first connection of a trainer to the last event of one.
#[derive(Debug, Clone, Copy)]
pub(super) struct TrainingSpan {
    first: Nanoseconds,
    last: Nanoseconds,
    /// The time for which the agent had read before.
    pub(super) head_start: Nanoseconds,
    /// Bytes that were read from the cold store before the first connection.
    pub(super) cold_before: Bytes,
    /// The time for which threads had transformed before, all together.
    pub(super) transformed_before: Nanoseconds,
    /// The CPU time of this process before.
    pub(super) cpu_before: Nanoseconds,
}

impl TrainingSpan {
    pub(super) fn len(self) -> Nanoseconds {
        Nanoseconds(self.last.0 - self.first.0)
    }
}

impl Agent {
    pub(super) fn apply_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Attached { connection, rank, role, trainer, pages } => {
                tracing::info!(connection = connection.0, rank = rank.0, "trainer connected");
                self.note_training();
                self.place_staging(rank, trainer);
                self.ranks.connected(rank, self.clock.now());
                self.connections.insert(connection, Some(BatchReader { rank }));
                self.readers.connect(connection, role, self.clock.now());
                self.starvation.connect(connection, trainer);
                self.observer.note(EventKind::Connected(rank));
                if pages == Pages::Pinned {
                    self.tell(Event::ArenaPinned { rank });
                }
                self.tell(Event::Attached { connection, rank });
            }
            ClientEvent::TurnedAway { reason } => {
                tracing::warn!(%reason, "a process that is no rank of the job was turned away");
                self.ranks.turned_away(reason);
            }
            ClientEvent::Requested { connection, batch } => {
                self.readers.mark_active(connection);
                self.tell(Event::Requested { connection, batch });
            }
            ClientEvent::Delivered { connection, lease, wait } => {
                self.delivered(connection, lease, wait);
            }
            ClientEvent::Tallied { connection, rank, tally } => {
                self.note_training();
                let tally = self.readers.clamp_tally(connection, tally, self.clock.now());
                self.tell(Event::Tallied { connection, rank, tally });
            }
            ClientEvent::Released { connection, lease, release_kind } => {
                self.note_training();
                self.observer.released(lease, release_kind);
                self.tell(Event::Released { connection, lease });
            }
            ClientEvent::Published { connection, request, rank, epoch, samples } => {
                let samples = Arc::new(samples);
                self.published.keep(Publication { rank, epoch, samples: Arc::clone(&samples) });
                self.tell(Event::Published { rank, epoch, samples });
                self.server.took_order(connection, request);
            }
            ClientEvent::ExplanationWanted { connection, request, samples } => {
                let reasons = samples.iter().filter_map(|it| Some((*it, self.plane.reason(*it)?)));
                self.server.explain(connection, request, reasons);
            }
            ClientEvent::MemoryRequested { connection, request, bytes } => {
                self.connections.entry(connection).or_default();
                let actions = self.loans.request(connection, request, bytes);
                self.lend_or_not(actions);
            }
            ClientEvent::MemoryFreed { connection: _, grant } => {
                let actions = self.loans.freed(grant);
                self.lend_or_not(actions);
            }
            ClientEvent::Gone { connection, cause } => {
                if let Some(Some(BatchReader { rank })) = self.connections.remove(&connection) {
                    tracing::info!(connection = connection.0, rank = rank.0, %cause, "trainer gone");
                    self.note_training();
                    self.observer.gone(connection, rank);
                    self.readers.disconnect(connection);
                    self.starvation.disconnect(connection);
                    self.tell(Event::Gone { connection });
                }
                let actions = self.loans.gone(connection);
                self.lend_or_not(actions);
            }
        }
    }

    /// At the end: handles what trainers that stay connected have told without waking the server.
    pub(super) fn hear_out(&mut self) {
        while let Ok(event) = self.clients.try_recv() {
            self.apply_client(event);
        }
        for event in self.server.unread() {
            self.apply_client(event);
        }
    }

    /// Moves the staging memory of a rank to its first trainer, if that runs elsewhere.
    fn place_staging(&mut self, rank: Rank, trainer: Option<u32>) {
        let is_of_rank = |reader: &Option<BatchReader>| reader.is_some_and(|it| it.rank == rank);
        let Some(process) = trainer.filter(|_| !self.connections.values().any(is_of_rank)) else {
            return;
        };
        let found = self.sockets.trainer_came(Sysroot::live(), &self.node, rank, process);
        if let Some(node) = found {
            tracing::info!(rank = rank.0, numa_node = node.0, "staging moves to its trainer");
            self.plane.stage_near(rank, node);
        }
    }

    fn delivered(&mut self, connection: ConnectionId, lease: LeaseId, wait: Wait) {
        self.note_training();
        let of_host = |time| self.clock.of_host(time);
        let told = Wait { since: of_host(wait.since), until: of_host(wait.until) };
        let wait = self.readers.clamp_wait(connection, told, self.clock.now());
        let before = self.session.progress().waits.count();
        self.tell(Event::Delivered { connection, lease, wait });
        let progress = self.session.progress();
        if let Some(taken) = progress.taken.as_ref().filter(|_| progress.waits.count() > before) {
            self.observer.taken(connection, lease, taken);
        }
        if let Some(threads) = &progress.threads {
            let world = self.order.world;
            let first = Rank(self.assignment.node.0 * world.ranks_per_node);
            self.observer.divided(first, threads);
        }
    }

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
                let catalog = &self.catalog;
                let label = |sample| catalog.label(sample);
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
        if let Refusal::Unreadable(sample, fault) | Refusal::TooManySkipped { sample, fault, .. } =
            reason
        {
            let object = self.catalog.object_name(sample);
            let why = self.plane.reason(sample);
            tracing::warn!(
                sample = sample.0,
                object,
                fault = fault.name(),
                why,
                refused = %Explained(reason),
                "unreadable sample"
            );
        }
        let outcome = self.server.refuse(connection, batch, reason);
        self.check(connection, outcome);
    }

    /// Disconnects a client that cannot be answered: it continues by reading the cold store itself.
    fn check<E: std::error::Error>(&self, connection: ConnectionId, outcome: Result<Delivery, E>) {
        if let Err(error) = outcome {
            tracing::warn!(connection = connection.0, %error, "trainer let go");
            self.server.close(connection, error);
        }
    }

    fn note_training(&mut self) {
        let now = self.clock.now();
        if self.training.span.is_none() {
            self.session.note_load(self.pauses.begin());
        }
        let epochs = &self.session.progress().epochs;
        let read = || epochs.iter().map(|epoch| epoch.cold.0).sum();
        let transformed = || epochs.iter().flat_map(|it| &it.transforms).map(|it| it.time.0).sum();
        let Training { since, span } = &mut self.training;
        let span = span.get_or_insert_with(|| TrainingSpan {
            first: now,
            last: now,
            head_start: Nanoseconds(now.0.saturating_sub(since.0)),
            cold_before: Bytes(read()),
            transformed_before: Nanoseconds(transformed()),
            cpu_before: process_cpu_time(),
        });
        span.last = now;
    }

    fn rank_names(&self) -> String {
        let ranks = self.order.world.ranks_of(self.assignment.node);
        let ranks: Vec<_> = ranks.map(|rank| rank.0.to_string()).collect();
        ranks.join(", ")
    }
}
