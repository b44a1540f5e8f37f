//! What trainers do, told to the session; what the session answers, told to the trainers.

use tierfeed_core::{
    id::{BatchId, Epoch, HolderId, Rank, SampleId},
    order::Shuffle,
    session::{Command, Event, Refusal},
    units::Nanoseconds,
};
use tierfeed_prefetcher::{
    handoff::{ClientEvent, Delivery},
    recorder::What,
};

use super::Agent;

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
}

impl Span {
    pub(super) fn len(self) -> Nanoseconds {
        Nanoseconds(self.last.0 - self.first.0)
    }
}

impl Agent {
    /// Whether a trainer of this node may publish such an order; the session judges by the same rule.
    fn is_possible(&self, rank: Rank, epoch: Epoch, samples: &[SampleId]) -> bool {
        let order = &self.assignment.order;
        order.shuffle == Shuffle::Published
            && epoch.0 < order.epochs
            && order.world.ranks_of(self.assignment.node).any(|other| other == rank)
            && samples.len() <= order.samples_per_rank() as usize
            && samples.iter().all(|sample| sample.0 < order.samples)
    }

    pub(super) fn apply_client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Attached { holder, rank } => {
                tracing::info!(holder = holder.0, rank = rank.0, "trainer connected");
                self.note_training();
                self.holders.insert(holder, Some(Reading { rank }));
                self.observer.note(What::Came(rank));
                self.tell(Event::Attached { holder, rank });
            }
            ClientEvent::Requested { holder, batch } => {
                self.tell(Event::Requested { holder, batch });
            }
            ClientEvent::Delivered { holder, lease, waited } => {
                self.note_training();
                let before = self.session.progress().waits.count();
                self.tell(Event::Delivered { holder, lease, waited });
                let progress = self.session.progress();
                if let Some(taken) =
                    progress.taken.as_ref().filter(|_| progress.waits.count() > before)
                {
                    self.observer.taken(holder, lease, taken);
                }
            }
            ClientEvent::Released { holder, lease, parting } => {
                self.note_training();
                self.observer.released(lease, parting);
                self.tell(Event::Released { holder, lease });
            }
            ClientEvent::Published { holder: _, rank, epoch, samples } => {
                if self.is_possible(rank, epoch, &samples)
                    && let Err(error) = self.published.keep(rank, epoch, &samples)
                {
                    tracing::warn!(%error, "a published order is not kept; the report lacks it");
                }
                self.tell(Event::Published { rank, epoch, samples });
            }
            ClientEvent::MemoryRequested { holder, request, bytes } => {
                self.holders.entry(holder).or_default();
                let actions = self.loans.wish(holder, request, bytes);
                self.lend_or_not(actions);
            }
            ClientEvent::MemoryFreed { holder: _, grant } => {
                let actions = self.loans.freed(grant);
                self.lend_or_not(actions);
            }
            ClientEvent::Gone { holder, cause } => {
                if let Some(Some(Reading { rank })) = self.holders.remove(&holder) {
                    tracing::info!(holder = holder.0, rank = rank.0, %cause, "trainer gone");
                    self.note_training();
                    self.observer.gone(holder, rank);
                    self.tell(Event::Gone { holder });
                }
                let actions = self.loans.gone(holder);
                self.lend_or_not(actions);
            }
        }
    }

    /// Carries out a command that is for the hand-off.
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
        let briefing = tierfeed_prefetcher::handoff::Briefing { rank, ..self.briefing.clone() };
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

    /// A client that cannot be answered is let go: it reads on by itself.
    fn check<E: std::error::Error>(&self, holder: HolderId, outcome: Result<Delivery, E>) {
        if let Err(error) = outcome {
            tracing::warn!(holder = holder.0, %error, "trainer let go");
            self.server.close(holder, error);
        }
    }

    fn note_training(&mut self) {
        let now = self.clock.now();
        let span = self.training.get_or_insert(Span { first: now, last: now });
        span.last = now;
    }

    fn rank_names(&self) -> String {
        let ranks = self.assignment.order.world.ranks_of(self.assignment.node);
        let ranks: Vec<_> = ranks.map(|rank| rank.0.to_string()).collect();
        ranks.join(", ")
    }
}
