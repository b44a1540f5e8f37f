//! Carries out what the session decided: takes memory, reads, copies, and answers every operation.
//!
//! It decides nothing. An operation goes to the threads of its kind (copies of one tier, new memory) or, if
//! it reads the cold store, to a [`Fetcher`], and is answered exactly once: with its outcome, or with
//! [`Fault::Io`] if its thread panicked, its queue was full or the plane stopped.
//!
//! Invariants:
//!
//! 1. [`DataPlane::execute`] never blocks on an operation.
//! 2. Every operation is answered exactly once.
//! 3. A sample that is reported as staged is the sample that the cold store delivered.
//! 4. Memory that an operation uses lives until the operation ends.
//! 5. After [`DataPlane::shutdown`] no thread of the plane runs and nothing of it is in a file system.

mod answer;
mod counters;
mod failure;
mod moves;
mod operations;
mod settings;
mod space;
mod work;

use std::{num::NonZeroUsize, sync::Arc};

use tierfeed_core::{
    id::{OpId, Rank, TierId},
    session::{Fault, Memory, Operation},
};
use tierfeed_numa_memory::{
    Region, bus_errors,
    lanes::{Job, Lanes, Refused},
};

use crate::{fetcher::Fetcher, recorder::Recorder};
use tierfeed_handoff::Shelved;

use answer::Answer;
use operations::Operations;
use work::Work;

pub use counters::{
    Counters, DURATION_BOUNDS, Moves, TierTraffic, TierUsage, Traffic, Usage, Ways,
};
pub use failure::{Cause, CopyError, FAILURES_KEPT, Failure};
pub use settings::{Settings, StartError, Verify};

/// The threads that move the bytes of one node.
///
/// Not to be dropped from within the callback for completions: a thread cannot wait for itself.
#[derive(Debug)]
pub struct DataPlane {
    operations: Arc<Operations>,
    fetcher: Box<dyn Fetcher>,
    copies: Vec<Lanes>,
    /// One thread, so that memory given back is free before more is taken.
    space: Lanes,
}

impl DataPlane {
    /// Opens the directories of the tiers and starts all threads. Takes no memory yet.
    ///
    /// `completed` is called for every operation that ended, from many threads, and for one that no
    /// queue takes from within [`Self::execute`]. It must neither block nor panic.
    ///
    /// # Errors
    ///
    /// [`StartError`] if a setting makes no sense, a directory cannot hold chunks, or a thread cannot be
    /// started or pinned.
    pub fn start(
        settings: &Settings,
        fetcher: Box<dyn Fetcher>,
        completed: impl Fn(OpId, Result<(), Fault>) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        settings.check()?;
        // Without it a broken page ends the agent, as it did; there is nothing else to do about it.
        let _ = bus_errors::catch();
        let places = settings.operations_max;
        let lanes = |name: &str, threads, cpus: Option<Vec<usize>>| {
            Lanes::start(name, threads, cpus, places)
                .map_err(|source| StartError::Threads { threads, source })
        };
        let operations = Operations::open(settings, Box::new(completed))?;
        let copies = settings.tiers.iter().map(|tier| {
            let cpus = (!tier.cpus.is_empty()).then(|| tier.cpus.clone());
            lanes(tier.kind.name(), tier.copy_threads, cpus)
        });
        Ok(Self {
            operations: Arc::new(operations),
            copies: copies.collect::<Result<_, _>>()?,
            fetcher,
            space: lanes("space", NonZeroUsize::MIN, None)?,
        })
    }

    /// Starts an operation, which is answered when it ends.
    pub fn execute(&self, op: OpId, operation: Operation) {
        let work = Work::of(&operation);
        match operation {
            Operation::OpenArena { rank, len } => {
                self.run(&self.space, op, work, move |it, answer| it.open_arena(answer, rank, len));
            }
            Operation::TrimArena { rank, offset, len } => {
                self.run(&self.space, op, work, move |it, answer| {
                    it.trim_arena(answer, rank, offset, len);
                });
            }
            Operation::RestoreArena { rank, offset, len } => {
                self.run(&self.space, op, work, move |it, answer| {
                    it.restore_arena(answer, rank, offset, len);
                });
            }
            Operation::AddChunk { tier, chunk } => {
                self.run(&self.space, op, work, move |it, answer| {
                    it.add_chunk(answer, tier, chunk);
                });
            }
            Operation::Fetch { sample, to, retention } => {
                let answer = Answer::new(op, work, Arc::clone(&self.operations));
                self.operations.fetch(answer, sample, to, retention, &*self.fetcher);
            }
            Operation::Promote { sample, from, to } => {
                let lanes = self.lanes_of(from.tier);
                self.run(lanes, op, work, move |it, answer| it.promote(answer, sample, &from, to));
            }
            Operation::Demote { sample, from, len, to } => {
                let lanes = self.lanes_of(to.tier);
                self.run(lanes, op, work, move |it, answer| {
                    it.demote(answer, sample, &from, len, &to);
                });
            }
        }
    }

    /// Gives memory back in which no operation is in flight.
    pub fn free(&self, memory: Memory) {
        match memory {
            Memory::Arena(rank) => self.drop_elsewhere(self.operations.take_arena(rank)),
            Memory::Chunk(tier, chunk) => {
                self.drop_elsewhere(self.operations.take_chunk(tier, chunk));
            }
        }
    }

    /// The staging memory of a rank, to be handed to its trainer.
    #[must_use]
    pub fn arena(&self, rank: Rank) -> Option<Arc<Region>> {
        self.operations.arena(rank)
    }

    /// The memory of the tiers that trainers may read, as far as there are addresses for it.
    #[must_use]
    pub fn shelves(&self) -> Vec<Shelved> {
        self.operations.shelves()
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.operations.usage()
    }

    /// How memory is stored to, and in which pages. The kernel walks all pages of the process for it, which
    /// takes milliseconds and more.
    #[must_use]
    pub fn ways(&self) -> Ways {
        self.operations.ways()
    }

    /// What was done since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.operations.counters()
    }

    /// What reads the cold store, in a word.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.fetcher.backend()
    }

    /// Lets a recorder note every operation from now on; the first recorder stays.
    pub fn record_with(&self, recorder: Arc<Recorder>) {
        self.operations.record_with(recorder);
    }

    /// The last operations that failed, oldest first, at most [`FAILURES_KEPT`].
    #[must_use]
    pub fn faults(&self) -> Vec<Arc<Failure>> {
        self.operations.failures()
    }

    /// Ends emulated waits, answers what is queued with a fault, and joins all threads.
    ///
    /// Waits for operations that run: at most one read or copy of a sample per thread.
    pub fn shutdown(self) {
        drop(self);
    }

    /// A tier that does not exist is found by the operation, so any thread will do.
    fn lanes_of(&self, tier: TierId) -> &Lanes {
        self.copies.get(usize::from(tier.0)).unwrap_or(&self.space)
    }

    fn run(
        &self,
        lanes: &Lanes,
        op: OpId,
        work: Option<Work>,
        operation: impl FnOnce(&Operations, Answer) + Send + 'static,
    ) {
        let mut answer = Answer::new(op, work, Arc::clone(&self.operations));
        let job: Job = Box::new(move || {
            let operations = answer.operations();
            answer.begin();
            if !operations.is_stopping() {
                operation(&operations, answer);
            }
        });
        // A refused job is dropped, and with it its answer, which is how it is answered.
        drop(lanes.submit(job));
    }

    /// Unmapping takes milliseconds, so the thread for memory does it if it has a place for it.
    fn drop_elsewhere<T: Send + 'static>(&self, memory: Option<T>) {
        let Some(memory) = memory else { return };
        if let Err(Refused::Full(job) | Refused::Closed(job)) =
            self.space.submit(Box::new(move || drop(memory)))
        {
            drop(job);
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.operations.stop();
        self.fetcher.stop();
        // Dropping the fetcher and the lanes, after this, runs what is queued and joins the threads.
    }
}
