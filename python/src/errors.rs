//! The exceptions of the package, and which failure becomes which of them.
//!
//! Coarse on purpose: a caller can wait and try again ([`Retry`]), change its job or its call
//! ([`Reconfigure`]), go on without the agent ([`Gone`]), or report it ([`Bug`]). A sample that cannot
//! be read ([`SampleError`]) names its object and carries it as an attribute.

use std::{error, ffi::CString, fmt::Display, io};

use pyo3::{
    create_exception,
    exceptions::{PyException, PyIndexError, PyMemoryError, PyRuntimeWarning},
    prelude::*,
};
use tierfeed_client::{NoConnection, reader::ReaderError};
use tierfeed_core::{
    id::{BatchId, SampleId},
    units::Bytes,
};
use tierfeed_handoff::{ConnectError, ControlError};

create_exception!(tierfeed, Error, PyException, "The base of all errors of tierfeed.");
create_exception!(tierfeed, Gone, Error, "The agent is not there, or not there any more.");
create_exception!(tierfeed, Retry, Error, "It failed for now: the same call may succeed later.");
create_exception!(
    tierfeed,
    Reconfigure,
    Error,
    "The job, the dataset or the call is wrong; the message says what would be right."
);
create_exception!(
    tierfeed,
    TurnedAway,
    Reconfigure,
    "This process is none of the ranks of the job."
);
create_exception!(tierfeed, Bug, Error, "tierfeed contradicts itself. Please report it.");
create_exception!(
    tierfeed,
    SampleError,
    Error,
    "A sample cannot be read. Attributes: sample (its number), object (its path), reason, and errno, \
     the number of the error of the operating system, or None."
);

/// A batch whose table points outside its memory.
pub(crate) fn outside(batch: BatchId, sample: u32) -> PyErr {
    Bug::new_err(format!(
        "sample {sample} lies outside the memory of its batch (epoch {}, step {}, rank {})",
        batch.epoch.0, batch.step.0, batch.rank.0
    ))
}

/// A sample that could not be read; `reason` is a name as in reports, `message` a sentence.
pub(crate) fn unreadable(
    py: Python<'_>,
    sample: u32,
    object: &str,
    reason: &str,
    errno: Option<i32>,
    message: String,
) -> PyErr {
    let error = SampleError::new_err(message);
    let value = error.value(py);
    let set = value
        .setattr("sample", sample)
        .and_then(|()| value.setattr("object", object))
        .and_then(|()| value.setattr("reason", reason))
        .and_then(|()| value.setattr("errno", errno));
    // If an attribute cannot be set, that error is returned instead.
    set.err().unwrap_or(error)
}

/// Says that reads wait for their store, and returns what a filter of warnings raises.
pub(crate) fn warn_of_outage(why: &str) -> PyResult<()> {
    let message = format!("tierfeed: {why}; training waits for the store, which is asked again");
    let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
    Python::attach(|py| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1))
}

/// A job file, index or briefing that cannot be used.
pub(crate) fn reconfigure(error: impl error::Error) -> PyErr {
    Reconfigure::new_err(with_causes(&error))
}

pub(crate) fn no_reader(error: &ReaderError) -> PyErr {
    let message = with_causes(error);
    if error.is_of_setup() { Reconfigure::new_err(message) } else { Retry::new_err(message) }
}

pub(crate) fn no_sample(sample: impl Display, samples: u32) -> PyErr {
    PyIndexError::new_err(format!("sample {sample}; the dataset has {samples}, from 0"))
}

pub(crate) fn no_memory(len: Bytes, error: &io::Error) -> PyErr {
    PyMemoryError::new_err(format!("cannot map {len} for a batch: {error}"))
}

/// A sample that is longer than an object of Python can be.
pub(crate) fn too_long(sample: SampleId, len: Bytes) -> PyErr {
    PyMemoryError::new_err(format!("sample {} is {len} long", sample.0))
}

/// A dataset that this process cannot read, as reading it takes a runtime.
pub(crate) fn in_a_bucket(source: &str) -> PyErr {
    Reconfigure::new_err(format!(
        "{source} is a bucket, which the agent reads and this process does not; read it by \
         `tierfeed run`, or index a copy on a file system"
    ))
}

pub(crate) fn no_connection(error: &NoConnection) -> PyErr {
    match error {
        NoConnection::Agent(error) => connect(error),
        NoConnection::Dataset(error) => reconfigure(error),
        _ => gone(error),
    }
}

/// No connection. The caller can read without the agent, unless it is none of the ranks of the job.
pub(crate) fn connect(error: &ConnectError) -> PyErr {
    match error {
        ConnectError::TurnedAway { reason } => turned_away(reason),
        _ => Gone::new_err(with_causes(error)),
    }
}

pub(crate) fn turned_away(reason: &str) -> PyErr {
    TurnedAway::new_err(reason.to_owned())
}

/// The agent is gone, or the connection is that of another process.
pub(crate) fn gone(error: &dyn error::Error) -> PyErr {
    Gone::new_err(with_causes(error))
}

/// The agent refused or failed a request that is not for a batch.
pub(crate) fn control(error: &ControlError) -> PyErr {
    let message = with_causes(error);
    match error {
        ControlError::Forked(_) | ControlError::Disconnected(_) => Gone::new_err(message),
        ControlError::TooManySamples => Reconfigure::new_err(message),
        _ => Retry::new_err(message),
    }
}

/// A view of a whole chunk was refused: a contradiction in this crate.
pub(crate) fn chunk_outside() -> PyErr {
    Bug::new_err("a chunk of memory does not fit in its own bounds")
}

/// The messages of an error and of its sources, without repetition.
fn with_causes(error: &dyn error::Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !message.ends_with(&said) {
            message.push_str(": ");
            message.push_str(&said);
        }
        cause = error.source();
    }
    message
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("Error", py.get_type::<Error>())?;
    m.add("Gone", py.get_type::<Gone>())?;
    m.add("Retry", py.get_type::<Retry>())?;
    m.add("Reconfigure", py.get_type::<Reconfigure>())?;
    m.add("TurnedAway", py.get_type::<TurnedAway>())?;
    m.add("Bug", py.get_type::<Bug>())?;
    m.add("SampleError", py.get_type::<SampleError>())
}
