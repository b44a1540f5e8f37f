//! Errors of the trainer's side.

use std::{io, path::PathBuf};

use tierfeed_core::id::LeaseId;
use tierfeed_numa_memory::MapError;

use crate::{message::Malformed, packet::ReceiveError, peer::ForeignUser};

/// This process was forked from the one that owns the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this connection belongs to process {creator}; connect anew in process {current}")]
pub struct Forked {
    /// Process number of the owner of the connection.
    pub creator: u32,
    /// Process number of the caller.
    pub current: u32,
}

/// The agent has ended, or closed the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent is gone: {reason}")]
pub struct Disconnected {
    /// The agent's last message, or what this side observed.
    pub reason: String,
}

/// Why the client could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No agent listens at the path.
    #[error("no agent listens at {}", .path.display())]
    NoAgent {
        /// Path of the socket, as the caller gave it.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The path is longer than a socket address can hold.
    #[error("{} is too long for a socket address; at most 107 bytes are possible", .path.display())]
    PathTooLong {
        /// Path of the socket, as the caller gave it.
        path: PathBuf,
    },
    /// The process that listens there belongs to another user.
    #[error(transparent)]
    ForeignUser(#[from] ForeignUser),
    /// The agent did not admit this client.
    #[error("the agent refused the connection: {reason}")]
    Refused {
        /// The reason that the agent gave.
        reason: String,
    },
    /// The launcher's variables make the process none of the ranks of the job.
    #[error("{reason}")]
    TurnedAway {
        /// Which sources contradict each other, and what to change.
        reason: String,
    },
    /// The agent did not answer in time.
    #[error("the agent did not answer in time")]
    TimedOut,
    /// The agent sent an unexpected message, usually because its version differs.
    #[error("the agent speaks another protocol")]
    Protocol,
    /// The agent sent a message that cannot be parsed, usually because its version differs.
    #[error("the agent speaks another protocol")]
    Malformed(#[from] Malformed),
    /// The memory that the agent sent cannot be used.
    #[error("cannot map the memory that the agent sent")]
    Map(#[from] MapError),
    /// A system call failed.
    #[error("cannot connect to the agent")]
    System(#[source] io::Error),
}

/// Why a batch was not requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The process is not the one that connected.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The client must release batches first.
    #[error("{window} batches are asked for or held, the most that the agent allows; release some")]
    TooMany {
        /// Largest number of batches that are requested or leased at a time.
        window: u32,
    },
    /// The connection has ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    /// The process is not the one that connected.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// No answer came before the timeout.
    #[error("no answer came in time")]
    TimedOut,
    /// The connection has ended, and no further answer will come.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
}

/// Why a batch was not released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The process is not the one that connected; the parent still holds the batch.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// Each lease can be released once.
    #[error("lease {} is not held", .lease.0)]
    NotHeld {
        /// The lease that is not held.
        lease: LeaseId,
    },
}

/// Why a control call did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The process is not the one that connected.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The connection has ended.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    /// The agent did not answer in time.
    #[error("the agent did not answer in time")]
    TimedOut,
    /// The agent denied the request.
    #[error("the agent refused: {reason}")]
    Denied {
        /// The reason that the agent gave.
        reason: String,
    },
    /// An epoch has more samples than 32-bit sample numbers can count.
    #[error("an epoch of more than 4294967295 samples cannot be published")]
    TooManySamples,
    /// The memory that the agent sent cannot be used. It was given back.
    #[error("cannot map the memory that the agent sent")]
    Map(#[from] MapError),
    /// A system call failed.
    #[error("cannot talk to the agent")]
    System(#[source] io::Error),
}

/// Why no control message was received.
#[derive(Debug, thiserror::Error)]
pub(super) enum MessageError {
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

impl From<MessageError> for ControlError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::TimedOut => Self::TimedOut,
            MessageError::Disconnected(disconnected) => Self::Disconnected(disconnected),
            MessageError::TurnedAway { .. }
            | MessageError::Receive(_)
            | MessageError::Malformed(_) => {
                Self::Disconnected(Disconnected { reason: error.to_string() })
            }
        }
    }
}

impl From<MessageError> for ConnectError {
    fn from(error: MessageError) -> Self {
        match error {
            MessageError::TimedOut => Self::TimedOut,
            MessageError::Disconnected(Disconnected { reason }) => Self::Refused { reason },
            MessageError::TurnedAway { reason } => Self::TurnedAway { reason },
            MessageError::Receive(_) => Self::Protocol,
            MessageError::Malformed(malformed) => Self::Malformed(malformed),
        }
    }
}
