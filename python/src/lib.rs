//! The native half of the Python package `tierfeed`: batches as Python objects, the agent's hand-off,
//! and the cold store when there is no agent.
//!
//! It reads no environment variable, starts no thread and no runtime, and releases the interpreter
//! around every wait. What a feed does when an agent refuses or dies stands in `tierfeed/feed.py`, by the rules
//! of `tierfeed_client`.
//!
//! A ready batch goes `batches`, `agent`, hand-off, and back. Requests have one owner, `requests`.

#![deny(unsafe_code)]

mod clock;
mod errors;
mod grant;

#[expect(unsafe_code, reason = "the buffer protocol and DLPack hand out raw addresses")]
mod view;

mod agent;
mod batch;
mod batches;
mod cold_reader;
mod cores;
mod identity;
mod index;
mod order;
mod patience;
mod refused;
mod requests;
mod sample;
mod tallies;
mod transform;

use pyo3::prelude::*;

/// The native classes of `tierfeed`. Import `tierfeed`, not this.
#[pymodule(gil_used = false)]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(m)?;
    cores::register(m)?;
    identity::register(m)?;
    view::register(m)?;
    sample::register(m)?;
    batch::register(m)?;
    order::register(m)?;
    cold_reader::register(m)?;
    index::register(m)?;
    requests::register(m)?;
    refused::register(m)?;
    tallies::register(m)?;
    agent::register(m)?;
    patience::register(m)?;
    batches::register(m)?;
    grant::register(m)?;
    transform::register(m)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
