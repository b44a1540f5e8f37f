//! What this process did for its batches without the agent, for the agent's report.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::{intern, prelude::*};
use tierfeed_core::{id::Epoch, session, units::Nanoseconds};
use tierfeed_handoff::monotonic_now;

use crate::batch::Batch;

/// Figures that are sent to an agent at once if it takes them, else kept: one tally for each epoch.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Tallies(Mutex<tierfeed_client::Tallies>);

/// What is sent of an epoch.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Tally(pub(crate) session::Tally);

impl Tallies {
    fn lock(&self) -> MutexGuard<'_, tierfeed_client::Tallies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, agent: Option<&Bound<'_, PyAny>>, tally: session::Tally) {
        self.lock().add(tally);
        if let Some(agent) = agent {
            let due: Vec<_> = self.lock().take().collect();
            self.send(agent, due);
        }
    }

    /// Keeps figures that an agent does not take. Not under the lock: it calls Python.
    fn send(&self, agent: &Bound<'_, PyAny>, due: Vec<session::Tally>) {
        for tally in due {
            let taken = agent.call_method1(intern!(agent.py(), "tally"), (Tally(tally),));
            if !taken.and_then(|taken| taken.extract()).unwrap_or(false) {
                self.lock().add(tally);
            }
        }
    }
}

#[pymethods]
impl Tallies {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Counts a batch of an epoch that was read directly, until now. Training asked the agent for it at
    /// `asked_ns`, and read it from `answered_ns` on, as `time.monotonic_ns()` says.
    fn add_read(
        &self,
        agent: Option<&Bound<'_, PyAny>>,
        epoch: u32,
        batch: &Batch,
        asked_ns: u64,
        answered_ns: u64,
    ) {
        let (samples, skipped, nbytes) = batch.counts();
        let self_read = monotonic_now().0.saturating_sub(answered_ns);
        let tally = session::Tally {
            self_read_batches: 1,
            self_read_samples: samples,
            self_read_bytes: nbytes,
            skipped_samples: skipped,
            unanswered: Nanoseconds(answered_ns.saturating_sub(asked_ns)),
            self_read: Nanoseconds(self_read),
            ..session::Tally::empty(Epoch(epoch))
        };
        self.add(agent, tally);
    }

    /// Counts time for which training waited while samples were decoded.
    fn add_decoding(
        &self,
        agent: Option<&Bound<'_, PyAny>>,
        epoch: u32,
        decoding_ns: u64,
        decode_threads: u32,
    ) {
        let decoding = Nanoseconds(decoding_ns);
        let none = session::Tally::empty(Epoch(epoch));
        self.add(agent, session::Tally { decoding, decode_threads, ..none });
    }

    /// Sends a new agent what was read before it came.
    fn hand_over(&self, agent: &Bound<'_, PyAny>) {
        let due: Vec<_> = self.lock().take_for_new_agent().collect();
        self.send(agent, due);
    }

    /// In a forked child: the parent sends what the parent did.
    fn forget(&self) {
        drop(self.lock().take());
    }
}

#[pymethods]
impl Tally {
    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// The warning about an epoch of so many batches, of which this process read some directly; None if hardly any.
/// `why` is the reason for the last one of them, or empty.
#[pyfunction]
fn direct_reads_warning(epoch: u32, batches: u64, direct: u64, why: &str) -> Option<String> {
    tierfeed_client::direct_reads_warning(epoch, batches, direct, why)
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(direct_reads_warning, m)?)?;
    m.add_class::<Tallies>()?;
    m.add_class::<Tally>()
}
