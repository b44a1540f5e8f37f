//! Iteration as most steps see it: the next batch is there, and is handed over without a line of Python.
//!
//! Training runs between two steps and leaves no cache as it was; an interpreter that warms up again costs
//! more than the hand-off itself. What takes more than a look into the ring is for the subclass.

use pyo3::{prelude::*, types::PyTuple};

use crate::{batch::Batch, link::Link};

/// The base of `tierfeed.Batches`, which has the method `take` for a batch that is not ready.
#[pyclass(subclass, module = "tierfeed._native")]
pub(crate) struct ReadyBatches {
    /// The place of the next batch.
    place: (u32, u32),
    /// Where it comes from, and the steps of its epoch; `None` if `take` has to look.
    source: Option<(Py<Link>, u32)>,
}

impl ReadyBatches {
    fn take_ready(&mut self) -> Option<Batch> {
        let (link, steps) = self.source.as_ref()?;
        let (epoch, step) = self.place;
        let is_last = step + 1 >= *steps;
        let following = if is_last { (epoch + 1, 0) } else { (epoch, step + 1) };
        let batch = link.get().take_ready(self.place, following, *steps)?;
        self.place = following;
        if is_last {
            self.source = None;
        }
        Some(batch)
    }
}

#[pymethods]
impl ReadyBatches {
    #[new]
    #[pyo3(signature = (*_args))]
    fn new(_args: &Bound<'_, PyTuple>) -> Self {
        Self { place: (0, 0), source: None }
    }

    /// Epoch and step of the next batch.
    #[getter]
    fn place(&self) -> (u32, u32) {
        self.place
    }

    /// The next batch is the one at `place`; if `link` is the agent's, it may be taken out of the ring, and
    /// so may those after it, up to the last of `steps`.
    fn go_on(&mut self, place: (u32, u32), steps: u32, link: Option<&Bound<'_, PyAny>>) {
        let link = link.and_then(|link| link.cast::<Link>().ok());
        self.place = place;
        self.source = link.map(|link| (link.clone().unbind(), steps));
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let ready = slf.borrow_mut().take_ready();
        match ready {
            Some(batch) => Ok(Py::new(slf.py(), batch)?.into_any()),
            None => slf.call_method0("take").map(Bound::unbind),
        }
    }
}

/// Adds the class to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ReadyBatches>()
}
