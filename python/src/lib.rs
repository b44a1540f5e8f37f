//! The native half of the Python package `tierfeed`: batches as Python objects, the agent's hand-off,
//! and the cold store when there is no agent.
//!
//! It reads no environment variable, starts no thread and no runtime, and releases the interpreter
//! around every wait. What to do when an agent refuses or dies is decided in `tierfeed/feed.py`.

#![deny(unsafe_code)]

mod chunk;
mod clock;
mod connection;
mod errors;
mod grant;
mod held;
mod link;

#[expect(unsafe_code, reason = "the buffer protocol and DLPack hand out raw addresses")]
mod view;

mod batch;
mod identity;
mod index;
mod local;
mod order;
mod ready;
mod sample;

use pyo3::prelude::*;

/// Everything native that `tierfeed` is made of. Import `tierfeed`, not this.
#[pymodule(gil_used = false)]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(m)?;
    identity::register(m)?;
    view::register(m)?;
    sample::register(m)?;
    batch::register(m)?;
    order::register(m)?;
    local::register(m)?;
    index::register(m)?;
    link::register(m)?;
    ready::register(m)?;
    grant::register(m)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
