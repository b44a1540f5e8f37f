//! Opens clients for object stores, and says what went wrong in words that give no secret away.
//!
//! 1. Nothing that came from the options, and no query of a URL, is ever printed: both may hold
//!    credentials. Texts of the client library are scrubbed.
//! 2. Every wait has an end ([`Patience`]).
//! 3. Credentials are never in a URL: they come from the environment, from the files of the provider's
//!    own tool ([`Environment`]), or from the metadata service of the machine.
//!
//! Deliberately absent: a runtime, and any idea of what is read.

#![forbid(unsafe_code)]

mod address;
mod bounded;
mod client;
mod environment;
mod error;
mod options;
mod profile;
mod range;
#[cfg(feature = "test-server")]
pub mod test_server;

pub use object_store;

pub use self::{
    address::{Address, Identity},
    client::{Client, OpenError, Patience},
    environment::Environment,
    error::{RequestError, scrubbed},
    options::Options,
    profile::ProfileError,
    range::{RangeBody, RangeError, Version, mtime_ns, open_range, read_range},
};
