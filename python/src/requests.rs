//! The requests of one connection, for Python.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pyo3::prelude::*;
use tierfeed_client::EpochStep;

/// An answer is a `Batch` or a `Refused`.
pub(crate) type Table = tierfeed_client::Requests<EpochStep, Py<PyAny>>;

/// The requests of a connection, by epoch and step.
///
/// Nothing may be dropped or created in Python while the lock of the table is held: that can run other Python
/// code, which may come here.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Requests {
    table: Mutex<Table>,
}

impl Requests {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wanted(&self, has_answer: bool) -> BTreeSet<EpochStep> {
        let table = self.table();
        let found = table.wanted().filter(|(_, is_answered)| *is_answered == has_answer);
        found.map(|(place, _)| place).collect()
    }
}

#[pymethods]
impl Requests {
    #[new]
    pub(crate) fn new() -> Self {
        Self { table: Mutex::default() }
    }

    /// Those of `places` that must be sent, in the same order; the others are wanted from now on.
    pub(crate) fn missing(&self, places: Vec<EpochStep>) -> Vec<EpochStep> {
        let mut table = self.table();
        places.into_iter().filter(|place| !table.want(*place)).collect()
    }

    /// Notes requests that were sent.
    pub(crate) fn sent(&self, places: Vec<EpochStep>) {
        let mut table = self.table();
        places.into_iter().for_each(|place| table.sent(place));
    }

    /// Notes the answer for `place`. That of an abandoned request, and one without a request, goes back at
    /// once.
    pub(crate) fn answer(&self, place: EpochStep, answer: Py<PyAny>) {
        let unwanted = self.table().answer(place, answer);
        drop(unwanted);
    }

    /// Hands out the answer for `place`; None if it has not come.
    fn take(&self, place: EpochStep) -> Option<Py<PyAny>> {
        self.table().take(place)
    }

    /// Gives up the request for `place`: its answer goes back, now or when it comes.
    fn abandon(&self, place: EpochStep) {
        let unwanted = self.table().abandon(place);
        drop(unwanted);
    }

    /// Gives up all requests but those for `places`.
    fn keep_only(&self, places: Vec<EpochStep>) {
        let unwanted = self.table().keep_only(places);
        drop(unwanted);
    }

    /// Whether `place` was sent, is wanted, and has no answer.
    fn is_in_flight(&self, place: EpochStep) -> bool {
        self.table().is_in_flight(place)
    }

    /// Whether the batch at `place` is wanted, and in flight or answered.
    fn __contains__(&self, place: EpochStep) -> bool {
        self.table().is_requested(place)
    }

    /// Requests of all states.
    fn __len__(&self) -> usize {
        self.table().len()
    }

    /// Where wanted requests have no answer yet.
    #[getter]
    fn in_flight(&self) -> BTreeSet<EpochStep> {
        self.wanted(false)
    }

    /// Where answers wait to be taken.
    #[getter]
    fn answered(&self) -> BTreeSet<EpochStep> {
        self.wanted(true)
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Requests>()
}
