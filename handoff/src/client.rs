//! The trainer's side: asks for batches, waits for them, gives them back.
//!
//! It runs inside the training process, so it starts no thread, keeps no global state and takes no
//! lock that another process shares. Only [`Client::next`] and the control calls wait, each with a
//! limit; [`Client::release`] never waits for them and may be called from any thread.
//!
//! When the agent dies, what it has handed over stays readable: batches that wait in the ring are
//! still delivered, leased memory stays mapped, and the [`Briefing`] says how to read the rest alone.
//!
//! A process that inherits a client by `fork` gets [`Forked`] from every call: the connection belongs
//! to the process that made it. Dropping the inherited copy closes its descriptors and nothing else.

mod deadline;
mod error;
mod flow;
mod link;
mod memory;
mod order_file;
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
    id::{BatchId, Epoch, LeaseId, SampleId},
    session::{Refusal, Tally, Wait},
    units::Bytes,
};
use tierfeed_numa_memory::{RangeError, View};

#[cfg(test)]
pub(crate) use self::order_file::fill_order;
use self::{deadline::Deadline, flow::Flow, link::Link};
pub use self::{
    error::{
        ConnectError, ControlError, Disconnected, Forked, NextError, ReleaseError, RequestError,
    },
    memory::{Grant, MemoryClient},
};
use super::{
    briefing::Briefing,
    channel::Channel,
    entry::{Completion, Parting, Ready},
    message::{FromAgent, Hello, Reading},
    ring::Consumer,
    shelves::Shelves,
    table::{self, Row},
    wake,
};

/// A connection that reads batches for one rank.
#[derive(Debug)]
pub struct Client {
    link: Link,
    briefing: Briefing,
    arena: Arc<View>,
    shelves: Shelves,
    rings: View,
    flow: Mutex<Flow>,
    /// Held by whoever waits, so that no other thread takes its wake-up.
    completions: Mutex<Consumer>,
    bell: OwnedFd,
    agent_bell: OwnedFd,
    /// Requests are in the ring that the agent was not woken for.
    is_unsaid: AtomicBool,
}

/// An answer to a request.
#[derive(Debug)]
pub enum Reply {
    /// The batch, until its lease is released.
    Batch(LeasedBatch),
    /// No batch.
    Refused {
        /// Which one was asked for.
        batch: BatchId,
        /// Why it does not come; [`Explained`](super::Explained) says it in a sentence.
        refusal: Refusal,
    },
}

/// A batch in shared memory. It may be read and written until its lease is released; samples that lie on
/// a shelf may only be read.
#[derive(Debug, Clone)]
pub struct LeasedBatch {
    /// Which batch.
    pub id: BatchId,
    /// Under which name it goes back.
    pub lease: LeaseId,
    /// The memory that it lies in; stays mapped while this lives, also when the agent is gone.
    pub arena: Arc<View>,
    /// Where it starts in the arena; a multiple of 4096.
    pub offset: Bytes,
    /// Its length with padding and table; it ends inside the arena.
    pub len: Bytes,
    /// Its samples in reading order; each lies inside the batch, or on one of the shelves.
    pub rows: Vec<Row>,
    /// The memory of tiers where samples of it may lie.
    pub shelves: Shelves,
}

impl LeasedBatch {
    /// Copies the beginning of a sample, wherever it lies, until `buffer` is full.
    ///
    /// # Errors
    ///
    /// If `row` is not one of [`Self::rows`] and leads outside.
    pub fn read(&self, row: &Row, buffer: &mut [u8]) -> Result<(), RangeError> {
        match row.shelf.map(|tier| self.shelves.get(tier)) {
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
    /// Connects to the agent that listens at `path` and waits until the staging memory of the rank is
    /// there.
    ///
    /// # Errors
    ///
    /// As [`ConnectError`] tells; [`ConnectError::NoAgent`] where nobody listens.
    pub fn connect(path: &Path, hello: &Hello, timeout: Duration) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(timeout);
        let link = Link::connect(path, &deadline)?;
        link.say_hello(hello)?;
        let (message, descriptors) = link.hear_welcome(&deadline)?;
        let FromAgent::Welcome { reading: Some(reading) } = message else {
            return Err(ConnectError::Protocol);
        };
        let Reading { briefing, window, ring_bytes, arena_bytes, shelves } = *reading;
        let channel = Channel::new(window).ok_or(ConnectError::Protocol)?;
        let mut descriptors = descriptors;
        let of_shelves = descriptors.split_off(descriptors.len().min(4));
        let descriptors = <[OwnedFd; 4]>::try_from(descriptors);
        let [rings, arena, bell, agent_bell] = descriptors.map_err(|_| ConnectError::Protocol)?;
        let shelves = Shelves::map(&shelves, of_shelves).ok_or(ConnectError::Protocol)??;
        if channel.len() > ring_bytes {
            return Err(ConnectError::Protocol);
        }
        Ok(Self {
            link,
            briefing,
            arena: Arc::new(View::map(arena, Bytes(arena_bytes))?),
            shelves,
            rings: View::map(rings, Bytes(ring_bytes))?,
            flow: Mutex::new(Flow::new(channel, window)),
            completions: Mutex::new(Consumer::new(channel.completions)),
            bell,
            agent_bell,
            is_unsaid: AtomicBool::new(false),
        })
    }

    /// How to go on alone.
    pub fn briefing(&self) -> &Briefing {
        &self.briefing
    }

    /// The staging memory of the rank.
    pub fn arena(&self) -> &Arc<View> {
        &self.arena
    }

    /// The memory of tiers where samples may lie.
    pub fn shelves(&self) -> &Shelves {
        &self.shelves
    }

    /// Asks for a batch. Answers come out of [`Self::next`], not always in the order of the requests.
    ///
    /// # Errors
    ///
    /// [`RequestError::TooMany`] if as many batches as the agent allows are asked for or held.
    pub fn request(&self, batch: BatchId) -> Result<(), RequestError> {
        self.request_each([batch]).map(drop)
    }

    /// Asks for batches and wakes the agent once, which costs more than all else that a request does.
    /// Returns how many of them it may have for now; the others were not asked for.
    ///
    /// # Errors
    ///
    /// As [`Self::request`]; [`RequestError::TooMany`] if not even one may be asked for.
    pub fn request_each(
        &self,
        batches: impl IntoIterator<Item = BatchId>,
    ) -> Result<usize, RequestError> {
        self.link.check_process()?;
        if let Some(disconnected) = self.link.farewell() {
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
            self.ring_agent();
        }
        Ok(sent)
    }

    /// Asks for a batch that is not needed yet, without waking the agent: it reads the request with the next
    /// release, or when this process waits. Returns whether the agent allows one more.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or in another process than the one that connected.
    pub fn request_later(&self, batch: BatchId) -> Result<bool, RequestError> {
        self.link.check_process()?;
        let outcome = self.flow().request(&*self.rings, batch);
        match outcome {
            Ok(()) => {
                self.is_unsaid.store(true, Ordering::Relaxed);
                Ok(true)
            }
            Err(flow::RequestError::TooMany { .. }) => Ok(false),
            Err(error) => Err(self.as_request_error(error)),
        }
    }

    /// Waits for the next answer, at most `timeout`.
    ///
    /// Callers take turns: a second thread waits for the first, also beyond its own limit.
    ///
    /// # Errors
    ///
    /// [`NextError::TimedOut`] after `timeout`; signals do not shorten it, so a caller that must look at
    /// them waits in short pieces. [`NextError::Disconnected`] when the agent is gone *and* everything
    /// it had handed over was delivered.
    pub fn next(&self, timeout: Duration) -> Result<Reply, NextError> {
        self.link.check_process()?;
        let deadline = Deadline::after(timeout);
        let mut completions = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reply) = self.take(&mut completions)? {
            return Ok(reply);
        }
        if self.is_unsaid.load(Ordering::Relaxed) {
            self.ring_agent();
        }
        loop {
            // Silenced before the look: what comes after the look rings again.
            wake::silence(&self.bell);
            if let Some(reply) = self.take(&mut completions)? {
                return Ok(reply);
            }
            if let Some(disconnected) = self.link.farewell() {
                return Err(disconnected.into());
            }
            match self.link.wait(self.bell.as_fd(), &deadline) {
                link::Wait::Rung => (),
                // Sets the farewell; then one more look, for what was pushed before the end.
                link::Wait::Ended => self.link.hear_farewell(),
                link::Wait::Over => return Err(NextError::TimedOut),
            }
        }
    }

    /// An answer that is there already; waits neither for the agent nor for another thread.
    ///
    /// # Errors
    ///
    /// As [`Self::next`], but never [`NextError::TimedOut`].
    pub fn try_next(&self) -> Result<Option<Reply>, NextError> {
        self.link.check_process()?;
        match self.completions.try_lock() {
            Ok(mut completions) => self.take(&mut completions),
            Err(TryLockError::Poisoned(completions)) => self.take(&mut completions.into_inner()),
            Err(TryLockError::WouldBlock) => Ok(None),
        }
    }

    /// Tells the agent that the trainer starts to use a batch, and from when until when it waited for it
    /// on the clock of the host ([`monotonic_now`](super::monotonic_now)).
    ///
    /// The agent reads it with the next request or release: it is for its report, not for its work.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] for a lease that is not held.
    pub fn deliver(&self, lease: LeaseId, wait: Wait) -> Result<(), ReleaseError> {
        self.link.check_process()?;
        let delivered = self.flow().deliver(&*self.rings, lease, wait);
        self.settle(lease, delivered)
    }

    /// Tells the agent what the trainer did itself, for the agent's report. Returns whether there was room
    /// for it; what was not told is to be added to what is told next.
    ///
    /// A trainer that reads batches itself may never ask for another one, so the agent is woken then.
    /// Else it reads this with the next request or release.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or in another process than the one that connected.
    pub fn tally(&self, tally: Tally) -> Result<bool, RequestError> {
        self.link.check_process()?;
        if let Some(disconnected) = self.link.farewell() {
            return Err(disconnected.into());
        }
        let told = self.flow().tally(&*self.rings, tally);
        let told =
            told.map_err(|error| self.as_request_error(flow::RequestError::Broken(error)))?;
        if tally.self_read_batches > 0 {
            self.ring_agent();
        }
        Ok(told)
    }

    /// Gives a batch back. Nothing may touch its bytes any more.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotHeld`] for a lease that is not held, most often a second release.
    pub fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.part_with(lease, Parting::Used)
    }

    /// As [`Self::release`], and tells whether the trainer goes on with a copy.
    ///
    /// # Errors
    ///
    /// As [`Self::release`].
    pub fn part_with(&self, lease: LeaseId, parting: Parting) -> Result<(), ReleaseError> {
        self.link.check_process()?;
        let released = self.flow().release(&*self.rings, lease, parting);
        if released.is_ok() {
            self.ring_agent();
        }
        self.settle(lease, released)
    }

    /// Hands over what this rank reads in an epoch, in reading order, and waits until the agent has
    /// it. Needed before the first request for an epoch whose order is `published`.
    ///
    /// # Errors
    ///
    /// As [`ControlError`] tells.
    pub fn publish(
        &self,
        epoch: Epoch,
        samples: &[SampleId],
        timeout: Duration,
    ) -> Result<(), ControlError> {
        publish::publish(&self.link, epoch, samples, timeout)
    }

    /// Asks for memory in chunks and waits for it.
    ///
    /// # Errors
    ///
    /// [`ControlError::Denied`] with the agent's reason if there is not enough.
    pub fn allocate(&self, bytes: Bytes, timeout: Duration) -> Result<Grant, ControlError> {
        memory::allocate(&self.link, bytes, timeout)
    }

    /// Unmaps memory and gives it back.
    ///
    /// # Errors
    ///
    /// If the agent is gone, or in another process than the one that allocated it. The memory is
    /// unmapped all the same.
    pub fn free(&self, grant: Grant) -> Result<(), ControlError> {
        memory::free(&self.link, grant)
    }

    fn ring_agent(&self) {
        // Before the bell: a request that another thread makes meanwhile is not taken for said.
        self.is_unsaid.store(false, Ordering::Relaxed);
        wake::ring_agent(&self.agent_bell);
    }

    /// What became of a word about a lease.
    fn settle(
        &self,
        lease: LeaseId,
        sent: Result<(), flow::ReleaseError>,
    ) -> Result<(), ReleaseError> {
        match sent {
            Ok(()) => Ok(()),
            Err(flow::ReleaseError::NotHeld) => Err(ReleaseError::NotHeld { lease }),
            // The agent that broke its ring does not want to hear of the batch.
            Err(flow::ReleaseError::Broken(error)) => {
                self.link.give_up(&error);
                Ok(())
            }
        }
    }

    /// The oldest answer in the ring.
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
                let rows = table::read(&self.arena, &self.shelves, &ready);
                let rows = rows.map_err(|error| self.broken(&error))?;
                let Ready { lease, batch: id, offset, len, .. } = ready;
                self.flow().leased(lease);
                let (arena, shelves) = (Arc::clone(&self.arena), self.shelves.clone());
                let batch = LeasedBatch { id, lease, arena, offset, len, rows, shelves };
                Ok(Some(Reply::Batch(batch)))
            }
        }
    }

    fn broken(&self, error: &dyn std::error::Error) -> NextError {
        self.link.give_up(error);
        NextError::Disconnected(Disconnected { reason: error.to_string() })
    }

    fn as_request_error(&self, error: flow::RequestError) -> RequestError {
        match error {
            flow::RequestError::TooMany { window } => RequestError::TooMany { window },
            flow::RequestError::Broken(error) => {
                self.link.give_up(&error);
                RequestError::Disconnected(Disconnected { reason: error.to_string() })
            }
        }
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection, for whoever waits for its end among other things, or hands it on with a process.
impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.socket.as_fd()
    }
}

#[cfg(test)]
impl Client {
    pub(super) fn link_socket(&self) -> BorrowedFd<'_> {
        self.link.socket.as_fd()
    }

    /// What a client finds after a fork, without the fork.
    pub(super) fn pretend_to_be_created_by(&mut self, process: u32) {
        self.link.creator = process;
    }
}
