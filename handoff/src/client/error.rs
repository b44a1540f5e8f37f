//! Errors of the trainer's side.

use std::{io, path::PathBuf};

use tierfeed_core::id::LeaseId;
use tierfeed_numa_memory::MapError;

use crate::{message::Malformed, packet::ReceiveError, peer::ForeignUser};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this connection belongs to process {creator}; connect anew in process {current}")]
pub struct Forked {
    pub creator: u32,
    pub current: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent is gone: {reason}")]
pub struct Disconnected {
    /// The agent's last message, or what this side observed.
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    #[error("no agent listens at {}", .path.display())]
    NoAgent {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is too long for a socket address; at most 107 bytes are possible", .path.display())]
    PathTooLong { path: PathBuf },
    #[error(transparent)]
    ForeignUser(#[from] ForeignUser),
    #[error("the agent refused the connection: {reason}")]
    Refused { reason: String },
    /// The launcher's variables make the process none of the ranks of the job.
    #[error("{reason}")]
    TurnedAway {
        /// Which sources contradict each other, and what to change.
        reason: String,
    },
    #[error("the agent did not answer in time")]
    TimedOut,
    /// An unexpected message, usually because the version of the agent differs.
    #[error("the agent speaks another protocol")]
    Protocol,
    /// A message that cannot be parsed, usually because the version of the agent differs.
    #[error("the agent speaks another protocol")]
    Malformed(#[from] Malformed),
    #[error("cannot map the memory that the agent sent")]
    Map(#[from] MapError),
    #[error("cannot connect to the agent")]
    System(#[source] io::Error),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    #[error(transparent)]
    Forked(#[from] Forked),
    #[error("{window} batches are asked for or held, the most that the agent allows; release some")]
    TooMany { window: u32 },
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NextError {
    #[error(transparent)]
    Forked(#[from] Forked),
    #[error("no answer came in time")]
    TimedOut,
    /// No further answer will come.
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The parent process still holds the batch.
    #[error(transparent)]
    Forked(#[from] Forked),
    #[error("lease {} is not held", .lease.0)]
    NotHeld { lease: LeaseId },
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    #[error(transparent)]
    Forked(#[from] Forked),
    #[error(transparent)]
    Disconnected(#[from] Disconnected),
    #[error("the agent did not answer in time")]
    TimedOut,
    #[error("the agent refused: {reason}")]
    Denied { reason: String },
    #[error("an epoch of more than 4294967295 samples cannot be published")]
    TooManySamples,
    /// The memory was given back.
    #[error("cannot map the memory that the agent sent")]
    Map(#[from] MapError),
    #[error("cannot talk to the agent")]
    System(#[source] io::Error),
}

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
