//! Lends CXL memory to workloads: handles one request after the other, from asking to the grant.
//!
//! A request goes to the manager first, if there is one; then the cache gives up chunks; then the memory is
//! allocated; then it is granted. Lent memory comes back when the workload frees it or dies. This module
//! decides the next step only: the agent carries it out.
//!
//! # Source
//!
//! `DeepMemoryDL`, "Allocation of CXL-based Memory".

use std::collections::{BTreeMap, VecDeque};

use tierfeed_core::{
    fleet::{Denial, Ledger},
    id::ConnectionId,
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{GRANT_CHUNKS_MAX, GrantId, RequestId};

/// Requests that wait; more are denied.
const QUEUE_MAX: usize = 64;

/// How long the cache may take to give up its chunks.
const ROOM_WITHIN: Nanoseconds = Nanoseconds(10_000_000_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoanRequest {
    pub(super) connection: ConnectionId,
    pub(super) request: RequestId,
    pub(super) chunks: u32,
}

/// The next step, which the agent carries out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Ask the manager, then call [`Loans::agreed`] or [`Loans::refused`].
    AskManager(u32),
    /// Shrink the cache by this many chunks in all, then call [`Loans::poll_room`].
    Lend(u32),
    /// Allocate, then call [`Loans::allocated`] or [`Loans::refused`].
    Allocate(u32),
    Deny(LoanRequest, String),
    TellReturned(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Asking,
    MakingRoom { until: Nanoseconds },
    Allocating,
}

/// `M` is the type of the lent memory.
#[derive(Debug)]
pub(super) struct Loans<M> {
    ledger: Ledger,
    chunk: Bytes,
    waiting: VecDeque<LoanRequest>,
    current: Option<(LoanRequest, Stage)>,
    granted: BTreeMap<GrantId, (ConnectionId, u32, M)>,
    grants: u64,
}

impl<M> Loans<M> {
    pub(super) fn new(ledger: Ledger, chunk: Bytes) -> Self {
        Self {
            ledger,
            chunk,
            waiting: VecDeque::new(),
            current: None,
            granted: BTreeMap::new(),
            grants: 0,
        }
    }

    pub(super) fn granted(&self) -> Bytes {
        let chunks: u64 = self.granted.values().map(|(_, chunks, _)| u64::from(*chunks)).sum();
        Bytes(chunks * self.chunk.0)
    }

    pub(super) fn request(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        bytes: Bytes,
    ) -> Vec<Action> {
        let chunks = u32::try_from(bytes.0.div_ceil(self.chunk.0.max(1))).unwrap_or(u32::MAX);
        let loan = LoanRequest { connection, request, chunks };
        if chunks as usize > GRANT_CHUNKS_MAX {
            let most = Bytes(self.chunk.0.saturating_mul(GRANT_CHUNKS_MAX as u64));
            return vec![Action::Deny(loan, format!("at most {most} at a time; ask for less"))];
        }
        if self.waiting.len() == QUEUE_MAX {
            let reason = "too many requests for memory wait; ask again later".to_owned();
            return vec![Action::Deny(loan, reason)];
        }
        self.waiting.push_back(loan);
        self.begin()
    }

    /// The manager agrees, or cannot be reached.
    pub(super) fn agreed(&mut self, now: Nanoseconds) -> Vec<Action> {
        if let Some((_, stage @ Stage::Asking)) = &mut self.current {
            *stage = Stage::MakingRoom { until: Nanoseconds(now.0 + ROOM_WITHIN.0) };
            return vec![Action::Lend(self.ledger.lent())];
        }
        Vec::new()
    }

    /// Whether [`Self::poll_room`] waits to be called.
    pub(super) fn needs_room(&self) -> bool {
        matches!(self.current, Some((_, Stage::MakingRoom { .. })))
    }

    /// Continues once the cache holds so few chunks (`cached`) that the request fits into `budget`.
    pub(super) fn poll_room(&mut self, cached: u32, budget: u32, now: Nanoseconds) -> Vec<Action> {
        let Some((loan, stage)) = &mut self.current else { return Vec::new() };
        let Stage::MakingRoom { until } = *stage else { return Vec::new() };
        if cached <= budget.saturating_sub(self.ledger.lent()) {
            *stage = Stage::Allocating;
            return vec![Action::Allocate(loan.chunks)];
        }
        if now < until {
            return Vec::new();
        }
        self.refused("the cache did not give its memory up in time")
    }

    /// The memory was allocated; returns the request that it is for, `None` if there is none any more.
    pub(super) fn allocated(&mut self, memory: M) -> (Option<(LoanRequest, GrantId)>, Vec<Action>) {
        let Some((loan, Stage::Allocating)) = self.current.take() else {
            return (None, Vec::new());
        };
        self.grants += 1;
        let grant = GrantId(self.grants);
        self.granted.insert(grant, (loan.connection, loan.chunks, memory));
        (Some((loan, grant)), self.begin())
    }

    pub(super) fn memory(&self, grant: GrantId) -> Option<&M> {
        self.granted.get(&grant).map(|(_, _, memory)| memory)
    }

    pub(super) fn refused(&mut self, reason: &str) -> Vec<Action> {
        let Some((loan, stage)) = self.current.take() else { return Vec::new() };
        self.take_back(loan.chunks);
        let mut actions = vec![Action::Lend(self.ledger.lent())];
        if stage != Stage::Asking {
            actions.push(Action::TellReturned(loan.chunks));
        }
        actions.push(Action::Deny(loan, reason.to_owned()));
        actions.extend(self.begin());
        actions
    }

    pub(super) fn freed(&mut self, grant: GrantId) -> Vec<Action> {
        let Some((_, chunks, memory)) = self.granted.remove(&grant) else { return Vec::new() };
        drop(memory);
        self.take_back(chunks);
        vec![Action::TellReturned(chunks), Action::Lend(self.ledger.lent())]
    }

    /// A workload disconnected. Its current request is allocated, found undeliverable, and freed.
    pub(super) fn gone(&mut self, connection: ConnectionId) -> Vec<Action> {
        self.waiting.retain(|loan| loan.connection != connection);
        let own = self.granted.iter().filter(|(_, (owner, ..))| *owner == connection);
        let own: Vec<GrantId> = own.map(|(grant, _)| *grant).collect();
        own.into_iter().flat_map(|grant| self.freed(grant)).collect()
    }

    fn begin(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while self.current.is_none()
            && let Some(loan) = self.waiting.pop_front()
        {
            match self.ledger.lend(loan.chunks) {
                Ok(()) => {
                    self.current = Some((loan, Stage::Asking));
                    actions.push(Action::AskManager(loan.chunks));
                }
                Err(denial) => actions.push(Action::Deny(loan, self.explain(denial))),
            }
        }
        actions
    }

    fn explain(&self, denial: Denial) -> String {
        match denial {
            Denial::TooFew { asked, free } => format!(
                "{} of cxl-memory asked for, {} are free; ask for less, or give the tier a larger size",
                Bytes(u64::from(asked) * self.chunk.0),
                Bytes(u64::from(free) * self.chunk.0),
            ),
            other => other.to_string(),
        }
    }

    fn take_back(&mut self, chunks: u32) {
        self.ledger.take_back(chunks).expect("only what was lent comes back");
    }
}

#[cfg(test)]
mod tests;
