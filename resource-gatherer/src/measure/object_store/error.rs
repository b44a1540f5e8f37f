//! What can go wrong with a measurement of a bucket.

use std::io;

use tierfeed_core::units::Nanoseconds;
use tierfeed_object_stores::{Client, OpenError, RequestError};

/// Why there are no figures of a bucket; the texts are URLs without query and credentials.
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
    #[error("{0} names no object; a web server cannot list any, so name one")]
    NoObject(String),
    /// No runtime could be started.
    #[error("cannot start a runtime: {0}")]
    Runtime(#[source] io::Error),
    /// A request to the store failed.
    #[error(transparent)]
    Request(RequestError),
    /// There is nothing to read.
    #[error("no object that holds a byte lies under {0}; name a prefix with some, or allow writes")]
    Empty(String),
    /// It takes longer than this.
    #[error("{0} did not answer within {1}")]
    NoAnswer(String, Nanoseconds),
    /// A request ended without an answer of its own, with what was said.
    #[error("{0} failed: {1}")]
    Lost(String, String),
}

impl From<OpenError> for ObjectStoreError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Local => Self::Local,
            error => Self::Open(error),
        }
    }
}

impl ObjectStoreError {
    /// Whether the URL names no bucket at all.
    pub(crate) fn is_wrong_input(&self) -> bool {
        match self {
            Self::Open(error) => !matches!(error, OpenError::Settings { .. }),
            error => matches!(error, Self::Local | Self::NoObject(_)),
        }
    }
}

/// What went wrong, before the place is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("nothing to read")]
    Empty,
    #[error(transparent)]
    Client(#[from] object_store::Error),
    /// A request of a measurement ended without an answer of its own.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

impl Failure {
    pub(super) fn explain(self, client: &Client) -> ObjectStoreError {
        match self {
            Self::Empty => ObjectStoreError::Empty(client.place()),
            Self::Task(error) => ObjectStoreError::Lost(client.place(), client.scrubbed(&error)),
            Self::Client(error) => ObjectStoreError::Request(client.explain(&error)),
        }
    }
}
