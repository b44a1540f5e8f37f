//! A trainer of one rank that goes on after every fault: with what it was handed, then alone.

use alloc::{collections::VecDeque, vec::Vec};

use super::Violation;
use crate::{
    batch::Batch,
    id::{BatchId, ConnectionId, LeaseId, Rank},
    order::Spec,
    units::{Bytes, Nanoseconds},
};

#[derive(Debug)]
pub(super) struct Handed {
    /// The connection over which it came, and goes back.
    pub(super) connection: ConnectionId,
    pub(super) lease: LeaseId,
    pub(super) offset: Bytes,
    pub(super) batch: Batch,
}

#[derive(Debug)]
pub(super) enum Step {
    Handed(Handed),
    /// The trainer read the batch itself.
    Alone,
}

/// The number of connection ids for each rank, a new one each time.
const CONNECTIONS: u64 = 1 << 32;

#[derive(Debug)]
pub(super) struct RankTrainer {
    pub(super) rank: Rank,
    pub(super) connection: Option<ConnectionId>,
    pub(super) is_admitted: bool,
    pub(super) is_alive: bool,
    /// The number of times that its process was killed.
    pub(super) life: u32,
    /// The batch that it uses next, or uses now.
    pub(super) position: Option<BatchId>,
    pub(super) used: Vec<BatchId>,
    /// Batches that it has used and not given back.
    pub(super) held: usize,
    pub(super) keeps_until: Nanoseconds,
    next: Option<BatchId>,
    asked: VecDeque<BatchId>,
    ready: VecDeque<(BatchId, Option<Handed>)>,
    /// `None` if it computes nothing.
    step: Option<Step>,
    connections: u64,
}

impl RankTrainer {
    pub(super) fn new(rank: Rank, order: &Spec) -> Self {
        Self {
            rank,
            connection: None,
            is_admitted: false,
            is_alive: true,
            life: 0,
            position: Some(order.first(rank)),
            used: Vec::new(),
            held: 0,
            keeps_until: Nanoseconds(0),
            next: None,
            asked: VecDeque::new(),
            ready: VecDeque::new(),
            step: None,
            connections: 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.position.is_none()
    }

    pub(super) fn is_new(&self) -> bool {
        self.is_alive && self.step.is_none() && self.connection.is_none()
    }

    /// Returns a new connection, which asks for batches that were not handed over yet.
    pub(super) fn attach(&mut self, order: &Spec) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(u64::from(self.rank.0) * CONNECTIONS + self.connections);
        self.connection = Some(connection);
        self.is_admitted = false;
        self.held = 0;
        let last = self.ready.back().map(|(batch, _)| *batch);
        let current = self.position.filter(|_| self.step.is_some());
        self.next = match last.or(current) {
            Some(batch) => order.after(batch),
            None => self.position,
        };
        connection
    }

    /// Leaves its connection, and returns it. Batches that were handed over stay readable.
    pub(super) fn detach(&mut self) -> Option<ConnectionId> {
        self.is_admitted = false;
        self.asked.clear();
        self.next = None;
        self.held = 0;
        self.connection.take()
    }

    /// The process is gone with all that it had; the batch in use counts as not used.
    pub(super) fn die(&mut self) {
        self.life += 1;
        self.is_alive = false;
        self.ready.clear();
        self.step = None;
    }

    /// `None` if the window is full, or nothing may be asked for now.
    pub(super) fn next_request(
        &mut self,
        order: &Spec,
        window: usize,
    ) -> Option<(ConnectionId, BatchId)> {
        let unsettled = self.asked.len() + self.ready.len() + self.held;
        let connection = self.connection.filter(|_| self.is_admitted && unsettled < window)?;
        let batch = self.next?;
        self.next = order.after(batch);
        self.asked.push_back(batch);
        Some((connection, batch))
    }

    /// `None` for a refusal.
    pub(super) fn receive(
        &mut self,
        batch: BatchId,
        handed: Option<Handed>,
    ) -> Result<(), Violation> {
        if self.asked.pop_front() != Some(batch) {
            let connection = self.connection.unwrap_or(ConnectionId(0));
            return Err(Violation::Unasked(connection, batch));
        }
        self.ready.push_back((batch, handed));
        Ok(())
    }

    /// Starts a step, if it can, with a leased batch or with one that it reads itself.
    pub(super) fn begin(&mut self, order: &Spec) -> Option<&Step> {
        let position = self.position.filter(|_| self.is_alive && self.step.is_none())?;
        let handed = match self.ready.front() {
            Some((batch, _)) if *batch == position => self.ready.pop_front().and_then(|it| it.1),
            // It waits for what it asked for, or will ask for once it is let in.
            _ if self.connection.is_some() && !self.cannot_ask() => return None,
            _ => None,
        };
        if self.next == Some(position) {
            self.next = order.after(position);
        }
        self.step = Some(handed.map_or(Step::Alone, Step::Handed));
        self.step.as_ref()
    }

    /// Whether it keeps so many batches that it cannot ask for the next one.
    fn cannot_ask(&self) -> bool {
        self.is_admitted && self.asked.is_empty() && self.next == self.position && self.held > 0
    }

    /// Returns what the step was computed with.
    pub(super) fn end(&mut self, order: &Spec) -> Option<Step> {
        let step = self.step.take()?;
        let position = self.position?;
        self.used.push(position);
        self.position = order.after(position);
        Some(step)
    }
}
