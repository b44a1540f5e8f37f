//! Carries out what the session decided: takes memory, reads, copies, and answers every operation.
//!
//! It decides nothing. A command goes to the threads of its kind (copies of one tier, new memory) or, if
//! it reads the cold store, to a [`Fetcher`]. Each is answered exactly once: with its outcome, or with
//! [`tierfeed_core::session::Fault::Io`] if its thread panicked, its queue was full or the plane stopped.
//!
//! Invariants:
//!
//! 1. [`DataPlane::execute`] never blocks on an operation.
//! 2. Every operation is answered exactly once.
//! 3. A sample that is reported as staged is the sample that the cold store delivered.
//! 4. Memory that an operation uses lives until the operation ends.
//! 5. After [`DataPlane::shutdown`] no thread of the plane runs and none of its files is left.

mod answer;
mod counters;
mod failure;
mod moves;
mod population;
mod promotion;
mod settings;
mod space;
mod state;
mod summary;
mod transform;
mod view;

use std::{
    num::NonZeroUsize,
    sync::{Arc, OnceLock},
};

use tierfeed_core::{
    id::{NumaNode, OpId, Rank, SampleId, TierId},
    session::{Event, Memory, Operation, Origin},
};
use tierfeed_numa_memory::{
    Region, bus_errors,
    lanes::{Job, Lanes, Refused},
};

use crate::{
    fetcher::Fetcher,
    tier::Store,
    transforms::{Counts as TransformCounts, Transforms},
};

use answer::Answer;
use population::PopulationThread;
use state::PlaneState;
use summary::Summary;
use transform::TransformRequest;

pub use counters::{
    Counters, DURATION_BOUNDS, Durations, Moves, TierTraffic, TierUsage, Traffic, Usage, WriteModes,
};
pub use failure::{Cause, CopyError, FAILURES_KEPT, Failure, REASONS_KEPT};
pub use settings::{Settings, StartError, Verify};

/// The callback for completions must not drop it: a thread cannot join itself.
#[derive(Debug)]
pub struct DataPlane {
    state: Arc<PlaneState>,
    fetcher: Box<dyn Fetcher>,
    transforms: OnceLock<Transforms>,
    /// By tier.
    copies: Arc<Vec<Lanes>>,
    /// One thread, so that memory given back is free before more is taken.
    space: Lanes,
    /// Only its drop is used.
    _population: PopulationThread,
}

impl DataPlane {
    /// Opens the directories of the tiers and starts all threads. Takes no memory yet.
    ///
    /// `ended` is called from many threads, once for every operation that ended, with the event for the
    /// session; for an operation that no queue accepts, from within [`Self::execute`]. It must neither block nor panic.
    ///
    /// # Errors
    ///
    /// [`StartError`] if a setting makes no sense, a directory cannot hold chunks, or a thread cannot be
    /// started or pinned.
    pub fn start(
        settings: &Settings,
        fetcher: Box<dyn Fetcher>,
        ended: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, StartError> {
        settings.check()?;
        // Without the handler a poisoned page kills the agent with SIGBUS; no other remedy exists.
        let _ = bus_errors::catch();
        let queued_max = settings.operations_max;
        let lanes = |name: &str, threads, cpus: Option<Vec<usize>>| {
            Lanes::start(name, threads, cpus, queued_max)
                .map_err(|source| StartError::Threads { threads, source })
        };
        let state = PlaneState::open(settings, Box::new(ended))?;
        let copies = settings.tiers.iter().map(|tier| {
            let cpus = (!tier.cpus.is_empty()).then(|| tier.cpus.clone());
            lanes(tier.kind.name(), tier.copy_threads, cpus)
        });
        let state = Arc::new(state);
        let copies = Arc::new(copies.collect::<Result<_, _>>()?);
        let space = lanes("space", NonZeroUsize::MIN, None)?;
        let of_thread = Arc::clone(&state);
        let populate = move || {
            of_thread.population.run(|failure| {
                // The fault is for operations; here the failure is only counted and kept.
                let _fault = of_thread.note(failure);
            });
        };
        let population = PopulationThread::start(populate);
        let threads = NonZeroUsize::MIN;
        let population = population.map_err(|source| StartError::Threads { threads, source })?;
        let transforms = OnceLock::new();
        Ok(Self { state, fetcher, transforms, copies, space, _population: population })
    }

    pub fn execute(&self, op: OpId, operation: Operation) {
        let summary = Summary::of(&operation);
        match operation {
            Operation::OpenArena { rank, len } => {
                self.run(&self.space, op, summary, move |it, answer| {
                    it.open_arena(answer, rank, len);
                });
            }
            Operation::TrimArena { rank, offset, len } => {
                self.run(&self.space, op, summary, move |it, answer| {
                    it.trim_arena(answer, rank, offset, len);
                });
            }
            Operation::RestoreArena { rank, offset, len } => {
                self.run(&self.space, op, summary, move |it, answer| {
                    it.restore_arena(answer, rank, offset, len);
                });
            }
            Operation::AddChunk { tier, chunk } => {
                self.run(&self.space, op, summary, move |it, answer| {
                    it.add_chunk(answer, tier, chunk);
                });
            }
            Operation::Fetch { sample, to, retention } => {
                let answer = Answer::new(op, summary, Arc::clone(&self.state));
                self.state.fetch(answer, sample, to, retention, &*self.fetcher);
            }
            // Samples of other nodes come by `Self::receive`; who has no such node reads cold.
            Operation::Receive { .. } => drop(Answer::new(op, summary, Arc::clone(&self.state))),
            Operation::Transform { sample, epoch, from, form, prepared, to } => {
                let answer = Answer::new(op, summary, Arc::clone(&self.state));
                let Some(transforms) = self.transforms.get() else { return drop(answer) };
                let request = TransformRequest { sample, epoch, from, form, prepared, to };
                self.state.transform(answer, &request, transforms);
            }
            Operation::Prefetch { sample, len, to } => {
                let answer = Answer::new(op, summary, Arc::clone(&self.state));
                let copies = Arc::clone(&self.copies);
                self.state.prefetch(answer, sample, len, &to, &*self.fetcher, copies);
            }
            Operation::Advance { sample, from, len, to } => {
                let lanes = self.lanes_of(from.tier);
                self.run(lanes, op, summary, move |it, answer| {
                    it.copy(answer, sample, &from, len, &to);
                });
            }
            Operation::Promote { parts } => {
                let tier = parts.first().map_or(TierId(0), |part| part.from.tier);
                self.run(self.lanes_of(tier), op, summary, move |it, answer| {
                    it.promote(answer, &parts);
                });
            }
            Operation::Demote { sample, from, len, to } => {
                let lanes = self.lanes_of(to.tier);
                self.run(lanes, op, summary, move |it, answer| match &from {
                    Origin::Staging(slot) => it.retain(answer, sample, *slot, len, &to),
                    Origin::Tier(from) => it.copy(answer, sample, from, len, &to),
                });
            }
        }
    }

    /// No operation may be in flight in it.
    pub fn free(&self, memory: Memory) {
        match memory {
            Memory::Arena(rank) => {
                if let (Some(transforms), Some(arena)) = (self.transforms.get(), self.arena(rank)) {
                    transforms.forget(&arena);
                }
                self.drop_elsewhere(self.state.take_arena(rank));
            }
            Memory::Chunk(tier, chunk) => {
                self.drop_elsewhere(self.state.take_chunk(tier, chunk));
            }
        }
    }

    /// The staging memory of a rank.
    #[must_use]
    pub fn arena(&self, rank: Rank) -> Option<Arc<Region>> {
        self.state.arena(rank)
    }

    /// Stages the batches of a rank near `node` from now on. Its arena moves there on a thread that no batch
    /// waits for; pages that its trainer has touched stay.
    pub fn stage_near(&self, rank: Rank, node: NumaNode) {
        self.state.stage_near(rank, node);
        let state = Arc::clone(&self.state);
        let moving: Job = Box::new(move || state.move_arena(rank));
        // A refused job leaves the arena where it is, which its placement shows.
        drop(self.space.submit(moving));
    }

    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.fetcher.backend()
    }

    /// Only the first pool that is given is used.
    pub fn transform_with(&self, transforms: Transforms) {
        self.transforms.get_or_init(|| transforms);
    }

    /// `None` without a transform.
    #[must_use]
    pub fn transform_counts(&self) -> Option<TransformCounts> {
        self.transforms.get().map(Transforms::counts)
    }

    /// Why a sample could not be handed over, if it is one of the last [`REASONS_KEPT`] that failed, or the
    /// error of the store that it waits for.
    #[must_use]
    pub fn reason(&self, sample: SampleId) -> Option<String> {
        self.fetcher.waits_for(sample).or_else(|| self.state.reason(sample))
    }

    /// Ends emulated waits, answers queued operations with a fault, and joins all threads.
    ///
    /// Waits for operations that run: at most one read or copy of a sample per thread.
    pub fn shutdown(self) {
        drop(self);
    }

    /// The operation itself reports a tier that does not exist, so any thread may run it.
    fn lanes_of(&self, tier: TierId) -> &Lanes {
        self.copies.get(usize::from(tier.0)).unwrap_or(&self.space)
    }

    fn run(
        &self,
        lanes: &Lanes,
        op: OpId,
        summary: Option<Summary>,
        carry_out: impl FnOnce(&PlaneState, Answer) + Send + 'static,
    ) {
        let mut answer = Answer::new(op, summary, Arc::clone(&self.state));
        let job: Job = Box::new(move || {
            let state = answer.state();
            answer.begin();
            if !state.is_stopping() {
                carry_out(&state, answer);
            }
        });
        // A refused job is dropped with its answer, and dropping the answer answers the operation.
        drop(lanes.submit(job));
    }

    /// Unmapping takes milliseconds, so the memory thread does it unless its queue is full.
    fn drop_elsewhere(&self, memory: Option<Arc<Store>>) {
        let Some(memory) = memory else { return };
        let state = Arc::clone(&self.state);
        let drop_memory: Job = Box::new(move || {
            state.population.release(&memory);
            drop(memory);
        });
        if let Err(Refused::Full(job) | Refused::Closed(job)) = self.space.submit(drop_memory) {
            job();
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.state.stop();
        self.fetcher.stop();
        // Its tasks hold answers, which use the state.
        drop(self.transforms.take());
        // The fields are dropped next: the fetcher and then the lanes, which its answers use, run what is
        // queued and join their threads.
    }
}
