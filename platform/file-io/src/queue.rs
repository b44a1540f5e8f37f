//! Keeps operations in flight with either engine.
//!
//! 1. Every operation that entered leaves once, with its buffer, in any order.
//! 2. No more operations are in flight than the queue is deep.
//! 3. When a queue is dropped, no operation of it accesses file or memory any more.

use std::{io, num::NonZeroU32};

use crate::{
    engine::Engine,
    operation::{Completion, Operation, Refusal, Refused},
    ring::{Issuer, Ring, completion},
    threads::Threads,
};

/// The greatest depth of a queue: so many threads are still acceptable, and no disk gains from
/// more.
pub const DEPTH_MAX: u32 = 1024;

/// Why a queue could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The depth is above the limit.
    #[error("a queue of depth {depth} was asked for; at most {DEPTH_MAX}")]
    TooDeep {
        /// Depth that the caller requested.
        depth: u32,
    },
    /// The kernel could not set up a ring.
    #[error("cannot set up a ring of depth {depth}: {source}")]
    Ring {
        /// Depth that the caller requested.
        depth: u32,
        /// The error of the kernel; see [`crate::io_uring_available`].
        #[source]
        source: io::Error,
    },
    /// The threads could not be started.
    #[error("cannot start {depth} threads: {source}")]
    Threads {
        /// Depth that the caller requested.
        depth: u32,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

/// A queue of operations in flight.
///
/// Dropping it cancels what can be cancelled and waits for the rest (invariant 3): on a network
/// file system without its server that may take forever.
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
    /// Creates a queue of `depth` on `engine`.
    ///
    /// # Errors
    ///
    /// If the depth is above [`DEPTH_MAX`], or the kernel provides no ring or thread.
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

    /// The engine that carries out the operations.
    #[must_use]
    pub fn engine(&self) -> Engine {
        match self.running {
            Running::Ring(_) => Engine::IoUring,
            Running::Threads(_) => Engine::Threads,
        }
    }

    /// Number of operations that entered and have not left.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether another operation may enter.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight < self.depth
    }

    /// Adds an operation. It starts at the latest with the next [`Self::start`] or [`Self::wait`],
    /// so that one call can hand several to the kernel.
    ///
    /// # Errors
    ///
    /// If the queue is full or the offset invalid; the operation is returned.
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

    /// Starts the pushed operations. Started one by one they reach the device sooner; together they
    /// cost fewer system calls. Those that the kernel does not accept now, it accepts in
    /// [`Self::wait`].
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
    /// If the kernel accepts nothing at the moment, for lack of memory for instance. Operations in
    /// flight stay so, and another call may succeed. Errors of operations are in their completions.
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
