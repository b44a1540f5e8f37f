//! The connection to this node's agent: requests out, batches in, leases back when Python is done.
//!
//! Waits are cut into pieces of 100 ms, between which Ctrl-C is noticed; the interpreter is free for
//! other threads meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pyo3::{exceptions::PyValueError, prelude::*};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, SampleId, Step},
    session::{Refusal, Tally, Wait},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{
    Client, Explained, Hello, LeasedBatch, NextError, OnError, Reply, RequestError, Role,
    monotonic_now,
};

use crate::{
    batch::{Batch, Origin, Row},
    clock::{SIGNAL_INTERVAL, check_signals},
    connection::Connection,
    errors,
    held::{Held, Lease},
    order::Order,
};

/// An agent that lives answers at once, unless it has staging memory to map first.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// As long as it takes an agent to copy 4 bytes for each sample of an epoch, and then some.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that reads batches for one rank.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Link {
    connection: Arc<Connection>,
    order: Py<Order>,
    briefing: String,
    rank: Rank,
    fingerprint: u64,
    batches_ahead: u32,
    on_error: OnError,
    /// Requests whose answers nobody has taken yet.
    asked: Mutex<BTreeSet<BatchId>>,
    /// Answers that were taken out of the ring and not given to Python.
    put_back: Mutex<VecDeque<Reply>>,
}

/// The agent's answer to a request that it does not fulfil.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Refused {
    batch: BatchId,
    refusal: Refusal,
}

impl Link {
    fn batch(&self, leased: LeasedBatch) -> Batch {
        let LeasedBatch { id, lease, arena, offset, len, rows, shared_tiers: shelves } = leased;
        let name = lease;
        let lease = Lease::new(Arc::clone(&self.connection), lease);
        let held = Held::leased(lease, arena, offset, len, shelves);
        self.connection.leases().insert(name, (held.base().addr(), held.len()));
        let rows = rows.into_iter().map(|row| Row {
            sample: row.sample.0,
            label: row.label,
            offset: row.offset,
            len: row.len,
            shelf: row.shared_tier,
        });
        Batch::new(id, rows, Origin::Agent, held)
    }
}

impl Link {
    fn put_back(&self) -> MutexGuard<'_, VecDeque<Reply>> {
        self.put_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, BTreeSet<BatchId>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, (epoch, step): (u32, u32)) -> BatchId {
        BatchId { epoch: Epoch(epoch), step: Step(step), rank: self.rank }
    }

    /// The batch at `place`, if it is there and nothing is left to do but to use it, the one at `following`
    /// being asked for as well; the agent is told, and asked for one more of the `steps` of the epoch. `None`
    /// in any other case; what came instead is for [`Self::next`].
    pub(crate) fn take_ready(
        &self,
        place: (u32, u32),
        following: (u32, u32),
        steps: u32,
    ) -> Option<Batch> {
        let (wanted, following) = (self.place(place), self.place(following));
        let mut asked = self.asked();
        let mut put_back = self.put_back();
        if !put_back.is_empty() || !asked.contains(&wanted) || !asked.contains(&following) {
            return None;
        }
        let client = self.connection.client().ok()?;
        match client.try_next().ok()?? {
            Reply::Batch(leased) if self.is_plain(&leased, wanted) => {
                asked.remove(&wanted);
                let now = monotonic_now();
                self.connection.deliver(leased.lease, Wait { since: now, until: now });
                self.ask_for_one_more(&client, &mut asked, wanted, steps);
                Some(self.batch(leased))
            }
            other => {
                put_back.push_back(other);
                None
            }
        }
    }

    /// Asks for the batch that comes into the window as `taken` leaves it, unless the epoch ends before.
    /// Should it fail, it is asked for again when its turn comes.
    fn ask_for_one_more(
        &self,
        client: &Client,
        asked: &mut BTreeSet<BatchId>,
        taken: BatchId,
        steps: u32,
    ) {
        let at = |ahead: u32| BatchId { step: Step(taken.step.0.saturating_add(ahead)), ..taken };
        let (last, next) = (at(self.batches_ahead.saturating_sub(1)), at(self.batches_ahead));
        let is_due = next.step.0 < steps && asked.contains(&last) && !asked.contains(&next);
        if is_due && client.request_later(next).unwrap_or(false) {
            asked.insert(next);
        }
    }

    /// Whether there is nothing to do about an answer but to use it: it is the batch that is wanted,
    /// whole, and training gives its batches back.
    fn is_plain(&self, leased: &LeasedBatch, wanted: BatchId) -> bool {
        let is_whole = leased.rows.iter().all(|row| row.len.is_some());
        let held = self.connection.leases().len() + 1;
        leased.id == wanted && is_whole && held < self.batches_ahead as usize
    }
}

/// Waits for an answer, noticing signals. `None` when the time is over.
fn wait(client: &Client, timeout: Duration) -> PyResult<Option<Reply>> {
    let mut left = timeout;
    loop {
        let piece = left.min(SIGNAL_INTERVAL);
        match client.next(piece) {
            Ok(reply) => return Ok(Some(reply)),
            Err(NextError::TimedOut) if left == piece => return Ok(None),
            Err(NextError::TimedOut) => left -= piece,
            Err(error) => return Err(errors::next(&error)),
        }
        check_signals()?;
    }
}

#[pymethods]
impl Link {
    /// Connects to the agent at `socket`, as the rank that follows from the variables of the launcher. `role`
    /// is `"trainer"` or `"worker"`, `trainer` the process that trains.
    #[staticmethod]
    fn connect(
        py: Python<'_>,
        socket: &str,
        launched: BTreeMap<String, String>,
        role: &str,
        trainer: u32,
    ) -> PyResult<Self> {
        let role = match role {
            "trainer" => Role::Trainer,
            "worker" => Role::Worker,
            _ => {
                return Err(PyValueError::new_err(format!("role {role:?}; use trainer or worker")));
            }
        };
        let hello = Hello { variables: launched, role, trainer };
        let client = py
            .detach(|| Client::connect(Path::new(socket), &hello, CONNECT_TIMEOUT))
            .map_err(|error| errors::connect(&error))?;
        let briefing = client.briefing();
        Ok(Self {
            order: Py::new(py, Order::new(briefing.order))?,
            briefing: serde_json::to_string(briefing).map_err(errors::reconfigure)?,
            rank: briefing.rank,
            fingerprint: briefing.fingerprint,
            batches_ahead: briefing.batches_ahead,
            on_error: briefing.on_error,
            connection: Arc::new(Connection::new(client)),
            asked: Mutex::default(),
            put_back: Mutex::default(),
        })
    }

    /// The order of the job.
    #[getter]
    fn order(&self, py: Python<'_>) -> Py<Order> {
        self.order.clone_ref(py)
    }

    /// The rank that this process reads for.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank.0
    }

    /// How to go on alone, as JSON for `Local.of_briefing`.
    #[getter]
    fn briefing(&self) -> &str {
        &self.briefing
    }

    /// Tells the dataset from any other.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// What the job says about a sample that cannot be read.
    #[getter]
    fn on_error(&self) -> &'static str {
        match self.on_error {
            OnError::Fail => "fail",
            OnError::Skip => "skip",
        }
    }

    /// More requests than this at a time gain nothing.
    #[getter]
    fn batches_ahead(&self) -> u32 {
        self.batches_ahead
    }

    /// Batches of this connection that Python still sees.
    #[getter]
    fn leases(&self) -> usize {
        self.connection.leases().len()
    }

    /// The address and length of the batch that Python has seen for the longest time.
    #[getter]
    fn oldest_lease(&self) -> Option<(usize, usize)> {
        self.connection.leases().values().next().copied()
    }

    /// Asks for batches, in this order, and returns for how many: the agent allows no more for now.
    fn request(&self, places: Vec<(u32, u32)>) -> PyResult<usize> {
        let batches: Vec<_> = places.into_iter().map(|place| self.place(place)).collect();
        match self.connection.client()?.request_each(batches.iter().copied()) {
            Ok(count) => {
                self.asked().extend(&batches[..count]);
                Ok(count)
            }
            Err(RequestError::TooMany { .. }) => Ok(0),
            Err(error) => Err(errors::request(&error)),
        }
    }

    /// Whether the batch at `place` was asked for and its answer not taken yet.
    fn has_asked(&self, place: (u32, u32)) -> bool {
        self.asked().contains(&self.place(place))
    }

    /// The places that were asked for and whose answers were not taken yet.
    #[getter(asked)]
    fn asked_places(&self) -> BTreeSet<(u32, u32)> {
        self.asked().iter().map(|batch| (batch.epoch.0, batch.step.0)).collect()
    }

    /// The next answer, or None after `timeout_s` seconds.
    fn next(&self, py: Python<'_>, timeout_s: f64) -> PyResult<Option<Py<PyAny>>> {
        let timeout = Duration::try_from_secs_f64(timeout_s)
            .map_err(|error| PyValueError::new_err(format!("{timeout_s} s: {error}")))?;
        let put_back = self.put_back().pop_front();
        let reply = if put_back.is_some() {
            put_back
        } else {
            let client = self.connection.client()?;
            py.detach(|| wait(&client, timeout))?
        };
        match reply {
            None => Ok(None),
            Some(Reply::Batch(leased)) => {
                self.asked().remove(&leased.id);
                Ok(Some(Py::new(py, self.batch(leased))?.into_any()))
            }
            Some(Reply::Refused { batch, refusal }) => {
                self.asked().remove(&batch);
                Ok(Some(Py::new(py, Refused { batch, refusal })?.into_any()))
            }
        }
    }

    /// Tells the agent what this process did itself in `epoch`, for its report: batches, samples and bytes
    /// that it read, samples that it skipped, nanoseconds for which training waited for an answer without
    /// a batch, while batches were read, and while samples were decoded. False if it could not be told now.
    #[expect(clippy::too_many_arguments, reason = "the figures of one entry, by name in Python")]
    #[pyo3(signature = (
        epoch, *, batches=0, samples=0, nbytes=0, skipped=0, unanswered_ns=0, self_read_ns=0, decoding_ns=0,
        decode_threads=0
    ))]
    fn tally(
        &self,
        epoch: u32,
        batches: u32,
        samples: u32,
        nbytes: u64,
        skipped: u32,
        unanswered_ns: u64,
        self_read_ns: u64,
        decoding_ns: u64,
        decode_threads: u32,
    ) -> bool {
        let tally = Tally {
            epoch: Epoch(epoch),
            self_read_batches: batches,
            self_read_samples: samples,
            self_read_bytes: Bytes(nbytes),
            skipped_samples: skipped,
            unanswered: Nanoseconds(unanswered_ns),
            self_read: Nanoseconds(self_read_ns),
            decoding: Nanoseconds(decoding_ns),
            decode_threads,
        };
        // Who is gone is not told; what was not told waits for the next agent.
        self.connection.client().is_ok_and(|client| client.tally(tally).unwrap_or(false))
    }

    /// Hands over what this rank reads in `epoch`.
    fn publish(&self, py: Python<'_>, epoch: u32, samples: Vec<u32>) -> PyResult<()> {
        let samples: Vec<_> = samples.into_iter().map(SampleId).collect();
        let client = self.connection.client()?;
        py.detach(|| client.publish(Epoch(epoch), &samples, PUBLISH_TIMEOUT))
            .map_err(|error| errors::control(&error))
    }

    /// Closes what a forked process inherited, without a word to the agent. Leased memory stays.
    fn forget(&self) {
        self.connection.forget();
    }
}

#[pymethods]
impl Refused {
    /// Epoch and step.
    #[getter]
    fn place(&self) -> (u32, u32) {
        (self.batch.epoch.0, self.batch.step.0)
    }

    #[getter]
    fn epoch(&self) -> u32 {
        self.batch.epoch.0
    }

    #[getter]
    fn step(&self) -> u32 {
        self.batch.step.0
    }

    /// A word for programs. Reading directly helps against `"no-room"`, `"too-large"`,
    /// `"too-many-jumps"` and `"already-taken"`, not against `"unreadable"`, `"not-published"` and `"not-in-order"`.
    #[getter]
    fn reason(&self) -> &'static str {
        match self.refusal {
            Refusal::Unreadable(..) => "unreadable",
            Refusal::NotPublished => "not-published",
            Refusal::NotInOrder => "not-in-order",
            Refusal::TooLarge { .. } => "too-large",
            Refusal::AlreadyTaken => "already-taken",
            Refusal::NoRoom => "no-room",
            Refusal::TooManyJumps => "too-many-jumps",
        }
    }

    /// The sample that could not be read.
    #[getter]
    fn sample(&self) -> Option<u32> {
        match self.refusal {
            Refusal::Unreadable(SampleId(sample), _) => Some(sample),
            _ => None,
        }
    }

    /// Why it could not.
    #[getter]
    fn fault(&self) -> Option<&'static str> {
        match self.refusal {
            Refusal::Unreadable(_, fault) => Some(fault.name()),
            _ => None,
        }
    }

    /// A sentence for people.
    fn __str__(&self) -> String {
        Explained(self.refusal).to_string()
    }
}

/// Adds the classes to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Link>()?;
    m.add_class::<Refused>()
}
