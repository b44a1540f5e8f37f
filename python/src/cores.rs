//! The processors that this process may use.

use std::{num::NonZeroUsize, thread};

use pyo3::prelude::*;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(cores, m)?)
}

/// The processors that this process may use at a time, by its affinity and by the quota of its cgroup.
#[pyfunction]
fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
