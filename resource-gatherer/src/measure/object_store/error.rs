//! What can go wrong with a measurement of a bucket.

use std::io;

use tierfeed_core::units::Nanoseconds;
use tierfeed_object_stores::{Client, OpenError, RequestError};

/// The texts are URLs without query and credentials.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectStoreError {
    #[error("file:// is no object store; measure the directory as a storage tier instead")]
    Local,
    #[error(transparent)]
    Open(OpenError),
    #[error("{0} names no object; a web server cannot list any, so name one")]
    NoObject(String),
    #[error("cannot start a runtime: {0}")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Request(RequestError),
    #[error("no object that holds a byte lies under {0}; name a prefix with some, or allow writes")]
    Empty(String),
    #[error("{0} did not answer within {1}")]
    NoAnswer(String, Nanoseconds),
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
    pub(crate) fn is_wrong_input(&self) -> bool {
        match self {
            Self::Open(error) => !matches!(error, OpenError::Settings { .. }),
            error => matches!(error, Self::Local | Self::NoObject(_)),
        }
    }
}

/// An error before the place is known.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("nothing to read")]
    Empty,
    #[error(transparent)]
    Client(#[from] object_store::Error),
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
