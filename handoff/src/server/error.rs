//! Errors of the answers that the agent gives to clients.

use std::io;

use rustix::io::Errno;
use tierfeed_core::{batch::InPlace, id::ConnectionId};
use tierfeed_numa_memory::{AllocateError, RangeError};

use crate::message::{GRANT_CHUNKS_MAX, RequestId};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    #[error("cannot make the rings of a connection")]
    Rings(#[source] AllocateError),
    #[error(
        "cannot make or watch the wake-up descriptors of a connection; raise the limit of open files?"
    )]
    System(#[source] io::Error),
    /// The briefing does not fit in a packet, or its path is not UTF-8.
    #[error("cannot write the briefing")]
    Briefing(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was admitted before, or reads no batches.
    #[error("connection {} does not wait for admission", .connection.0)]
    NotWaiting { connection: ConnectionId },
}

impl AdmitError {
    pub(super) fn system(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    #[error("a connection without an open request was to get an answer")]
    NotRequested,
    #[error("a batch does not lie in the arena of its rank")]
    OutsideArena(#[source] RangeError),
    #[error("a batch names a sample in tier {}, which its trainer does not map", .in_place.tier.0)]
    NotShared { in_place: InPlace },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    #[error("request {} for memory is not open", .request.0)]
    NotRequested { request: RequestId },
    #[error("a grant of {count} chunks; from 1 to {GRANT_CHUNKS_MAX} are possible")]
    Chunks { count: usize },
}
