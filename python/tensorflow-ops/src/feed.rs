//! The batches of one rank for the calls of TensorFlow: from the agent while there is one. The rules that a feed
//! of Python shares stand in `tierfeed_client`.
//!
//! 1. A call names its batch, so calls may come in any order; calls for one batch share it.
//! 2. A batch that the agent refuses, or has no room for, is read from the cold store.
//! 3. When the agent is gone, what it had handed over is delivered and the rest of the epoch is read
//!    directly; a later epoch tries once to connect again. At the end of an epoch a warning says how much of
//!    it was read directly.
//! 4. The lock of the state is never held while a call connects, receives or reads, and a panic in one of
//!    them ends that work only.
//! 5. While TensorFlow keeps as many batches as the agent stages, further ones are copies.
//! 6. In the place of a batch of which nothing is left (`on_error: skip`) comes another one of its epoch: all
//!    ranks have equally many.

mod epoch_reads;
mod live;
mod requests;
#[cfg(test)]
mod tests;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use tierfeed_client::{AfterSilence, Connection, Held, Holding, Patience, StorePatience, Tallies};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, Step},
    order::Spec,
    session::{Refusal, Tally, Wait},
    units::Nanoseconds,
};
use tierfeed_handoff::{
    Explained, Hello, LeasedBatch, NamedDataset, NextError, Reply, RequestError, monotonic_now,
};

use self::{
    epoch_reads::EpochReads,
    live::{Delivery, Live},
    requests::{Requests, Way},
};
use crate::{
    batch::{Answer, Copied, Form, Staged},
    c_api::{Code, Failure},
    cold::{ColdReader, closed},
    warnings::warn,
};

/// How long a call waits before it looks again whether the feed was closed.
const PIECE: Duration = Duration::from_millis(100);

pub(crate) struct Agent {
    pub(crate) socket: PathBuf,
    pub(crate) hello: Hello,
    /// The name of the dataset, if it is not the first one of its job.
    pub(crate) dataset: Option<String>,
}

/// The batches of one rank. It has no thread: a call that waits receives for all, and each reads for itself.
pub(crate) struct Feed {
    agent: Option<Agent>,
    cold: ColdReader,
    form: Form,
    dataset: NamedDataset,
    /// The order of the dataset by itself.
    spec: Spec,
    rank: Rank,
    state: Mutex<State>,
    changed: Condvar,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// The highest epoch that was asked for; only a later one tries to connect again.
    epoch: u32,
    /// Whether a call waits for the agent's next answer, on behalf of all.
    is_receiving: bool,
    /// Whether a call connects; what has to be requested waits for that.
    is_connecting: bool,
    patience: Patience,
    epoch_reads: EpochReads,
    requests: Requests,
    /// The batch that the pipeline asked for last, and when.
    wanted: Option<(BatchId, Nanoseconds)>,
    live: Live,
    tallies: Tallies,
    figures: Figures,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Figures {
    /// Batches that the pipeline took.
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) bytes: u64,
    /// For how long the pipeline waited for them.
    pub(crate) waited_ns: u64,
    /// Batches that were read from the cold store by this process.
    pub(crate) read_directly: u64,
    /// Batches of the agent that were copied because TensorFlow keeps too many.
    pub(crate) copied: u64,
    pub(crate) skipped: u64,
}

impl Feed {
    pub(crate) fn new(
        agent: Option<Agent>,
        cold: ColdReader,
        form: Form,
        dataset: NamedDataset,
        rank: Rank,
    ) -> Self {
        let feed = Self {
            agent,
            cold,
            form,
            dataset,
            spec: dataset.order(),
            rank,
            state: Mutex::default(),
            changed: Condvar::new(),
            is_closed: AtomicBool::new(false),
        };
        drop(feed.connect(feed.lock()));
        feed
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// The batch of a number: epochs times the batches of a whole epoch, plus steps. The epoch that a job
    /// starts in may be shorter; it lacks the first numbers.
    pub(crate) fn batch(&self, number: i64) -> Result<BatchId, Failure> {
        let outside = || {
            let (epochs, steps) = (self.spec.epochs, self.spec.steps_per_epoch());
            let message =
                format!("there is no batch {number}: {epochs} epochs have {steps} batches");
            Failure::new(Code::InvalidArgument, message)
        };
        let steps = i64::from(self.spec.steps_per_epoch()).max(1);
        let epoch = Epoch(u32::try_from(number.div_euclid(steps)).map_err(|_| outside())?);
        let missing = steps - i64::from(self.spec.steps_in(epoch));
        let step = u32::try_from(number.rem_euclid(steps) - missing).map_err(|_| outside())?;
        let batch = BatchId { epoch, step: Step(step), rank: self.rank };
        if self.spec.contains(batch) { Ok(batch) } else { Err(outside()) }
    }

    /// The pipeline waits for a batch, from now on.
    pub(crate) fn wanted(&self, batch: BatchId) -> Nanoseconds {
        let now = monotonic_now();
        self.lock().wanted = Some((batch, now));
        now
    }

    /// Waits for a batch, or reads it. Calls take turns to wait for the agent; each reads for itself.
    pub(crate) fn get(&self, batch: BatchId) -> Result<Answer, Failure> {
        let mut state = self.lock();
        if let Some(answer) = state.live.find(batch) {
            return Ok(answer);
        }
        if batch.epoch.0 > state.epoch {
            state.epoch = batch.epoch.0;
            state = self.connect(state);
        }
        state.requests.enter(batch, monotonic_now());
        loop {
            if let Some(answer) = state.requests.take(batch) {
                drop(state);
                return answer.and_then(|answer| self.with_samples(batch, answer));
            }
            if self.is_closed() {
                state.requests.answer(batch, Err(closed()));
                continue;
            }
            state.send();
            let is_due = !state.is_receiving && state.requests.is_any_in_flight();
            let agent = state.connection.clone().filter(|_| is_due);
            state = match agent {
                _ if state.requests.is_to_read(batch) => self.read(state, batch),
                Some(connection) => self.receive(state, &connection),
                None => self.wait(state),
            };
        }
    }

    /// The batch, or another one of its epoch if all of its samples were left out: the nearest before it of
    /// which something is left, else the nearest behind it.
    fn with_samples(&self, batch: BatchId, answer: Answer) -> Result<Answer, Failure> {
        let Staged { ref rows, skipped, .. } = answer.staged;
        if !rows.is_empty() || skipped == 0 {
            return Ok(answer);
        }
        let begin = monotonic_now();
        let BatchId { epoch, step: Step(step), rank } = batch;
        let others = (0..step).rev().chain(step + 1..self.spec.steps_in(epoch));
        for other in others.map(|step| BatchId { step: Step(step), ..batch }) {
            let is_wanted = || !self.is_closed();
            let staged = self.cold.read(self.form, other, StorePatience::OfTheJob, &is_wanted)?;
            if !staged.rows.is_empty() {
                let took = Nanoseconds(monotonic_now().0.saturating_sub(begin.0));
                // Those of the other one were counted in its place.
                let staged = Staged { skipped, ..staged };
                return Ok(self.lock().live.add(batch, staged, Delivery::Read { took }));
            }
        }
        let message = format!(
            "no batch of epoch {} is left for rank {}, as on_error is skip and all of its samples failed",
            epoch.0, rank.0
        );
        Err(Failure::new(Code::DataLoss, message))
    }

    /// Reports that the pipeline takes a batch, which it waits for since `wanted`.
    pub(crate) fn delivered(&self, ticket: i64, wanted: Nanoseconds) {
        let now = monotonic_now();
        let wait = Wait { since: wanted.min(now), until: now };
        let mut guard = self.lock();
        let state = &mut *guard;
        let Some((delivery, taken)) = state.live.take_delivery(ticket) else { return };
        let (epoch, samples) = (taken.batch.epoch, taken.rows.len());
        // Without an agent none should have delivered it.
        let is_direct = self.agent.is_some() && matches!(delivery, Delivery::Read { .. });
        let is_last = taken.batch.step.0 + 1 == self.spec.steps_in(epoch);
        let said = state.epoch_reads.taken(taken.batch, is_last, (is_direct, taken.skipped));
        let figures = &mut state.figures;
        figures.batches += 1;
        figures.samples += samples as u64;
        figures.bytes += taken.nbytes.0;
        figures.skipped += u64::from(taken.skipped);
        figures.waited_ns += wait.len().0;
        match delivery {
            Delivery::Leased => {
                if let Some(lease) = taken.memory.upgrade().as_ref().and_then(|it| it.lease()) {
                    lease.deliver(wait);
                }
            }
            Delivery::Copied => (),
            Delivery::Read { took } => {
                figures.read_directly += 1;
                let self_read = took.min(wait.len());
                state.tallies.add(Tally {
                    self_read_batches: 1,
                    self_read_samples: u32::try_from(samples).unwrap_or(u32::MAX),
                    self_read_bytes: taken.nbytes,
                    skipped_samples: taken.skipped,
                    unanswered: Nanoseconds(wait.len().0 - self_read.0),
                    self_read,
                    ..Tally::empty(epoch)
                });
            }
        }
        let due = state.tallies.take();
        state.send_tallies(due);
        drop(guard);
        said.iter().for_each(|message| warn(message));
    }

    pub(crate) fn figures(&self) -> Figures {
        self.lock().figures
    }

    /// The batches of the agent that TensorFlow still sees.
    pub(crate) fn held(&self) -> Vec<Held> {
        self.lock().connection.as_ref().map(|it| it.held()).unwrap_or_default()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.lock().connection.is_some()
    }

    /// Calls that wait get an error, and later ones too. The connection ends with the last tensor over a
    /// batch of the agent.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.lock().connection = None;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Tries once to connect, if there is no connection. An agent with another order runs another job.
    fn connect<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let is_needed = state.connection.is_none() && !state.is_connecting && !self.is_closed();
        let Some(agent) = self.agent.as_ref().filter(|_| is_needed) else { return state };
        state.is_connecting = true;
        drop(state);
        let Agent { socket, hello, dataset } = agent;
        let opened = caught(|| Connection::open(socket, hello, dataset.as_deref()));
        let of_job = opened.ok().and_then(Result::ok).filter(|it| it.dataset() == self.dataset);
        let mut state = self.lock();
        state.is_connecting = false;
        state.connection = of_job.filter(|_| !self.is_closed()).map(Arc::new);
        let due = state.tallies.take_for_new_agent();
        state.send_tallies(due);
        self.changed.notify_all();
        state
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // A lease that is released makes room in the agent's window without a signal here, so the wait is
        // bounded.
        let waited = self.changed.wait_timeout(state, PIECE);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for an answer of the agent, for this call or another one.
    fn receive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        connection: &Arc<Connection>,
    ) -> MutexGuard<'a, State> {
        state.is_receiving = true;
        drop(state);
        let received = caught(|| match connection.next(PIECE)? {
            Reply::Batch(leased) => Ok(Received::Batch(leased.id, self.staged(connection, leased))),
            Reply::Refused { batch, refusal } => Ok(Received::Refused(batch, refusal)),
        });
        let mut state = self.lock();
        match received {
            Ok(Ok(Received::Batch(batch, staged))) => state.arrived(batch, staged),
            Ok(Ok(Received::Refused(batch, refusal))) => state.refused(batch, refusal),
            Ok(Err(NextError::TimedOut)) => state = self.lose_patience(state, connection),
            Ok(Err(_)) | Err(_) => state.give_up(connection),
        }
        state.is_receiving = false;
        self.changed.notify_all();
        state
    }

    fn staged(
        &self,
        connection: &Arc<Connection>,
        leased: LeasedBatch,
    ) -> Result<(Staged, Copied), Failure> {
        self.cold.leave_out_of(connection, &leased)?;
        // A batch that is copied goes back, so what is read of it is read before.
        let fields = self.cold.fields_of_lease(&leased);
        let id = leased.id;
        let wanted_since = || {
            let state = self.lock();
            let (batch, since) = state.wanted.filter(|(batch, _)| *batch == id)?;
            state.requests.is_wanted(batch).then_some(since)
        };
        let (staged, copied) = Staged::of_lease(self.form, connection, leased, wanted_since)?;
        Ok((Staged { fields: fields?, ..staged }, copied))
    }

    /// Ends a wait in vain. An agent that says what keeps it from reading the silent batch does not hang.
    fn lose_patience<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        connection: &Connection,
    ) -> MutexGuard<'a, State> {
        let Some((batch, silent)) = state.requests.silent_for(monotonic_now()) else {
            return state;
        };
        let holding = Holding { all: connection.holds_all(), later: false };
        match state.patience.after(silent, holding) {
            AfterSilence::Wait | AfterSilence::GiveBackLater => (),
            AfterSilence::Read => state.requests.abandon(batch),
            AfterSilence::Ask => {
                drop(state);
                let is_waiting = caught(|| {
                    let samples = self.cold.samples(batch).unwrap_or_default();
                    connection.explain(samples).is_ok_and(|reasons| !reasons.is_empty())
                });
                state = self.lock();
                if matches!(is_waiting, Ok(true)) {
                    state.requests.agent_waits(monotonic_now());
                } else {
                    connection.note_silence();
                    state.give_up(connection);
                }
            }
        }
        state
    }

    fn read<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        batch: BatchId,
    ) -> MutexGuard<'a, State> {
        let refusal = state.requests.begin_to_read(batch);
        let agent = state.connection.clone();
        drop(state);
        let begin = monotonic_now();
        // The agent waits for a store that cannot be read before it refuses a batch.
        let patience =
            if refusal.is_some() { StorePatience::None } else { StorePatience::OfTheJob };
        let staged = caught(|| {
            match refusal.and_then(|refusal| self.cold.final_failure(agent.as_deref()?, refusal)) {
                Some(failure) => Err(failure),
                None => self.cold.read(self.form, batch, patience, &|| !self.is_closed()),
            }
        })
        .unwrap_or_else(Err);
        let took = Nanoseconds(monotonic_now().0.saturating_sub(begin.0));
        let mut state = self.lock();
        let answer = staged.map(|staged| state.live.add(batch, staged, Delivery::Read { took }));
        state.requests.answer(batch, answer);
        self.changed.notify_all();
        state
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock guards values that are whole between two calls.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs work that other calls wait for, so that they get its panic as a failure.
fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| Failure::of_panic(&*panic))
}

enum Received {
    Batch(BatchId, Result<(Staged, Copied), Failure>),
    Refused(BatchId, Refusal),
}

impl State {
    /// Requests the batches that wait; without an agent they will be read.
    fn send(&mut self) {
        if self.is_connecting {
            return;
        }
        while let Some(batch) = self.requests.next_to_send() {
            let Some(connection) = &self.connection else { return self.requests.read_unsent() };
            let Some(in_job) = connection.name_in_job(batch) else {
                self.requests.read(batch, Way::Read);
                continue;
            };
            match connection.client().map_err(RequestError::from).and_then(|it| it.request(in_job))
            {
                Ok(()) => self.requests.sent(batch, monotonic_now()),
                Err(RequestError::TooMany { .. }) => return,
                // What the agent had handed over still comes; `receive` meets its end.
                Err(_) if self.requests.is_any_in_flight() => self.requests.read_unsent(),
                Err(_) => {
                    self.connection = None;
                    self.requests.read_unsent();
                }
            }
        }
    }

    fn arrived(&mut self, batch: BatchId, staged: Result<(Staged, Copied), Failure>) {
        self.requests.heard(batch, monotonic_now());
        if !self.requests.is_wanted(batch) {
            // It was read meanwhile, and goes back.
            return;
        }
        let answer = staged.map(|(staged, copied)| {
            self.figures.copied += u64::from(copied == Copied::ForRoom);
            let delivery = match copied {
                Copied::No => Delivery::Leased,
                Copied::ForRoom | Copied::ForItsForm => Delivery::Copied,
            };
            self.live.add(batch, staged, delivery)
        });
        self.requests.answer(batch, answer);
    }

    fn refused(&mut self, batch: BatchId, refusal: Refusal) {
        self.requests.heard(batch, monotonic_now());
        self.epoch_reads.why =
            format!("the agent refused the last of them: {}", Explained(refusal));
        match refusal {
            Refusal::Unreadable(..) => self.requests.read(batch, Way::Refused(refusal)),
            Refusal::TooManySkipped { .. } => {
                let message = Explained(refusal).to_string();
                self.requests.answer(batch, Err(Failure::new(Code::DataLoss, message)));
            }
            Refusal::NotInOrder => {
                let message = format!("agent and client disagree: {}", Explained(refusal));
                self.requests.answer(batch, Err(Failure::new(Code::Internal, message)));
            }
            _ => self.requests.read(batch, Way::Read),
        }
    }

    /// Reads what an agent that is gone did not deliver.
    fn give_up(&mut self, connection: &Connection) {
        if self.connection.as_ref().is_some_and(|it| std::ptr::eq(Arc::as_ptr(it), connection)) {
            self.connection = None;
            "the agent is gone, or silent".clone_into(&mut self.epoch_reads.why);
            self.requests.read_all();
        }
    }

    fn send_tallies(&mut self, due: impl Iterator<Item = Tally>) {
        for tally in due {
            if !self.connection.as_ref().is_some_and(|it| it.tally(tally)) {
                self.tallies.add(tally);
            }
        }
    }
}
