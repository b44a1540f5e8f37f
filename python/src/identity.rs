//! The identity of this process, by the table of launchers that all of tierfeed uses.

use pyo3::prelude::*;
use tierfeed_core::fleet::launch;

/// The environment variables of launchers, which give a process its rank.
#[pyfunction]
fn launch_variables() -> Vec<&'static str> {
    launch::variables().collect()
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("RANK_ARGUMENT", launch::RANK_ARGUMENT)?;
    m.add_function(wrap_pyfunction!(launch_variables, m)?)
}
