//! How long a feed waits for its agent, and what follows when nothing came.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pyo3::prelude::*;
use tierfeed_client::{AfterSilence, Holding};

/// The patience of a feed with its agent.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Patience(Mutex<tierfeed_client::Patience>);

impl Patience {
    fn lock(&self) -> MutexGuard<'_, tierfeed_client::Patience> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Patience {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// How long to wait for an answer, by whether training holds as many batches as the agent stages, and
    /// whether answers for later ones wait to be taken.
    #[pyo3(signature = (*, holds_all=false, holds_later=false))]
    fn limit_s(&self, holds_all: bool, holds_later: bool) -> f64 {
        let limit = self.lock().limit(Holding { all: holds_all, later: holds_later });
        Duration::from_nanos(limit.0).as_secs_f64()
    }

    /// What follows when none has come in that time: `"give-back-later"`, `"read"` or `"ask"`.
    #[pyo3(signature = (*, holds_all, holds_later))]
    fn after(&self, holds_all: bool, holds_later: bool) -> &'static str {
        let holding = Holding { all: holds_all, later: holds_later };
        let mut patience = self.lock();
        let limit = patience.limit(holding);
        match patience.after(limit, holding) {
            AfterSilence::GiveBackLater => "give-back-later",
            AfterSilence::Read => "read",
            AfterSilence::Ask | AfterSilence::Wait => "ask",
        }
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Patience>()
}
