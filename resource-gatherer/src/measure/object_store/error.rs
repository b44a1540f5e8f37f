//! What can go wrong with a measurement of a bucket.

use std::io;

use tierfeed_core::units::Nanoseconds;
use tierfeed_object_stores::{Client, OpenError, RequestError};

/// Why there are no figures of a bucket.
///
/// `place` is the URL without query and credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectStoreError {
    /// The URL names a directory.
    #[error("file:// is no object store; measure the directory as a storage tier instead")]
    Local,
    /// There is no client for the URL and the options.
    #[error(transparent)]
    Open(OpenError),
    /// A web server cannot be asked what it has.
    #[error("{place} names no object; a web server cannot list any, so name one")]
    NoObject {
        /// The URL.
        place: String,
    },
    /// No runtime could be started.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[source] io::Error),
    /// A request failed.
    #[error(transparent)]
    Request(RequestError),
    /// There is nothing to read.
    #[error(
        "no object that holds a byte lies under {place}; name a prefix with some, or allow writes"
    )]
    Empty {
        /// The bucket and the prefix.
        place: String,
    },
    /// It takes too long.
    #[error("{place} did not answer within {patience}")]
    NoAnswer {
        /// The bucket.
        place: String,
        /// How long it was waited for.
        patience: Nanoseconds,
    },
    /// A request ended without an answer of its own.
    #[error("{place} failed: {detail}")]
    Lost {
        /// The bucket.
        place: String,
        /// What was said.
        detail: String,
    },
}

impl From<OpenError> for ObjectStoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Local => Self::Local,
            error => Self::Open(error),
        }
    }
}

/// What went wrong, before the place is known.
#[derive(Debug)]
pub(super) enum Failure {
    Empty,
    Client(object_store::Error),
    /// A request of a measurement ended without an answer of its own.
    Task(tokio::task::JoinError),
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Self::Client(error)
    }
}

impl From<tokio::task::JoinError> for Failure {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Task(error)
    }
}

impl Failure {
    pub(super) fn explain(self, client: &Client) -> ObjectStoreError {
        match self {
            Self::Empty => ObjectStoreError::Empty { place: client.place() },
            Self::Task(error) => {
                let detail = client.scrubbed(&error);
                ObjectStoreError::Lost { place: client.place(), detail }
            }
            Self::Client(error) => ObjectStoreError::Request(client.explain(&error)),
        }
    }
}
