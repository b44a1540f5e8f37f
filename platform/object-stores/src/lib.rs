//! Opens clients for object stores, and reports errors without secrets.
//!
//! 1. No value of the options, and no query of a URL, is ever printed: both may hold credentials.
//!    Texts of the client library are stripped of them.
//! 2. Every wait is limited ([`Patience`]).
//! 3. Credentials are never in a URL: they come from the environment, from the files of the provider's
//!    own tool ([`Environment`]), or from the metadata service of the machine.
//!
//! Without the feature `client` there is only the [`Address`] of a bucket, for processes that have no network client.
//!
//! Deliberately absent: an async runtime, and any knowledge of what is read.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
#[cfg(feature = "client")]
mod bounded;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod environment;
#[cfg(feature = "client")]
mod error;
#[cfg(feature = "client")]
mod keys;
#[cfg(feature = "client")]
mod options;
#[cfg(feature = "client")]
mod profile;
#[cfg(feature = "client")]
mod range;
#[cfg(feature = "test-server")]
pub mod test_server;

#[cfg(feature = "client")]
pub use object_store;

pub use self::address::{Access, Address, Identity};
#[cfg(feature = "client")]
pub use self::{
    client::{Client, OpenError, Patience},
    environment::Environment,
    error::{RequestError, RequestFault, scrubbed},
    options::Options,
    profile::ProfileError,
    range::{RangeBody, RangeError, Version, mtime_ns, open_range, read_range},
};
