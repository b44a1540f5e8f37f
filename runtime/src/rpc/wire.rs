//! Converts between the core's types and the messages of manager and agents: the only module that knows the
//! wire types.
//!
//! It validates all input from the network: names, ranges of numbers, required fields. The core gets its own
//! types or an error.

mod available;
mod messages;
mod observed;
mod peers;
mod schedule;
mod status;
mod training;

/// The generated messages, client and server of `proto/manager.proto`.
#[expect(
    unreachable_pub,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "tonic-prost-build writes this code"
)]
pub(crate) mod pb {
    tonic::include_proto!("tierfeed");
}

use tierfeed_core::fleet::{Denial, Refusal};
use tonic::{Code, Status};

pub(crate) use messages::{assignment, from_direction, from_reply};
pub use peers::PeersAnswer;
pub(crate) use peers::{from_peers_reply, peers_reply};
pub(crate) use status::status_reply;
pub use training::Told;
pub(crate) use training::{stage, training_reply};

/// An invalid message: no tierfeed of this version sends it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A message lacks a required field.
    #[error("{field} is missing; manager and agent must have the same version")]
    Missing {
        /// The name of the field.
        field: &'static str,
    },
    /// A field has a value that does not exist.
    #[error("{field} is {value}; manager and agent must have the same version")]
    Unknown {
        /// The name of the field.
        field: &'static str,
        /// The value of the field.
        value: String,
    },
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

/// What the caller can do about a failed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again: the manager is not reachable now.
    Retry,
    /// Start with other settings.
    Reconfigure,
    /// Stop: the job is over.
    Gone,
    /// A bug: the user can do nothing.
    Bug,
}

/// The remedy of `status`.
#[must_use]
pub fn remedy(status: &Status) -> Remedy {
    match status.code() {
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => {
            Remedy::Retry
        }
        Code::InvalidArgument
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::Unimplemented => Remedy::Reconfigure,
        Code::FailedPrecondition => Remedy::Gone,
        _ => Remedy::Bug,
    }
}

pub(crate) fn refused(refusal: Refusal) -> Status {
    let message = refusal.to_string();
    match refusal {
        Refusal::DuplicateNode { .. } => Status::already_exists(message),
        Refusal::Draining => Status::failed_precondition(message),
        _ => Status::invalid_argument(message),
    }
}

pub(crate) fn denied(denial: Denial) -> Status {
    match denial {
        Denial::TooFew { .. } => Status::resource_exhausted(denial.to_string()),
        _ => Status::failed_precondition(denial.to_string()),
    }
}

#[cfg(test)]
mod tests;
