//! Gives memory to workloads, and chunks to and from the cache as the node's free memory goes.

use tierfeed_core::{id::HolderId, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{AllocateError, Pages, Region, Request};
use tierfeed_prefetcher::{
    budget::Free,
    handoff::{Delivery, GrantId},
    tier::Backing,
};
use tierfeed_resource_gatherer::Available;

use super::{
    Agent,
    limits::{Pressure, chunks_in},
    link::ToManager,
    loans::{Action, Wish},
};
use crate::places::{Disk, Place};

/// Tasks that wait for memory for more than this share of their time, in per cent, need more of it.
const PRESSURE_MAX: f64 = 10.0;

/// Memory that a workload holds.
pub(super) type Chunks = Vec<Region>;

/// Memory that was allocated for the request at hand, or why it was not.
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
                if let Some((wish, grant)) = granted {
                    self.grant(wish, grant);
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
                    // A line that is full is as good as none: this node decides alone.
                    if self.link.try_send(ToManager::Ask(chunks)).is_err() {
                        self.apply_loan_answer(Ok(()));
                    }
                }
                Action::Lend(chunks) => {
                    let lender = self.limits.lender().map(|(tier, _)| tier);
                    let resize = lender.and_then(|tier| self.limits.lend(tier, chunks));
                    self.resize(resize);
                }
                Action::Allocate(chunks) => self.allocate(chunks),
                Action::Deny(wish, reason) => self.deny(wish, &reason),
                Action::TellReturned(chunks) => {
                    // The manager only counts along, so a lost message costs nothing here.
                    let _ = self.link.try_send(ToManager::Return(chunks));
                }
            }
        }
    }

    /// Goes on with a request for memory as soon as the cache has made room for it.
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

    /// What this node has left now.
    pub(super) fn look_around(&self) -> Option<Available> {
        self.watch
            .read()
            .inspect_err(|error| {
                tracing::warn!(%error, "free memory cannot be read; tiers stay as they are");
            })
            .ok()
    }

    /// Fits tiers that take a share of what is free to what is free now.
    pub(super) fn adapt(&mut self, available: &Available) {
        if self.layout.places.iter().all(|place| place.share.is_none()) {
            return;
        }
        let usage = self.plane.usage();
        let held: Vec<Bytes> = usage.tiers.iter().map(|tier| tier.bytes).collect();
        let node = &self.node;
        let free_for = |place: &Place| -> Option<Free> {
            let kept = node.pools().get(&place.pool)?.kept;
            let bytes = match &place.settings.backing {
                Backing::Memory(Locality::Numa(numa)) => available.bytes_on(*numa),
                Backing::Memory(Locality::Anywhere) => available.bytes(),
                Backing::Directory(path) => {
                    let disk = Disk::read(path).ok()?;
                    if disk.is_tmpfs { disk.free.min(available.bytes()) } else { disk.free }
                }
            };
            Some(Free { bytes, kept })
        };
        let waiting = available.pressure.map_or(0.0, |pressure| pressure.some.percent);
        let pressure = if waiting > PRESSURE_MAX { Pressure::High } else { Pressure::Low };
        for resize in self.limits.adapt(&held, pressure, free_for) {
            tracing::debug!(tier = resize.tier.0, chunks = resize.chunks_max, "tier resized");
            self.resize(Some(resize));
        }
    }

    fn allocate(&mut self, chunks: u32) {
        let chunk = self.layout.chunk;
        let locality = match self.limits.lender().map(|(_, place)| &place.settings.backing) {
            Some(Backing::Memory(locality)) => *locality,
            _ => Locality::Anywhere,
        };
        self.lending.spawn_blocking(move || {
            let request =
                Request { len: chunk, locality, name: "tierfeed-lent", pages: Pages::Huge };
            (0..chunks).map(|_| Region::allocate(&request)).collect()
        });
    }

    fn grant(&mut self, wish: Wish, grant: GrantId) {
        let memory = self.loans.memory(grant).into_iter().flatten();
        let chunks: Vec<&Region> = memory.collect();
        let Wish { holder, request, .. } = wish;
        let outcome = self.server.grant(holder, request, grant, &chunks);
        if !matches!(outcome, Ok(Delivery::Sent)) {
            if let Err(error) = outcome {
                tracing::warn!(holder = holder.0, %error, "memory could not be handed over");
            }
            let actions = self.loans.freed(grant);
            self.lend_or_not(actions);
        }
    }

    fn deny(&self, wish: Wish, reason: &str) {
        let Wish { holder: HolderId(number), request, .. } = wish;
        if let Err(error) = self.server.deny(wish.holder, request, reason) {
            tracing::debug!(holder = number, %error, "a denial had no addressee");
        }
    }
}
