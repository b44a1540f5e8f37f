//! The connection to this node's agent: requests out, batches in, leases back when Python is done.
//!
//! Waits are cut into pieces of 100 ms, between which Ctrl-C is noticed; the interpreter is free for
//! other threads meanwhile.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use pyo3::{exceptions::PyValueError, prelude::*};
use tierfeed_client::{Connection, EpochStep, Memory, first_byte, to_usize};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, SampleId, Step},
    session::Wait,
};
use tierfeed_handoff::{
    Client, Hello, LeasedBatch, NextError, Pages, Reply, RequestError, Role, monotonic_now,
};

use crate::{
    batch::{Batch, Origin},
    clock::{SIGNAL_INTERVAL, check_signals},
    errors,
    order::Order,
    refused::Refused,
    requests::{Requests, Table},
    tallies::Tally,
};

/// More than an agent takes to copy 4 bytes for each sample of an epoch.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that reads batches for one rank.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct AgentConnection {
    connection: Arc<Connection>,
    requests: Py<Requests>,
    order: Py<Order>,
    briefing: String,
    rank: Rank,
}

impl AgentConnection {
    /// The batch at `place`, if it is in the ring and only has to be used, and `following` is requested too.
    /// Tells the agent of the delivery, and requests one more of the `steps` of the epoch.
    ///
    /// `None` in any other case. Another answer that is in the ring is noted in the requests.
    pub(crate) fn take_ready(
        &self,
        py: Python<'_>,
        place: EpochStep,
        following: EpochStep,
        steps: u32,
    ) -> PyResult<Option<Batch>> {
        let mut requests = self.requests.get().table();
        if !requests.is_in_flight(place) || !requests.is_requested(following) {
            return Ok(None);
        }
        // The slow path meets the same error, and says what follows from it.
        let Ok(client) = self.connection.client() else { return Ok(None) };
        let Ok(Some(reply)) = self.connection.try_next() else { return Ok(None) };
        match reply {
            Reply::Batch(leased) if self.is_plain(&leased, place) => {
                requests.end(place);
                let now = monotonic_now();
                // The only failure: the agent is gone, and its report with it.
                let _ = client.deliver(leased.lease, Wait { since: now, until: now });
                self.request_one_more(&client, &mut requests, place, steps);
                drop(requests);
                Ok(Some(self.batch(leased)))
            }
            other => {
                drop(requests);
                self.note(py, other)?;
                Ok(None)
            }
        }
    }

    /// Requests the batch that comes into the window as `taken` leaves it, unless the epoch ends before.
    /// If that fails, the slow path requests it.
    fn request_one_more(
        &self,
        client: &Client,
        requests: &mut Table,
        taken: EpochStep,
        steps: u32,
    ) {
        let next = requests.next_ahead(taken, self.connection.batches_ahead(), steps);
        let Some((next, batch)) = next.and_then(|it| Some((it, self.name_in_job(it)?))) else {
            return;
        };
        if client.request_later(batch).unwrap_or(false) {
            requests.sent(next);
        }
    }

    /// Whether a batch only has to be used: it is the one that is wanted, no sample of it is missing, and
    /// training gives its batches back.
    fn is_plain(&self, leased: &LeasedBatch, wanted: EpochStep) -> bool {
        let is_whole = leased.rows.iter().all(|row| row.len.is_some());
        let kept = self.connection.held_count() + 1;
        leased.id == self.id(wanted) && is_whole && kept < self.connection.batches_ahead() as usize
    }

    fn note(&self, py: Python<'_>, reply: Reply) -> PyResult<()> {
        let (id, answer) = match reply {
            Reply::Batch(leased) => (leased.id, Py::new(py, self.batch(leased))?.into_any()),
            Reply::Refused { batch, refusal } => (batch, Py::new(py, Refused(refusal))?.into_any()),
        };
        self.requests.get().answer((id.epoch.0, id.step.0), answer);
        Ok(())
    }

    fn batch(&self, leased: LeasedBatch) -> Batch {
        let lease = self.connection.lease(&leased);
        let LeasedBatch { id, arena, offset, len, rows, .. } = leased;
        Batch::new(id, rows, Origin::Agent, Memory::leased(lease, arena, offset, len))
    }

    fn id(&self, (epoch, step): EpochStep) -> BatchId {
        BatchId { epoch: Epoch(epoch), step: Step(step), rank: self.rank }
    }

    fn name_in_job(&self, place: EpochStep) -> Option<BatchId> {
        self.connection.name_in_job(self.id(place))
    }

    fn client(&self) -> PyResult<Arc<Client>> {
        self.connection.client().map_err(|error| errors::gone(&error))
    }
}

fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

/// Runs signal handlers while it waits. `None` when the time is over.
fn wait(connection: &Connection, timeout: Duration) -> PyResult<Option<Reply>> {
    let mut left = timeout;
    loop {
        let piece = left.min(SIGNAL_INTERVAL);
        match connection.next(piece) {
            Ok(reply) => return Ok(Some(reply)),
            Err(NextError::TimedOut) if left == piece => return Ok(None),
            Err(NextError::TimedOut) => left -= piece,
            Err(error) => return Err(errors::gone(&error)),
        }
        check_signals()?;
    }
}

#[pymethods]
impl AgentConnection {
    /// Connects to the agent at `socket`, as the rank that follows from the variables of the launcher. `role`
    /// is `"trainer"` or `"worker"`, `trainer` the process that trains. Without a name it is the first dataset
    /// of the job. With `pinned` the agent leaves its pages to the staging memory, so that a device may hold
    /// them. An agent that was silent is tried less and less often, by all feeds of this process together.
    #[staticmethod]
    #[pyo3(signature = (socket, launched, role, trainer, dataset=None, *, pinned=false))]
    fn connect(
        py: Python<'_>,
        socket: &str,
        launched: BTreeMap<String, String>,
        role: &str,
        trainer: u32,
        dataset: Option<&str>,
        pinned: bool,
    ) -> PyResult<Self> {
        let pages = if pinned { Pages::Pinned } else { Pages::Pageable };
        let role = match role {
            "trainer" => Role::Trainer,
            "worker" => Role::Worker,
            _ => {
                return Err(PyValueError::new_err(format!("role {role:?}; use trainer or worker")));
            }
        };
        let hello = Hello { variables: launched, role, trainer, pages };
        let connection = py
            .detach(|| Connection::open(Path::new(socket), &hello, dataset))
            .map_err(|error| errors::no_connection(&error))?;
        let client = connection.client().map_err(|error| errors::gone(&error))?;
        let briefing = client.briefing();
        Ok(Self {
            order: Py::new(py, Order::of(connection.dataset()))?,
            briefing: serde_json::to_string(briefing).map_err(errors::reconfigure)?,
            rank: briefing.rank,
            connection: Arc::new(connection),
            requests: Py::new(py, Requests::new())?,
        })
    }

    /// What was requested and not handed out yet.
    #[getter]
    fn requests(&self, py: Python<'_>) -> Py<Requests> {
        self.requests.clone_ref(py)
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

    /// The address and length of the staging memory of the rank, as this process maps it.
    #[getter]
    fn arena(&self) -> PyResult<(usize, usize)> {
        let client = self.client()?;
        let arena = client.arena();
        Ok((first_byte(arena).addr(), to_usize(arena.len())))
    }

    /// How to read without the agent, as JSON for `ColdReader.of_briefing`.
    #[getter]
    fn briefing(&self) -> &str {
        &self.briefing
    }

    /// How many batches the agent stages ahead; more requests at a time gain nothing.
    #[getter]
    fn batches_ahead(&self) -> u32 {
        self.connection.batches_ahead()
    }

    /// Batches of this connection that Python still sees, or that wait among the answers.
    #[getter]
    fn leases(&self) -> usize {
        self.connection.held_count()
    }

    /// The address and length of the batch that Python has seen for the longest time.
    #[getter]
    fn oldest_lease(&self) -> Option<(usize, usize)> {
        self.connection.held().first().map(|it| (it.address, to_usize(it.len)))
    }

    /// Whether these are as many as the agent stages.
    #[getter]
    fn holds_all(&self) -> bool {
        self.connection.holds_all()
    }

    /// Whether training keeps that many.
    #[getter]
    fn is_exhausted(&self) -> bool {
        let table = self.requests.get().table();
        let not_taken = table.wanted().filter(|(_, is_answered)| *is_answered).count();
        self.connection.is_exhausted(not_taken)
    }

    /// Requests those of `places` that are not requested yet, in this order, and returns how many of these
    /// the agent allows for now.
    fn request(&self, places: Vec<EpochStep>) -> PyResult<usize> {
        let requests = self.requests.get();
        let missing = requests.missing(places).into_iter();
        let missing = missing.filter_map(|place| Some((place, self.name_in_job(place)?)));
        let (missing, batches): (Vec<_>, Vec<_>) = missing.unzip();
        if missing.is_empty() {
            return Ok(0);
        }
        match self.client()?.request_each(batches) {
            Ok(count) => {
                requests.sent(missing[..count].to_vec());
                Ok(count)
            }
            Err(RequestError::TooMany { .. }) => Ok(0),
            Err(error) => Err(errors::gone(&error)),
        }
    }

    /// Waits at most `timeout_s` seconds for an answer, and notes it in the requests. False if none came.
    fn receive(&self, py: Python<'_>, timeout_s: f64) -> PyResult<bool> {
        let timeout = duration(timeout_s)?;
        match py.detach(|| wait(&self.connection, timeout))? {
            None => Ok(false),
            Some(reply) => self.note(py, reply).map(|()| true),
        }
    }

    /// Why the agent did not hand over samples, as far as it still knows.
    fn explain(&self, py: Python<'_>, samples: Vec<u32>) -> PyResult<BTreeMap<u32, String>> {
        let reasons = py.detach(|| self.connection.explain(samples.into_iter().map(SampleId)));
        let reasons = reasons.map_err(|error| errors::control(&error))?;
        Ok(reasons.into_iter().map(|(sample, reason)| (sample.0, reason)).collect())
    }

    /// Sends the agent what this process did itself; False if there is no room now.
    fn tally(&self, tally: &Tally) -> bool {
        self.connection.tally(tally.0)
    }

    /// Hands over what this rank reads in `epoch`.
    fn publish(&self, py: Python<'_>, epoch: u32, samples: Vec<u32>) -> PyResult<()> {
        let samples: Vec<_> = samples.into_iter().map(SampleId).collect();
        let client = self.client()?;
        py.detach(|| client.publish(Epoch(epoch), &samples, PUBLISH_TIMEOUT))
            .map_err(|error| errors::control(&error))
    }

    /// Says that the agent does not answer.
    fn note_silence(&self) {
        self.connection.note_silence();
    }

    /// Closes what a forked process inherited, without a message to the agent. Leased memory stays mapped.
    fn forget(&self) {
        self.connection.forget();
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<AgentConnection>()
}
