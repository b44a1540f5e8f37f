//! Allocates the memory of new chunks in the background, slice by slice, on a thread that no batch waits for.
//!
//! The first slice of a chunk is there when the chunk is added; a write to a later one allocates it if this
//! thread has not done so. Chunks take turns, because each is written from its start.
//!
//! A slice that cannot be allocated ends the work for its chunk: the failure is kept for the user, and a
//! write that needs a missing slice tries again.
//!
//! Invariants:
//!
//! 1. After [`Population::release`] the thread does not hold the chunk, so the caller frees its memory.
//! 2. Both [`Population::release`] and the end of the thread wait for at most one slice.

use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{Builder, JoinHandle},
};

use parking_lot::{Condvar, Mutex};
use tierfeed_core::{
    id::{ChunkId, OpId},
    tier::Kind,
    units::Bytes,
};

use crate::{
    plane::failure::{Cause, Failure},
    tier::{SpaceError, Store},
};

#[derive(Debug)]
pub(crate) struct NewChunk {
    pub(crate) op: OpId,
    pub(crate) kind: Kind,
    pub(crate) chunk: ChunkId,
    pub(crate) store: Arc<Store>,
}

#[derive(Debug, Default)]
pub(crate) struct Population {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of their turns.
    waiting: VecDeque<NewChunk>,
    /// The chunk that gets a slice at this moment, unless it was released meanwhile.
    current: Option<NewChunk>,
    /// Number of slices that the thread has ended.
    turns: u64,
    is_stopping: bool,
}

/// The thread. Dropping it waits for its end, so [`Population::stop`] comes first.
#[derive(Debug)]
pub(crate) struct PopulationThread(Option<JoinHandle<()>>);

impl Population {
    pub(crate) fn add(&self, chunk: NewChunk) {
        self.state.lock().waiting.push_back(chunk);
        self.changed.notify_all();
    }

    pub(crate) fn release(&self, store: &Arc<Store>) {
        let mut state = self.state.lock();
        let is_it = |it: &NewChunk| Arc::ptr_eq(&it.store, store);
        state.waiting.retain(|it| !is_it(it));
        if state.current.take_if(|it| is_it(it)).is_some() {
            let turn = state.turns;
            self.changed.wait_while(&mut state, |state| state.turns == turn);
        }
    }

    /// Ends the thread after the slice that it allocates.
    pub(crate) fn stop(&self) {
        self.state.lock().is_stopping = true;
        self.changed.notify_all();
    }

    /// Allocates slices until [`Self::stop`]; `note` gets each failure.
    pub(crate) fn run(&self, note: impl Fn(Failure)) {
        while let Some(store) = self.begin_turn() {
            let populated = catch_unwind(AssertUnwindSafe(|| store.ensure_next()));
            // After a panic, the slices are left to the operations that need them.
            let outcome = populated.unwrap_or(Ok(Bytes(0)));
            self.end_turn(store, outcome).into_iter().for_each(&note);
        }
    }

    /// Waits for a chunk that needs memory; `None` to stop.
    fn begin_turn(&self) -> Option<Arc<Store>> {
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_stopping;
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, is_idle);
        if state.is_stopping {
            return None;
        }
        state.current = state.waiting.pop_front();
        state.current.as_ref().map(|it| Arc::clone(&it.store))
    }

    /// Ends the turn of a chunk, which has another one while bytes are missing. Returns the failure of its
    /// slice; none for a chunk that was released meanwhile.
    fn end_turn(&self, store: Arc<Store>, outcome: Result<Bytes, SpaceError>) -> Option<Failure> {
        let mut state = self.state.lock();
        // The current chunk or who releases it keeps the memory until the lock is released.
        drop(store);
        state.turns += 1;
        self.changed.notify_all();
        let chunk = state.current.take()?;
        match outcome {
            Ok(missing) => {
                if missing.0 > 0 {
                    state.waiting.push_back(chunk);
                }
                None
            }
            Err(source) => {
                let NewChunk { op, kind, chunk, .. } = chunk;
                Some(Failure { op, sample: None, cause: Cause::Chunk { kind, chunk, source } })
            }
        }
    }
}

impl PopulationThread {
    /// Starts the thread, which executes `run`.
    ///
    /// # Errors
    ///
    /// If the system refuses a thread.
    pub(crate) fn start(run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        Ok(Self(Some(Builder::new().name("chunks".to_owned()).spawn(run)?)))
    }
}

impl Drop for PopulationThread {
    fn drop(&mut self) {
        // The thread catches panics, so it ends without one.
        let _ = self.0.take().map(JoinHandle::join);
    }
}
