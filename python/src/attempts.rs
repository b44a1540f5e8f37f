//! The attempts of a process to connect to one agent.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pyo3::prelude::*;
use tierfeed_core::units::Nanoseconds;

/// The attempts to connect to one agent. Times are in seconds of a monotonic clock.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Attempts(Mutex<tierfeed_client::Attempts>);

impl Attempts {
    fn lock(&self) -> MutexGuard<'_, tierfeed_client::Attempts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Attempts {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(tierfeed_client::Attempts::NONE))
    }

    /// How long the next attempt may take.
    #[getter]
    fn within_s(&self) -> f64 {
        self.lock().within().as_secs_f64()
    }

    /// Whether it is time for an attempt.
    fn is_due(&self, now_s: f64) -> bool {
        self.lock().due(nanoseconds(now_s)).is_some()
    }

    /// An attempt failed after so long.
    fn failed(&self, now_s: f64, took_s: f64) {
        self.lock().failed(nanoseconds(now_s - took_s), nanoseconds(now_s));
    }

    /// The agent does not answer.
    fn silent(&self) {
        self.lock().silent();
    }

    /// There is an agent again.
    fn succeeded(&self) {
        *self.lock() = tierfeed_client::Attempts::NONE;
    }
}

fn nanoseconds(seconds: f64) -> Nanoseconds {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Attempts>()
}
