//! Opens clients for object stores, and reports errors without secrets.
//!
//! 1. No value of the options, and no query of a URL, is ever printed: both may hold credentials.
//!    Texts of the client library are stripped of them.
//! 2. Every wait is limited ([`Patience`]).
//! 3. Credentials are never in a URL: they come from the environment, from the files of the provider's
//!    own tool ([`Environment`]), or from the metadata service of the machine.
//!
//! Deliberately absent: an async runtime, and any knowledge of what is read.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod bounded;
mod client;
mod environment;
mod error;
mod keys;
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
