//! The requests of one connection: each is here from the moment it is sent until its answer is handed out
//! or given back, and nowhere else.
//!
//! A request cannot be called back. One that is abandoned stays until its answer comes, which then goes
//! back at once.
//!
//! There are at most as many entries as the window of the connection allows
//! (`tierfeed_handoff::server::Limits`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use pyo3::prelude::*;

/// Epoch and step of a batch; a connection reads for one rank.
pub(crate) type EpochStep = (u32, u32);

/// The requests of a connection, by epoch and step.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Requests {
    table: Mutex<Table>,
}

/// Nothing may be dropped or created in Python while its lock is held: that can run other Python code, which
/// may come here.
#[derive(Default)]
pub(crate) struct Table {
    requests: BTreeMap<EpochStep, Request>,
}

enum Request {
    InFlight,
    /// In flight, and its answer is not wanted any more.
    Abandoned,
    /// A `Batch` or a `Refused` that was not taken yet.
    Answered(Py<PyAny>),
}

impl Table {
    pub(crate) fn is_in_flight(&self, place: EpochStep) -> bool {
        matches!(self.requests.get(&place), Some(Request::InFlight))
    }

    /// Whether the batch is in flight or answered, and wanted.
    pub(crate) fn is_requested(&self, place: EpochStep) -> bool {
        matches!(self.requests.get(&place), Some(Request::InFlight | Request::Answered(_)))
    }

    /// Where answers wait to be taken.
    pub(crate) fn answered(&self) -> impl Iterator<Item = EpochStep> {
        let found = self.requests.iter().filter(|(_, it)| matches!(it, Request::Answered(_)));
        found.map(|(place, _)| *place)
    }

    /// Whether there is a request in any state.
    pub(crate) fn is_known(&self, place: EpochStep) -> bool {
        self.requests.contains_key(&place)
    }

    pub(crate) fn insert(&mut self, place: EpochStep) {
        self.requests.entry(place).or_insert(Request::InFlight);
    }

    /// Ends a request in flight whose answer is handed out at once.
    pub(crate) fn remove_in_flight(&mut self, place: EpochStep) {
        if self.is_in_flight(place) {
            self.requests.remove(&place);
        }
    }

    /// Marks the request as wanted again; false if there is none.
    fn want(&mut self, place: EpochStep) -> bool {
        let request = self.requests.get_mut(&place);
        if let Some(request @ Request::Abandoned) = request {
            *request = Request::InFlight;
            return true;
        }
        request.is_some()
    }

    /// Returns the answer, to be dropped, if the request is not wanted.
    fn answer(&mut self, place: EpochStep, answer: Py<PyAny>) -> Option<Py<PyAny>> {
        match self.requests.get_mut(&place) {
            Some(request @ Request::InFlight) => {
                *request = Request::Answered(answer);
                None
            }
            Some(Request::Abandoned) => {
                self.requests.remove(&place);
                Some(answer)
            }
            Some(Request::Answered(_)) | None => Some(answer),
        }
    }

    fn take(&mut self, place: EpochStep) -> Option<Py<PyAny>> {
        match self.requests.remove(&place)? {
            Request::Answered(answer) => Some(answer),
            pending => {
                self.requests.insert(place, pending);
                None
            }
        }
    }

    /// Returns the answer, to be dropped, if it has come.
    fn abandon(&mut self, place: EpochStep) -> Option<Py<PyAny>> {
        let answer = self.take(place);
        if let Some(request) = self.requests.get_mut(&place) {
            *request = Request::Abandoned;
        }
        answer
    }

    fn places(&self, is_it: impl Fn(&Request) -> bool) -> BTreeSet<EpochStep> {
        let found = self.requests.iter().filter(|(_, request)| is_it(request));
        found.map(|(place, _)| *place).collect()
    }
}

impl Requests {
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
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
        places.into_iter().for_each(|place| table.insert(place));
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
        let wanted: BTreeSet<_> = places.into_iter().collect();
        let mut table = self.table();
        let others = &table.places(|_| true) - &wanted;
        let unwanted: Vec<_> =
            others.into_iter().filter_map(|place| table.abandon(place)).collect();
        drop(table);
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
        self.table().requests.len()
    }

    /// Where wanted requests have no answer yet.
    #[getter]
    fn in_flight(&self) -> BTreeSet<EpochStep> {
        self.table().places(|request| matches!(request, Request::InFlight))
    }

    /// Where answers wait to be taken.
    #[getter]
    fn answered(&self) -> BTreeSet<EpochStep> {
        self.table().answered().collect()
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Requests>()
}
