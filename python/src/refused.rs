//! A refusal of the agent, for Python.

use pyo3::prelude::*;
use tierfeed_client::final_sample;
use tierfeed_core::{
    id::SampleId,
    session::{Fault, Refusal},
};
use tierfeed_handoff::Explained;

/// The agent's answer to a request that it does not fulfil.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Refused(pub(crate) Refusal);

impl Refused {
    fn bad_sample(&self) -> Option<(SampleId, Fault)> {
        match self.0 {
            Refusal::Unreadable(sample, fault) | Refusal::TooManySkipped { sample, fault, .. } => {
                Some((sample, fault))
            }
            _ => None,
        }
    }
}

#[pymethods]
impl Refused {
    /// The kind of refusal. Reading directly helps against `"no-room"`, `"no-worker"`,
    /// `"too-large"`, `"too-many-jumps"` and `"already-taken"`, not against `"unreadable"`, `"too-many-skipped"`,
    /// `"not-published"` and `"not-in-order"`.
    #[getter]
    fn reason(&self) -> &'static str {
        match self.0 {
            Refusal::Unreadable(..) => "unreadable",
            Refusal::TooManySkipped { .. } => "too-many-skipped",
            Refusal::NotPublished => "not-published",
            Refusal::NotInOrder => "not-in-order",
            Refusal::TooLarge { .. } => "too-large",
            Refusal::AlreadyTaken => "already-taken",
            Refusal::NoRoom => "no-room",
            Refusal::TooManyJumps => "too-many-jumps",
            Refusal::NoWorker => "no-worker",
        }
    }

    /// The sample that could not be read, or is one too many of those.
    #[getter]
    fn sample(&self) -> Option<u32> {
        self.bad_sample().map(|(sample, _)| sample.0)
    }

    /// Why that sample could not be read.
    #[getter]
    fn fault(&self) -> Option<&'static str> {
        self.bad_sample().map(|(_, fault)| fault.name())
    }

    /// The sample that training does not read itself if the agent says why it failed.
    #[getter]
    fn final_sample(&self) -> Option<u32> {
        final_sample(self.0).map(|(sample, _)| sample.0)
    }

    /// The refusal in a sentence.
    fn __str__(&self) -> String {
        Explained(self.0).to_string()
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Refused>()
}
