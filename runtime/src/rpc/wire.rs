//! What passes between manager and agents, as messages: the only place that knows the wire types.
//!
//! Whatever comes from the network is checked here: names, numbers that must fit, fields that must be
//! there. The core gets its own types or nothing.

mod available;
mod messages;
mod order;
mod status;

/// The generated messages, client and server of `proto/manager.proto`.
#[expect(
    unreachable_pub,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "tonic-prost-build writes this code"
)]
pub(crate) mod pb {
    tonic::include_proto!("tierfeed.v1");
}

use tierfeed_core::{
    fleet::{Denial, Refusal},
    order::SpecError,
};
use tonic::{Code, Status};

pub(crate) use messages::{from_direction, to_direction};
pub(crate) use status::status_reply;

/// A message that no tierfeed of this version sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A message lacks a part of it.
    #[error("{field} is missing; manager and agent must have the same version")]
    Missing {
        /// The field of the message.
        field: &'static str,
    },
    /// A field has a value that does not exist.
    #[error("{field} is {value}; manager and agent must have the same version")]
    Unknown {
        /// The field of the message.
        field: &'static str,
        /// What it holds.
        value: String,
    },
    /// There is no such order.
    #[error("order: {0}; manager and agent must have the same version")]
    Order(#[source] SpecError),
    /// A node that is none of the world's.
    #[error("node is {node} of {nodes}; manager and agent must have the same version")]
    Node {
        /// The number of the node.
        node: u32,
        /// How many nodes the world has.
        nodes: u32,
    },
}

impl From<WireError> for Status {
    fn from(error: WireError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

/// What to do about a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Try again: the manager is not there, or not yet.
    Retry,
    /// Start with other settings.
    Reconfigure,
    /// Stop: the job is over.
    Gone,
    /// Nothing that a user can do.
    Bug,
}

/// What to do about `status`.
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
