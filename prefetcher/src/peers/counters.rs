//! The counters of clients and servers since their start.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::peers::{Failure, Outcome};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientCounters {
    pub held: u64,
    pub absent: u64,
    /// Reads that failed, in the order of [`Failure::ALL`].
    pub failures: [u64; Failure::ALL.len()],
    pub requests: u64,
    /// Bytes of samples that were received, those of failed reads too.
    pub received_bytes: u64,
    pub connected: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Connections whose other end proved itself.
    pub accepted: u64,
    /// Other connections: without a proof in time, or without room for them.
    pub refused: u64,
    pub requests: u64,
    /// Requests that were answered and whose bytes have left.
    pub answered: u64,
    /// Bytes of samples that were sent.
    pub sent_bytes: u64,
    /// Connections that ended with an error after their other end proved itself.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ClientTotals {
    held: AtomicU64,
    absent: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
    pub(crate) requests: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    pub(crate) connected: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct ServerTotals {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) lost: AtomicU64,
}

pub(crate) fn add(total: &AtomicU64, count: u64) {
    total.fetch_add(count, Ordering::Relaxed);
}

fn read(total: &AtomicU64) -> u64 {
    total.load(Ordering::Relaxed)
}

impl ClientTotals {
    pub(crate) fn count(&self, outcome: Outcome) {
        match outcome {
            Outcome::Held { .. } => add(&self.held, 1),
            Outcome::Absent => add(&self.absent, 1),
            Outcome::Failed(failure) => {
                let at = Failure::ALL.iter().position(|it| *it == failure);
                if let Some(total) = at.and_then(|at| self.failures.get(at)) {
                    add(total, 1);
                }
            }
        }
    }

    pub(crate) fn read(&self) -> ClientCounters {
        ClientCounters {
            held: read(&self.held),
            absent: read(&self.absent),
            failures: std::array::from_fn(|at| read(&self.failures[at])),
            requests: read(&self.requests),
            received_bytes: read(&self.received_bytes),
            connected: read(&self.connected),
        }
    }
}

impl ServerTotals {
    pub(crate) fn read(&self) -> ServerCounters {
        ServerCounters {
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            requests: read(&self.requests),
            answered: read(&self.answered),
            sent_bytes: read(&self.sent_bytes),
            lost: read(&self.lost),
        }
    }
}
