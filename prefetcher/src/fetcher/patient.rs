//! Repeats fetches that fail because their store cannot be read, as [`tierfeed_core::outage`] says, before it
//! reports the failure.
//!
//! It stands between the data plane and an engine, so that every engine waits in the same way and a fetch
//! that waits holds none of its threads or requests.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use tierfeed_core::{
    id::SampleId,
    outage::{Failures, Next, Outage},
    units::Nanoseconds,
};
use tierfeed_dataset::{pace::Pace, read::ReadError};

use super::{Fetch, Fetcher};

#[derive(Debug)]
pub struct PatientFetcher {
    engine: Arc<dyn Fetcher>,
    waits: Arc<Waits>,
    thread: Option<JoinHandle<()>>,
}

/// The fetches that wait, and the state of the store.
#[derive(Debug)]
struct Waits {
    /// The name of the store in messages.
    place: String,
    pace: Pace,
    /// Set while a fetch waits or is tried again, or none has succeeded since one was given up. Otherwise a
    /// success tells nothing new.
    is_out: AtomicBool,
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug)]
struct State {
    outage: Outage,
    /// By the time of the next attempt; a number distinguishes fetches of the same time.
    waiting: BTreeMap<(Nanoseconds, u64), Waiting>,
    number: u64,
    /// The last error of each sample that waits or is tried again.
    said: BTreeMap<SampleId, String>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    fetch: Fetch,
    failures: Failures,
}

impl PatientFetcher {
    /// Lets the fetches of `engine` wait as long as `patience`. Messages call the store `place`.
    ///
    /// # Errors
    ///
    /// If the thread that wakes them cannot be started.
    pub fn start(
        engine: Box<dyn Fetcher>,
        place: String,
        patience: Nanoseconds,
    ) -> io::Result<Self> {
        let engine: Arc<dyn Fetcher> = Arc::from(engine);
        let waits = Arc::new(Waits {
            place,
            pace: Pace::start(),
            is_out: AtomicBool::new(false),
            state: Mutex::new(State {
                outage: Outage::new(patience),
                waiting: BTreeMap::new(),
                number: 0,
                said: BTreeMap::new(),
                is_stopped: false,
            }),
            bell: Condvar::new(),
        });
        let (of_thread, by) = (Arc::clone(&waits), Arc::clone(&engine));
        let wake = move || {
            while let Some(Waiting { fetch, failures }) = of_thread.next_blocking() {
                of_thread.attempt(&*by, fetch, failures);
            }
        };
        let thread = thread::Builder::new().name("store-waits".to_owned()).spawn(wake)?;
        Ok(Self { engine, waits, thread: Some(thread) })
    }
}

impl Fetcher for PatientFetcher {
    fn start(&self, fetch: Fetch) {
        self.waits.attempt(&*self.engine, fetch, Failures::default());
    }

    fn backend(&self) -> &'static str {
        self.engine.backend()
    }

    fn waits_for(&self, sample: SampleId) -> Option<String> {
        self.waits.state.lock().said.get(&sample).cloned()
    }

    fn stop(&self) {
        self.waits.stop();
        self.engine.stop();
    }
}

impl Drop for PatientFetcher {
    fn drop(&mut self) {
        self.waits.stop();
        // Dropping it joins: a thread that panicked has dropped its fetch, which is an answer.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Waits {
    fn attempt(self: &Arc<Self>, engine: &dyn Fetcher, fetch: Fetch, failures: Failures) {
        let (waits, begun) = (Arc::clone(self), self.pace.now());
        let (sample, to) = (fetch.sample, fetch.to.clone());
        engine.start(Fetch::new(sample, to, move |outcome| {
            if let Err(error) = outcome {
                waits.failed(fetch, failures, error);
            } else {
                waits.succeeded(sample, begun);
                fetch.end(Ok(()));
            }
        }));
    }

    fn succeeded(&self, sample: SampleId, begun: Nanoseconds) {
        if !self.is_out.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let lasted = state.outage.succeeded(begun, self.pace.now());
        state.said.remove(&sample);
        if state.said.is_empty() && !state.outage.is_out() {
            self.is_out.store(false, Ordering::Relaxed);
        }
        drop(state);
        if let Some(lasted) = lasted {
            let seconds = lasted.0 / 1_000_000_000;
            // As loud as its begin: who was told of that waits for this.
            tracing::warn!(seconds, "{} can be read again", self.place);
        }
    }

    /// Lets a fetch wait, or ends it.
    fn failed(&self, fetch: Fetch, mut failures: Failures, error: ReadError) {
        let now = self.pace.now();
        let mut state = self.state.lock();
        let next = if state.is_stopped || fetch.to.was_refused() || is_of_call(&error) {
            Next::GiveUp
        } else {
            state.outage.failed(&mut failures, error.fault(), now)
        };
        let Next::Again { pause, is_said } = next else {
            state.said.remove(&fetch.sample);
            drop(state);
            return fetch.end(Err(error));
        };
        self.is_out.store(true, Ordering::Relaxed);
        let why = error.to_string();
        if is_said {
            tracing::warn!(
                waiting = state.waiting.len() + 1,
                patience = %state.outage.patience(),
                "{} cannot be read: {why}; reads wait for it, and are tried again",
                self.place
            );
        }
        state.said.insert(fetch.sample, why);
        state.number += 1;
        let due = (Nanoseconds(now.0.saturating_add(pause.0)), state.number);
        state.waiting.insert(due, Waiting { fetch, failures });
        drop(state);
        self.bell.notify_one();
    }

    /// The next fetch whose pause is over; `None` once it is stopped.
    fn next_blocking(&self) -> Option<Waiting> {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            let now = self.pace.now();
            let next = state.waiting.first_key_value().map(|((due, _), _)| *due);
            match next {
                None => self.bell.wait(&mut state),
                Some(due) if due <= now => return state.waiting.pop_first().map(|(_, it)| it),
                Some(due) => {
                    self.bell.wait_for(&mut state, Duration::from_nanos(due.0 - now.0));
                }
            }
        }
    }

    /// Drops the waiting fetches, which answers them; failures after this do not wait.
    fn stop(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.is_stopped = true;
            std::mem::take(&mut state.waiting)
        };
        drop(dropped);
        self.bell.notify_one();
    }
}

/// Whether the caller is at fault, as with a place outside of the memory of the target.
fn is_of_call(error: &ReadError) -> bool {
    matches!(error, ReadError::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput)
}

#[cfg(test)]
mod tests;
