//! Iteration over batches: a batch that is ready is handed out without calling Python; any other takes the
//! slow path, `wait_or_read` of `tierfeed/feed.py`.
//!
//! Training evicts the caches of the processor between two steps, and loading the lines that the interpreter
//! touches costs more than the hand-off itself.

use pyo3::{intern, prelude::*, types::PyTuple};
use tierfeed_client::{EpochStep, following};

use crate::{agent::AgentConnection, batch::Batch};

/// The base of `tierfeed.Batches`, which has the method `wait_or_read` for a batch that is not ready.
///
/// That method gets the place of the batch, and returns the batch, the place of the next one, the number of
/// steps of its epoch, and the connection that further ready batches of this epoch may be taken from, or
/// `None`.
#[pyclass(subclass, module = "tierfeed._native")]
pub(crate) struct BatchIterator {
    /// Epoch and step of the next batch.
    place: EpochStep,
    /// Where ready batches of the epoch come from; `None` before the slow path has begun the epoch.
    source: Option<Source>,
    is_ended: bool,
}

struct Source {
    agent: Py<AgentConnection>,
    steps: u32,
}

impl BatchIterator {
    /// A new epoch begins on the slow path.
    fn advance(&mut self, following: EpochStep) {
        if following.0 != self.place.0 {
            self.source = None;
        }
        self.place = following;
    }
}

#[pymethods]
impl BatchIterator {
    #[new]
    #[pyo3(signature = (*_args))]
    fn new(_args: &Bound<'_, PyTuple>) -> Self {
        Self { place: (0, 0), source: None, is_ended: false }
    }

    /// Epoch and step of the next batch.
    #[getter]
    fn place(&self) -> EpochStep {
        self.place
    }

    /// Goes on at another place, on the slow path.
    #[setter]
    fn set_place(&mut self, place: EpochStep) {
        self.place = place;
        self.source = None;
    }

    /// Whether another iteration of the feed began.
    #[getter]
    fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Ends this iteration because another one of the feed begins: it hands out no further batch.
    fn end(&mut self) {
        self.is_ended = true;
        self.source = None;
    }

    /// The next batch if it is in the ring and can be used as it is; None in any other case.
    fn take_ready(slf: &Bound<'_, Self>) -> PyResult<Option<Batch>> {
        // Not borrowed while the agent's answer is looked at: that may run other Python code.
        let (place, following, agent, steps) = {
            let this = slf.borrow();
            let Some(Source { agent, steps }) = &this.source else { return Ok(None) };
            (this.place, following(this.place, *steps), agent.clone_ref(slf.py()), *steps)
        };
        let batch = agent.get().take_ready(slf.py(), place, following, steps)?;
        if batch.is_some() {
            slf.borrow_mut().advance(following);
        }
        Ok(batch)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        if let Some(batch) = Self::take_ready(slf)? {
            return Ok(Py::new(py, batch)?.into_any());
        }
        let place = slf.borrow().place;
        let turn = slf.call_method1(intern!(py, "wait_or_read"), (place,))?;
        let (batch, following, steps, agent): (_, EpochStep, u32, Bound<'_, PyAny>) =
            turn.extract()?;
        let mut this = slf.borrow_mut();
        if !this.is_ended {
            let agent = agent.cast_into::<AgentConnection>().ok();
            this.source = agent.map(|agent| Source { agent: agent.unbind(), steps });
        }
        this.advance(following);
        Ok(batch)
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<BatchIterator>()
}
