//! Keeps operations in flight by either engine.
//!
//! 1. Every operation that entered comes out once, with its buffer, in any order.
//! 2. No more operations are in flight than the queue is deep.
//! 3. When a queue is dropped, no operation of it touches file or memory any more.

use std::{io, num::NonZeroU32};

use crate::{
    engine::Engine,
    operation::{Completion, Operation, Refusal, Refused},
    ring::{Issuer, Ring, completion},
    threads::Threads,
};

/// The greatest depth of a queue: as many threads are still bearable, and no disk gains from more.
pub const DEPTH_MAX: u32 = 1024;

/// Why there is no queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// More depth than is good for anything.
    #[error("a queue of depth {depth} was asked for; at most {DEPTH_MAX}")]
    TooDeep {
        /// As given.
        depth: u32,
    },
    /// The kernel gives no ring.
    #[error("cannot set up a ring of depth {depth}: {source}")]
    Ring {
        /// As given.
        depth: u32,
        /// What the kernel said; see [`crate::io_uring_available`].
        #[source]
        source: io::Error,
    },
    /// The kernel gives no thread.
    #[error("cannot start {depth} threads: {source}")]
    Threads {
        /// As given.
        depth: u32,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// Operations in flight.
///
/// Dropping it cancels what can be cancelled and waits for the rest (invariant 3): on a network file
/// system whose server is gone that may take for ever.
#[derive(Debug)]
pub struct Queue {
    running: Running,
    depth: u32,
    in_flight: u32,
}

#[derive(Debug)]
enum Running {
    Ring(Box<Ring<Operation>>),
    Threads(Threads),
}

impl Queue {
    /// A queue of `depth` on `engine`.
    ///
    /// # Errors
    ///
    /// The depth is above [`DEPTH_MAX`], or the kernel gives no ring or thread.
    pub fn new(engine: Engine, depth: NonZeroU32) -> Result<Self, QueueError> {
        let depth = depth.get();
        if depth > DEPTH_MAX {
            return Err(QueueError::TooDeep { depth });
        }
        let running = match engine {
            Engine::IoUring => Running::Ring(
                Ring::new(depth, Issuer::Any)
                    .map(Box::new)
                    .map_err(|source| QueueError::Ring { depth, source })?,
            ),
            Engine::Threads => Running::Threads(
                Threads::start(depth).map_err(|source| QueueError::Threads { depth, source })?,
            ),
        };
        Ok(Self { running, depth, in_flight: 0 })
    }

    /// How it works.
    #[must_use]
    pub fn engine(&self) -> Engine {
        match self.running {
            Running::Ring(_) => Engine::IoUring,
            Running::Threads(_) => Engine::Threads,
        }
    }

    /// Operations that entered and have not come out.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether another operation may enter.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight < self.depth
    }

    /// Takes an operation. It starts at the latest with the next [`Self::start`] or [`Self::wait`], so that
    /// several can be handed to the kernel by one call.
    ///
    /// # Errors
    ///
    /// The queue is full or the offset impossible; the operation comes back.
    pub fn push(&mut self, operation: Operation) -> Result<(), Box<Refused>> {
        let refuse = |operation, reason| Err(Box::new(Refused { operation, reason }));
        if !self.has_room() {
            return refuse(operation, Refusal::Full { depth: self.depth });
        }
        let offset = operation.offset;
        if offset > Operation::OFFSET_MAX {
            return refuse(operation, Refusal::Offset { offset });
        }
        match &mut self.running {
            Running::Ring(ring) => ring.push(operation),
            Running::Threads(threads) => threads.push(operation),
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Starts what was pushed. Operations that are started one by one reach the device sooner; together
    /// they cost fewer system calls. What the kernel does not take now, it takes in [`Self::wait`].
    pub fn start(&mut self) {
        match &mut self.running {
            Running::Ring(ring) => ring.start(),
            // They started when they were pushed, or there is only one.
            Running::Threads(_) => (),
        }
    }

    /// Waits for the next completion; `None` if nothing is in flight.
    ///
    /// # Errors
    ///
    /// The kernel takes nothing at the moment, for lack of memory for instance. What is in flight stays
    /// there, and another call may fare better. Errors of operations are in their completions.
    pub fn wait(&mut self) -> io::Result<Option<Completion>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let completion = match &mut self.running {
            Running::Ring(ring) => completion(ring.wait()?),
            Running::Threads(threads) => threads.wait(),
        };
        self.in_flight -= 1;
        Ok(Some(completion))
    }
}
