//! Who this process is, by the table of launchers that all of tierfeed uses.

use std::{collections::BTreeMap, fs, path::PathBuf};

use pyo3::prelude::*;
use tierfeed_core::launch::{self, Identity, Misfit};
use tierfeed_workload_analyzer::Job;

use crate::errors;

/// The variables of an environment that say who a process is.
#[pyfunction]
fn launch_variables() -> Vec<&'static str> {
    launch::variables().collect()
}

/// The rank of this process in a job, where no agent says it; `launched` are its variables.
#[pyfunction]
fn rank_in_job(py: Python<'_>, job: PathBuf, launched: BTreeMap<String, String>) -> PyResult<u32> {
    py.detach(move || {
        let text = fs::read_to_string(&job).unwrap_or_default();
        let post = Job::load(&job).map_err(errors::reconfigure)?.post(&text, &job);
        let identity = Identity::read(&|name| launched.get(name).cloned()).map_err(Misfit::from);
        let rank = identity.and_then(|identity| identity.rank_in(&post));
        rank.map(|rank| rank.0).map_err(|misfit| errors::turned_away(&misfit.to_string()))
    })
}

/// Adds the functions to the module, and the name by which a program gives its rank itself.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("RANK_ARGUMENT", launch::RANK_ARGUMENT)?;
    m.add_function(wrap_pyfunction!(launch_variables, m)?)?;
    m.add_function(wrap_pyfunction!(rank_in_job, m)?)
}
