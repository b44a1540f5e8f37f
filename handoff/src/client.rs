//! The trainer's side: requests batches, waits for them, releases them.
//!
//! It runs inside the training process, so it starts no thread, keeps no global state and takes no
//! lock that another process shares. Only [`Client::next`] and the control calls wait, each with a
//! timeout; [`Client::release`] never waits for them and may be called from any thread.
//!
//! When the agent dies, everything that it handed over stays readable: batches in the ring are
//! still delivered, leased memory stays mapped, and the [`Briefing`] says how to read the rest
//! without the agent.
//!
//! A process that inherits a client by `fork` gets [`Forked`] from every call: the connection
//! belongs to the process that made it. Dropping the inherited copy only closes its descriptors.

mod connection;
mod deadline;
mod error;
mod explain;
mod flow;
mod memory;
mod publish;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tierfeed_core::{
    id::{BatchId, LeaseId},
    session::{Refusal, Tally, Wait},
    units::Bytes,
};
use tierfeed_numa_memory::{RangeError, View};

#[cfg(test)]
pub(crate) use self::publish::fill_order;
use self::{connection::Connection, deadline::Deadline, flow::Flow};
pub use self::{
    error::{
        ConnectError, ControlError, Disconnected, Forked, NextError, ReleaseError, RequestError,
    },
    memory::{Grant, MemoryClient},
};
use super::{
    briefing::Briefing,
    channel::Channel,
    entry::{Completion, Ready, ReleaseKind},
    message::{FromAgent, Hello, Reading},
    ring::Consumer,
    shared_tiers::SharedTiers,
    table::{self, Row},
    wake,
};

/// A connection that reads batches for one rank.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    briefing: Briefing,
    arena: Arc<View>,
    shared_tiers: SharedTiers,
    rings: View,
    flow: Mutex<Flow>,
    /// Locked by the thread that waits, so that no other thread takes its wake-up.
    completions: Mutex<Consumer>,
    wakeup: OwnedFd,
    agent_wakeup: OwnedFd,
    /// Whether the ring holds entries for which the agent was not woken.
    has_unannounced: AtomicBool,
    /// Whether a thread waits for an answer.
    is_waited_for: AtomicBool,
}

#[derive(Debug)]
pub enum Reply {
    /// The batch, until its lease is released.
    Batch(LeasedBatch),
    Refused {
        batch: BatchId,
        /// [`Explained`](super::Explained) prints it as a sentence.
        refusal: Refusal,
    },
}

/// A batch in shared memory. It may be read and written until its lease is released; samples in a
/// shared tier may only be read.
#[derive(Debug, Clone)]
pub struct LeasedBatch {
    pub id: BatchId,
    pub lease: LeaseId,
    /// Stays mapped while this value lives, even if the agent ends.
    pub arena: Arc<View>,
    /// Start of the batch in the arena, in bytes; a multiple of 4096.
    pub offset: Bytes,
    /// Length in bytes, with padding and table; the batch ends inside the arena.
    pub len: Bytes,
    /// The samples in reading order; each lies inside the batch or in one of the shared tiers.
    pub rows: Vec<Row>,
    pub shared_tiers: SharedTiers,
}

impl LeasedBatch {
    /// Fills `buffer` with the beginning of a sample, from the batch or from a shared tier.
    ///
    /// # Errors
    ///
    /// If `row` is not one of [`Self::rows`] and leads outside of the memory.
    pub fn read(&self, row: &Row, buffer: &mut [u8]) -> Result<(), RangeError> {
        match row.shared_tier.map(|tier| self.shared_tiers.get(tier)) {
            None => self.arena.read(Bytes(self.offset.0.saturating_add(row.offset.0)), buffer),
            Some(Some(memory)) => memory.read(row.offset, buffer),
            Some(None) => {
                let (len, mapped) = (Bytes(buffer.len() as u64), Bytes(0));
                Err(RangeError::Outside { offset: row.offset, len, mapped })
            }
        }
    }
}

impl Client {
    /// Connects to the agent that listens at `path` and waits until it has sent the staging memory
    /// of the rank.
    pub fn connect(path: &Path, hello: &Hello, timeout: Duration) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let connection = Connection::connect(path, &deadline)?;
        connection.send_hello(hello)?;
        let (message, descriptors) = connection.receive(&deadline)?;
        let FromAgent::Welcome { reading: Some(reading) } = message else {
            return Err(ConnectError::Protocol);
        };
        let Reading { briefing, window, ring_bytes, arena_bytes, shared_tiers } = *reading;
        let channel = Channel::new(window).ok_or(ConnectError::Protocol)?;
        let mut descriptors = descriptors;
        let tier_descriptors = descriptors.split_off(descriptors.len().min(4));
        let descriptors = <[OwnedFd; 4]>::try_from(descriptors);
        let [rings, arena, wakeup, agent_wakeup] =
            descriptors.map_err(|_| ConnectError::Protocol)?;
        let shared_tiers =
            SharedTiers::map(&shared_tiers, tier_descriptors).ok_or(ConnectError::Protocol)??;
        if channel.len() > ring_bytes {
            return Err(ConnectError::Protocol);
        }
        Ok(Self {
            connection,
            briefing,
            arena: Arc::new(View::map(arena, Bytes(arena_bytes))?),
            shared_tiers,
            rings: View::map(rings, Bytes(ring_bytes))?,
            flow: Mutex::new(Flow::new(channel, window)),
            completions: Mutex::new(Consumer::new(channel.completions)),
            wakeup,
            agent_wakeup,
            has_unannounced: AtomicBool::new(false),
            is_waited_for: AtomicBool::new(false),
        })
    }

    pub fn briefing(&self) -> &Briefing {
        &self.briefing
    }

    /// The staging memory of the rank.
    pub fn arena(&self) -> &Arc<View> {
        &self.arena
    }

    pub fn shared_tiers(&self) -> &SharedTiers {
        &self.shared_tiers
    }

    /// Requests a batch. [`Self::next`] returns the answers, not always in the order of the
    /// requests.
    ///
    /// # Errors
    ///
    /// [`RequestError::TooMany`] if the client already has as many batches, requested or leased, as
    /// the agent allows.
    pub fn request(&self, batch: BatchId) -> Result<(), RequestError> {
        self.request_each([batch]).map(drop)
    }

    /// Requests batches and wakes the agent once, because the wake-up costs more than the rest of a
    /// request. Returns how many of them were requested; the agent's limit left no room for the
    /// others.
    ///
    /// # Errors
    ///
    /// As [`Self::request`]; [`RequestError::TooMany`] if there is room for none.
    pub fn request_each(
        &self,
        batches: impl IntoIterator<Item = BatchId>,
    ) -> Result<usize, RequestError> {
        self.connection.check_process()?;
        if let Some(disconnected) = self.connection.end_reason() {
            return Err(disconnected.into());
        }
        let mut sent = 0;
        for batch in batches {
            let outcome = self.flow().request(&*self.rings, batch);
            match outcome {
                Ok(()) => sent += 1,
                Err(flow::RequestError::TooMany { .. }) if sent > 0 => break,
                Err(error) => return Err(self.as_request_error(error)),
            }
        }
        if sent > 0 {
            self.wake_agent();
        }
        Ok(sent)
    }

    /// Requests a batch that is not needed yet, without waking the agent: the agent reads the
    /// request with the next release, or when this process waits. Returns whether the agent's limit
    /// left room for it.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or if this process is not the one that connected.
    pub fn request_later(&self, batch: BatchId) -> Result<bool, RequestError> {
        self.connection.check_process()?;
        let outcome = self.flow().request(&*self.rings, batch);
        match outcome {
            Ok(()) => {
                self.announce_later();
                Ok(true)
            }
            Err(flow::RequestError::TooMany { .. }) => Ok(false),
            Err(error) => Err(self.as_request_error(error)),
        }
    }

    /// Waits for the next answer, for at most `timeout`.
    ///
    /// Callers take turns: a second thread waits for the first, even beyond its own timeout.
    ///
    /// # Errors
    ///
    /// [`NextError::TimedOut`] after `timeout`; signals do not shorten it, so a caller that must
    /// handle them waits in short intervals. [`NextError::Disconnected`] when the agent is gone
    /// *and* everything that it handed over was delivered.
    pub fn next(&self, timeout: Duration) -> Result<Reply, NextError> {
        self.connection.check_process()?;
        let deadline = Deadline::after(timeout);
        let mut completions = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reply) = self.take(&mut completions)? {
            return Ok(reply);
        }
        self.is_waited_for.store(true, Ordering::SeqCst);
        if self.has_unannounced.load(Ordering::SeqCst) {
            self.wake_agent();
        }
        let reply = self.wait(&mut completions, &deadline);
        self.is_waited_for.store(false, Ordering::SeqCst);
        reply
    }

    fn wait(&self, completions: &mut Consumer, deadline: &Deadline) -> Result<Reply, NextError> {
        loop {
            // Drained before the ring is read: an entry that comes after the read wakes again.
            wake::drain_wakeups(&self.wakeup);
            if let Some(reply) = self.take(completions)? {
                return Ok(reply);
            }
            if let Some(disconnected) = self.connection.end_reason() {
                return Err(disconnected.into());
            }
            match self.connection.wait(self.wakeup.as_fd(), deadline) {
                connection::Wait::Readable => (),
                // Records the reason of the end; then one more read, for entries that were pushed
                // before it.
                connection::Wait::Ended => self.connection.note_end(),
                connection::Wait::TimedOut => return Err(NextError::TimedOut),
            }
        }
    }

    /// Returns an answer that is in the ring already; waits neither for the agent nor for another
    /// thread.
    ///
    /// # Errors
    ///
    /// As [`Self::next`], but never [`NextError::TimedOut`].
    pub fn try_next(&self) -> Result<Option<Reply>, NextError> {
        self.connection.check_process()?;
        match self.completions.try_lock() {
            Ok(mut completions) => self.take(&mut completions),
            Err(TryLockError::Poisoned(completions)) => self.take(&mut completions.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    /// Tells the agent that the trainer starts to use a batch, and when it waited for it, on the
    /// clock of the host ([`monotonic_now`](super::monotonic_now)).
    ///
    /// The agent reads this with the next request or release, or when this process waits: the agent
    /// may have no room for the next batch, and must know that this one does not come back before.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] for a lease that is not held.
    pub fn deliver(&self, lease: LeaseId, wait: Wait) -> Result<(), ReleaseError> {
        self.connection.check_process()?;
        let delivered = self.flow().deliver(&*self.rings, lease, wait);
        self.announce_later();
        self.lease_result(lease, delivered)
    }

    /// Tells the agent what the trainer did without it, for the agent's report. Returns whether the
    /// ring had room; if not, the caller adds these figures to the next ones.
    ///
    /// If the trainer read batches itself it may never request another one, so the agent is woken.
    /// Otherwise the agent reads this with the next request or release.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or if this process is not the one that connected.
    pub fn tally(&self, tally: Tally) -> Result<bool, RequestError> {
        self.connection.check_process()?;
        if let Some(disconnected) = self.connection.end_reason() {
            return Err(disconnected.into());
        }
        let told = self.flow().tally(&*self.rings, tally);
        let told =
            told.map_err(|error| self.as_request_error(flow::RequestError::Broken(error)))?;
        if tally.self_read_batches > 0 {
            self.wake_agent();
        }
        Ok(told)
    }

    /// Releases a batch. Its bytes must not be accessed afterwards.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] for a lease that is not held, usually because of a second release.
    pub fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.release_as(lease, ReleaseKind::Used)
    }

    /// As [`Self::release`], and tells the agent whether the trainer keeps a copy.
    pub fn release_as(
        &self,
        lease: LeaseId,
        release_kind: ReleaseKind,
    ) -> Result<(), ReleaseError> {
        self.connection.check_process()?;
        let released = self.flow().release(&*self.rings, lease, release_kind);
        if released.is_ok() {
            self.wake_agent();
        }
        self.lease_result(lease, released)
    }

    /// Requests memory in chunks and waits for it.
    ///
    /// # Errors
    ///
    /// [`ControlError::Denied`] with the agent's reason if there is not enough.
    pub fn allocate(&self, bytes: Bytes, timeout: Duration) -> Result<Grant, ControlError> {
        memory::allocate(&self.connection, bytes, timeout)
    }

    /// Unmaps memory and gives it back.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or if this process is not the one that allocated the memory. The
    /// memory is unmapped in both cases.
    pub fn free(&self, grant: Grant) -> Result<(), ControlError> {
        memory::free(&self.connection, grant)
    }

    /// Leaves an entry in the ring until the agent is woken for another, or a thread waits.
    fn announce_later(&self) {
        self.has_unannounced.store(true, Ordering::SeqCst);
        if self.is_waited_for.load(Ordering::SeqCst) {
            self.wake_agent();
        }
    }

    fn wake_agent(&self) {
        // Before the wake-up: an entry that another thread makes meanwhile counts as unannounced.
        self.has_unannounced.store(false, Ordering::SeqCst);
        wake::wake_agent(&self.agent_wakeup);
    }

    fn lease_result(
        &self,
        lease: LeaseId,
        sent: Result<(), flow::ReleaseError>,
    ) -> Result<(), ReleaseError> {
        match sent {
            Ok(()) => Ok(()),
            Err(flow::ReleaseError::NotHeld) => Err(ReleaseError::NotHeld { lease }),
            // The agent broke its ring, so it is not told about the batch.
            Err(flow::ReleaseError::Broken(error)) => {
                self.connection.give_up(&error);
                Ok(())
            }
        }
    }

    fn take(&self, completions: &mut Consumer) -> Result<Option<Reply>, NextError> {
        let popped = completions.pop(&*self.rings).map_err(|error| self.broken(&error))?;
        let Some(entry) = popped else { return Ok(None) };
        match Completion::decode(entry).map_err(|error| self.broken(&error))? {
            Completion::Refused { batch, refusal } => {
                self.flow().refused();
                Ok(Some(Reply::Refused { batch, refusal }))
            }
            Completion::Lease(ready) => {
                self.arena.allow(ready.offset, ready.len);
                let rows = table::read(&self.arena, &self.shared_tiers, &ready);
                let rows = rows.map_err(|error| self.broken(&error))?;
                let Ready { lease, batch: id, offset, len, .. } = ready;
                self.flow().leased(lease);
                let (arena, shared_tiers) = (Arc::clone(&self.arena), self.shared_tiers.clone());
                let batch = LeasedBatch { id, lease, arena, offset, len, rows, shared_tiers };
                Ok(Some(Reply::Batch(batch)))
            }
        }
    }

    fn broken(&self, error: &dyn std::error::Error) -> NextError {
        self.connection.give_up(error);
        NextError::Disconnected(Disconnected { reason: error.to_string() })
    }

    fn as_request_error(&self, error: flow::RequestError) -> RequestError {
        match error {
            flow::RequestError::TooMany { window } => RequestError::TooMany { window },
            flow::RequestError::Broken(error) => {
                self.connection.give_up(&error);
                RequestError::Disconnected(Disconnected { reason: error.to_string() })
            }
        }
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket of the connection, for a caller that polls it for its end or passes it to another
/// process.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }
}

#[cfg(test)]
impl Client {
    pub(super) fn connection_socket(&self) -> BorrowedFd<'_> {
        self.connection.socket.as_fd()
    }

    /// Makes the client behave as in a forked process, without a fork.
    pub(super) fn pretend_to_be_created_by(&mut self, process: u32) {
        self.connection.creator = process;
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.is_waited_for.load(Ordering::SeqCst)
    }
}
