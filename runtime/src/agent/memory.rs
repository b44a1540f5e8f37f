//! Lends memory to workloads, and resizes cache and staging as the node's free memory changes.

use std::{collections::BTreeMap, time::Duration};

use tierfeed_core::{
    budget::{Change, Free, Pool, Reading, Step, TierReading, chunks_in},
    id::{ConnectionId, TierId},
    session::Event as SessionEvent,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{Delivery, GrantId};
use tierfeed_numa_memory::{AllocateError, Pages, Region, Request};
use tierfeed_prefetcher::{plane::TierUsage, recorder::EventKind, tier::Backing};
use tierfeed_resource_gatherer::Available;
use tokio::time::Instant;

use super::{
    Agent,
    loans::{Action, LoanRequest},
    manager_connection::ToManager,
};
use crate::observe::footprint::MemoryState;

/// How often the session is told its staging limit, so that it retries allocations that failed.
const TOLD_EVERY: Nanoseconds = Nanoseconds(10_000_000_000);

/// How soon free memory is looked at again where a cache may have to make room.
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
                    let lender = self.holdings.lender();
                    let change = lender.and_then(|tier| self.holdings.lend(tier, chunks));
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
        let Some(tier) = self.holdings.lender() else { return };
        let budget = self.holdings.budget_chunks(tier);
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
        let may_run_short = self.holdings.may_run_short(&reading);
        self.next_look = may_run_short.then(|| Instant::now() + LOOK_AGAIN_WITHIN);
        let changes = self.holdings.read(&reading);
        self.adapt_page_cache(available, self.holdings.waiting());
        let state = MemoryState {
            batches: self.holdings.batches(),
            waiting: self.holdings.waiting(),
            lent: self.loans.granted(),
        };
        self.footprint.timeline.note(&reading, &usage, state, &changes);
        for change in changes {
            self.carry_out_change(change);
        }
        let now = self.clock.now();
        if now.0.saturating_sub(self.staging_told.0) >= TOLD_EVERY.0 {
            self.staging_told = now;
            self.tell(SessionEvent::StagingLimited { batches: self.holdings.batches() });
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
        let lender = self.holdings.lender().map(|tier| &self.layout.tiers[usize::from(tier.0)]);
        let locality = match lender.map(|tier| &tier.settings.backing) {
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
