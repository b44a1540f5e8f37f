//! What can go wrong on the trainer's side.

use std::{io, path::PathBuf};

use tierfeed_core::id::LeaseId;
use tierfeed_numa_memory::MapError;

use crate::{message::Malformed, packet::ReceiveError, peer::Stranger};

/// The connection belongs to another process: this one was forked from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this connection belongs to process {creator}; connect anew in process {current}")]
pub struct Forked {
    /// Who connected.
    pub creator: u32,
    /// Who calls.
    pub current: u32,
}

/// The agent is gone, or let this client go.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent is gone: {reason}")]
pub struct Disconnected {
    /// What it said last, or what was seen.
    pub reason: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens at the path.
    #[error("no agent listens at {}", .path.display())]
    NoAgent {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Socket addresses are short.
    #[error("{} is too long for a socket address; at most 107 bytes are possible", .path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// Whoever listens there is not ours.
    #[error(transparent)]
    Stranger(#[from] Stranger),
    /// The agent did not let this client in.
    #[error("the agent refused the connection: {reason}")]
    Refused {
        /// Its words.
        reason: String,
    },
    /// The process is none of the ranks of the job, as its launcher started it.
    #[error("{reason}")]
    TurnedAway {
        /// Which sources contradict each other, and what to change.
        reason: String,
    },
    /// The agent did not answer in time.
    #[error("the agent did not answer in time")]
    TimedOut,
    /// The agent said something that makes no sense here; its version differs, most likely.
    #[error("the agent speaks another protocol")]
    Protocol,
    /// As before, and the message could not even be read.
    #[error("the agent speaks another protocol")]
    Malformed(#[from] Malformed),
    /// The memory that the agent sent cannot be used.
    #[error("cannot map the memory that the agent sent")]
    Map(#[from] MapError),
    /// A system call failed.
    #[error("cannot connect to the agent")]
    System(#[source] io::Error),
}

/// Why a request was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// See [`Forked`].
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Release batches first.
    #[error("{window} batches are asked for or held, the most that the agent allows; release some")]
    TooMany {
        /// The limit.
        window: u32,
    },
    /// See [`Disconnected`].
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    /// See [`Forked`].
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Nothing came within the limit.
    #[error("no answer came in time")]
    TimedOut,
    /// See [`Disconnected`]. Nothing more will come.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
}

/// Why a batch was not given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// See [`Forked`]. The parent still holds the batch.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Each lease goes back once.
    #[error("lease {} is not held", .lease.0)]
    NotHeld {
        /// The lease.
        lease: LeaseId,
    },
}

/// Why a control call did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// See [`Forked`].
    #[error(transparent)]
    Forked(#[from] Forked),
    /// See [`Disconnected`].
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The agent did not answer in time.
    #[error("the agent did not answer in time")]
    TimedOut,
    /// The agent said no.
    #[error("the agent refused: {reason}")]
    Denied {
        /// Its words.
        reason: String,
    },
    /// Sample numbers have 32 bits.
    #[error("an epoch of more than 4294967295 samples cannot be published")]
    TooManySamples,
    /// The memory that the agent sent cannot be used. It was given back.
    #[error("cannot map the memory that the agent sent")]
    Map(#[from] MapError),
    /// A system call failed.
    #[error("cannot talk to the agent")]
    System(#[source] io::Error),
}

/// Why nothing was heard.
#[derive(Debug, thiserror::Error)]
pub(super) enum HearError {
    #[error("no message came in time")]
    TimedOut,
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    #[error("{reason}")]
    TurnedAway { reason: String },
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl From<HearError> for ControlError {
    fn from(error: HearError) -> Self {
        match error {
            HearError::TimedOut => Self::TimedOut,
            HearError::Disconnected(disconnected) => Self::Disconnected(disconnected),
            HearError::TurnedAway { .. } | HearError::Receive(_) | HearError::Malformed(_) => {
                Self::Disconnected(Disconnected { reason: error.to_string() })
            }
        }
    }
}

impl From<HearError> for ConnectError {
    fn from(error: HearError) -> Self {
        match error {
            HearError::TimedOut => Self::TimedOut,
            HearError::Disconnected(Disconnected { reason }) => Self::Refused { reason },
            HearError::TurnedAway { reason } => Self::TurnedAway { reason },
            HearError::Receive(_) => Self::Protocol,
            HearError::Malformed(malformed) => Self::Malformed(malformed),
        }
    }
}
