//! Lends memory to workloads, and resizes cache and staging as the node's free memory changes.

use std::{collections::BTreeMap, time::Duration};

use tierfeed_core::{
    budget::{Change, Free, Pool, Reading, Step, TierReading},
    id::{ConnectionId, TierId},
    session::Event as SessionEvent,
    tier::{Kind, Locality},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{Delivery, GrantId};
use tierfeed_numa_memory::{AllocateError, Pages, Region, Request};
use tierfeed_prefetcher::{plane::TierUsage, recorder::EventKind, tier::Backing};
use tierfeed_resource_gatherer::Available;
use tokio::time::Instant;

use super::{
    Agent,
    limits::chunks_in,
    loans::{Action, LoanRequest},
    manager_connection::ToManager,
};
use crate::observe::footprint::MemoryState;

/// How often the session is told its staging limit, so that it retries allocations that failed.
const TOLD_EVERY: Nanoseconds = Nanoseconds(10_000_000_000);

/// The most that other processes take of a pool between two ticks.
const SURGE: Bytes = Bytes::mib(4096);

/// How soon free memory is looked at again where less than that is left.
const LOOK_AGAIN_WITHIN: Duration = Duration::from_millis(50);

pub(super) type Chunks = Vec<Region>;

/// Memory that was allocated for the current request, or why it was not.
pub(super) type Lent = Result<Chunks, AllocateError>;

impl Agent {
    pub(super) fn apply_loan_answer(&mut self, answer: Result<(), String>) {
        let actions = match answer {
            Ok(()) => self.loans.agreed(self.clock.now()),
            Err(reason) => self.loans.refused(&reason),
        };
        self.lend_or_not(actions);
    }

    pub(super) fn apply_lent(&mut self, lent: Lent) {
        match lent {
            Ok(chunks) => {
                let (granted, actions) = self.loans.allocated(chunks);
                if let Some((loan, grant)) = granted {
                    self.grant(loan, grant);
                }
                self.lend_or_not(actions);
            }
            Err(error) => {
                tracing::warn!(%error, "no memory for a workload");
                let actions = self.loans.refused(&error.to_string());
                self.lend_or_not(actions);
            }
        }
    }

    pub(super) fn lend_or_not(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::AskManager(chunks) => {
                    // If the queue is full, this node decides alone, as during an outage.
                    if self.manager.try_send(ToManager::Ask(chunks)).is_err() {
                        self.apply_loan_answer(Ok(()));
                    }
                }
                Action::Lend(chunks) => {
                    let lender = self.limits.lender().map(|(tier, _)| tier);
                    let change = lender.and_then(|tier| self.limits.lend(tier, chunks));
                    if let Some(change) = change {
                        self.carry_out_change(change);
                    }
                }
                Action::Allocate(chunks) => self.allocate(chunks),
                Action::Deny(loan, reason) => self.deny(loan, &reason),
                Action::TellReturned(chunks) => {
                    // The manager only counts, so a lost message has no effect on this node.
                    let _ = self.manager.try_send(ToManager::Return(chunks));
                }
            }
        }
    }

    /// Continues a request for memory once the cache has given up enough chunks.
    pub(super) fn poll_room(&mut self) {
        if !self.loans.needs_room() {
            return;
        }
        let Some((tier, _)) = self.limits.lender() else { return };
        let budget = self.limits.budget_chunks(tier);
        let held = self.plane.usage().tiers.get(usize::from(tier.0)).map(|tier| tier.bytes);
        let cached = chunks_in(held.unwrap_or_default(), self.layout.chunk);
        let actions = self.loans.poll_room(cached, budget, self.clock.now());
        self.lend_or_not(actions);
        self.carry_out();
    }

    pub(super) fn adapt(&mut self, available: &Available) {
        let usage = self.plane.usage();
        let held = |(tier, usage): (u8, &TierUsage)| TierReading {
            held: usage.bytes,
            chunks_max: self.session.chunks_max(TierId(tier)),
        };
        let reading = Reading {
            now: self.clock.now(),
            waited: available.pressure.map(|pressure| pressure.some),
            free: self.free_now(available),
            tiers: (0..).zip(&usage.tiers).map(held).collect(),
            staging: usage.arenas,
        };
        let kinds = self.layout.tiers.iter().map(|tier| (tier.settings.kind, tier.pool));
        let may_run_short = may_run_short(&reading, kinds);
        self.next_look = may_run_short.then(|| Instant::now() + LOOK_AGAIN_WITHIN);
        let changes = self.limits.read(&reading);
        self.adapt_page_cache(available, self.limits.waiting());
        let state = MemoryState {
            batches: self.limits.batches(),
            waiting: self.limits.waiting(),
            lent: self.loans.granted(),
        };
        self.footprint.timeline.note(&reading, &usage, state, &changes);
        for change in changes {
            self.carry_out_change(change);
        }
        let now = self.clock.now();
        if now.0.saturating_sub(self.staging_told.0) >= TOLD_EVERY.0 {
            self.staging_told = now;
            self.tell(SessionEvent::StagingLimited { batches: self.limits.batches() });
        }
    }

    /// The free bytes of the pools that tiers draw on. A disk that does not answer is left out.
    fn free_now(&self, available: &Available) -> BTreeMap<Pool, Free> {
        let mut free = self.node.memory_free(available);
        let tiers = &self.layout.tiers;
        let used = |pool: &Pool| tiers.iter().any(|tier| tier.pool == *pool);
        free.retain(|pool, _| used(pool));
        for tier in tiers {
            if let Some(path) = tier.settings.backing.directory()
                && !self.node.is_memory(tier.pool)
                && let Some(disk) = available.disks.iter().find(|disk| disk.path == path)
            {
                free.insert(tier.pool, Free { bytes: disk.free, kept: Bytes(0) });
            }
        }
        free
    }

    fn carry_out_change(&mut self, Change { step, reason }: Change) {
        match step {
            Step::Cache { tier, from, to } => {
                tracing::debug!(tier = tier.0, from, to, ?reason, "tier resized");
                self.observer.note(EventKind::TierResized(tier, to));
                self.tell(SessionEvent::Resized { tier, chunks_max: to });
            }
            Step::Staging { from, to } => {
                tracing::info!(from, to, ?reason, "batches staged ahead");
                self.observer.note(EventKind::StagingResized(to));
                self.tell(SessionEvent::StagingLimited { batches: to });
            }
        }
    }

    fn allocate(&mut self, chunks: u32) {
        let chunk = self.layout.chunk;
        let locality = match self.limits.lender().map(|(_, tier)| &tier.settings.backing) {
            Some(Backing::Memory(locality) | Backing::SharedMemory(locality, _)) => *locality,
            _ => Locality::Anywhere,
        };
        self.lending.spawn_blocking(move || {
            let request =
                Request { len: chunk, locality, name: "tierfeed-lent", pages: Pages::Huge };
            (0..chunks).map(|_| Region::allocate(&request)).collect()
        });
    }

    fn grant(&mut self, loan: LoanRequest, grant: GrantId) {
        let memory = self.loans.memory(grant).into_iter().flatten();
        let chunks: Vec<&Region> = memory.collect();
        let LoanRequest { connection, request, .. } = loan;
        let outcome = self.server.grant(connection, request, grant, &chunks);
        if !matches!(outcome, Ok(Delivery::Sent)) {
            if let Err(error) = outcome {
                tracing::warn!(connection = connection.0, %error, "memory could not be handed over");
            }
            let actions = self.loans.freed(grant);
            self.lend_or_not(actions);
        }
    }

    fn deny(&self, loan: LoanRequest, reason: &str) {
        let LoanRequest { connection: ConnectionId(number), request, .. } = loan;
        if let Err(error) = self.server.deny(loan.connection, request, reason) {
            tracing::debug!(connection = number, %error, "a denial had no addressee");
        }
    }
}

/// Whether others may take all that is left of the memory of a cache before the next tick.
fn may_run_short(reading: &Reading, tiers: impl Iterator<Item = (Kind, Pool)>) -> bool {
    let held = reading.tiers.iter().zip(tiers);
    let mut pools = held.filter(|(tier, (kind, _))| tier.held.0 > 0 && *kind != Kind::Storage);
    pools.any(|(_, (_, pool))| {
        let free = reading.free.get(&pool);
        free.is_some_and(|free| free.bytes.0 < free.kept.0.saturating_add(SURGE.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_looked_at_again_soon_where_a_cache_may_have_to_make_room() {
        let may = |held: Bytes, free: Bytes, kind: Kind| {
            let free = Free { bytes: free, kept: Bytes::mib(100) };
            let reading = Reading {
                now: Nanoseconds(0),
                waited: None,
                free: [(Pool(0), free)].into(),
                tiers: vec![TierReading { held, chunks_max: 8 }],
                staging: Bytes(0),
            };
            may_run_short(&reading, [(kind, Pool(0))].into_iter())
        };
        let plenty = Bytes(Bytes::mib(100).0 + SURGE.0);
        assert!(may(Bytes::mib(8), Bytes(plenty.0 - 1), Kind::MainMemory));
        assert!(!may(Bytes::mib(8), plenty, Kind::MainMemory));
        assert!(!may(Bytes(0), Bytes::mib(1), Kind::MainMemory), "nothing to give back");
        assert!(!may(Bytes::mib(8), Bytes::mib(1), Kind::Storage), "a disk");
    }
}
