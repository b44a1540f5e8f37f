//! Who this process is, by the table of launchers that all of tierfeed uses.

use pyo3::prelude::*;
use tierfeed_core::fleet::launch;

/// The variables of an environment that say who a process is.
#[pyfunction]
fn launch_variables() -> Vec<&'static str> {
    launch::variables().collect()
}

/// Adds the functions to the module, and the name by which a program gives its rank itself.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("RANK_ARGUMENT", launch::RANK_ARGUMENT)?;
    m.add_function(wrap_pyfunction!(launch_variables, m)?)
}
