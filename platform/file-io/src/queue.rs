//! Keeps operations in flight with either engine.
//!
//! 1. Every operation that entered leaves once, with its buffer, in any order.
//! 2. No more operations are in flight than the queue is deep.
//! 3. When a queue is dropped, no operation of it accesses file or memory any more.

use std::{io, num::NonZeroU32};

use crate::{
    engine::Engine,
    operation::Operation,
    ring::{Issuer, Ring},
    threads::Threads,
};

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
    /// If the kernel provides no ring ([`crate::io_uring_available`]), or not so many threads.
    pub fn new(engine: Engine, depth: NonZeroU32) -> io::Result<Self> {
        let depth = depth.get();
        let running = match engine {
            Engine::IoUring => Ring::new(depth, Issuer::Any).map(|it| Running::Ring(Box::new(it))),
            Engine::Threads => Threads::start(depth).map(Running::Threads),
        };
        let failed = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("cannot keep {depth} operations in flight: {error}"),
            )
        };
        Ok(Self { running: running.map_err(failed)?, depth, in_flight: 0 })
    }

    /// Whether another operation may enter.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight < self.depth
    }

    /// Starts an operation at once, as fio does: in a batch, the first would wait for the last to be set
    /// up. What the kernel does not accept now, it accepts in [`Self::wait`].
    ///
    /// # Panics
    ///
    /// If the queue is full, or the offset beyond its bound: the kernel takes such a one for its own
    /// position in the file.
    pub fn push(&mut self, operation: Operation) {
        assert!(self.has_room(), "{} operations are in flight, as many as may be", self.in_flight);
        assert!(i64::try_from(operation.offset).is_ok(), "offset {}", operation.offset);
        match &mut self.running {
            Running::Ring(ring) => {
                ring.push(operation);
                ring.start();
            }
            Running::Threads(threads) => threads.push(operation),
        }
        self.in_flight += 1;
    }

    /// Waits for the next operation to end and returns it with the number of bytes that it moved: fewer
    /// than its buffer has at the end of a file or of the space on it, and whenever the kernel moves
    /// only a part. `None` if nothing is in flight.
    ///
    /// # Errors
    ///
    /// If the kernel accepts nothing at the moment, for lack of memory for instance. Operations in
    /// flight stay so, and another call may succeed.
    pub fn wait(&mut self) -> io::Result<Option<(Operation, io::Result<usize>)>> {
        if self.in_flight == 0 {
            return Ok(None);
        }
        let ended = match &mut self.running {
            Running::Ring(ring) => ring.wait()?,
            Running::Threads(threads) => threads.wait(),
        };
        self.in_flight -= 1;
        Ok(Some(ended))
    }
}
