//! Errors of the answers that the agent gives to clients.

use std::io;

use rustix::io::Errno;
use tierfeed_core::{batch::InPlace, id::ConnectionId};
use tierfeed_numa_memory::{AllocateError, RangeError};

use crate::message::{GRANT_CHUNKS_MAX, RequestId};

/// Why a client could not be admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// The memory for the rings could not be allocated.
    #[error("cannot make the rings of a connection")]
    Rings(#[source] AllocateError),
    /// A system call failed, usually because the agent has no descriptors left.
    #[error(
        "cannot make or watch the wake-up descriptors of a connection; raise the limit of open files?"
    )]
    System(#[source] io::Error),
    /// The briefing does not fit in a packet, or its path is not UTF-8.
    #[error("cannot write the briefing")]
    Briefing(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The connection was admitted before, or reads no batches.
    #[error("connection {} does not wait for admission", .connection.0)]
    NotWaiting {
        /// The connection that does not wait.
        connection: ConnectionId,
    },
}

impl AdmitError {
    pub(super) fn system(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Why a batch could not be handed over or refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The connection has no open request.
    #[error("a connection without an open request was to get an answer")]
    NotRequested,
    /// The batch does not lie in the arena of the connection's rank.
    #[error("a batch does not lie in the arena of its rank")]
    OutsideArena(#[source] RangeError),
    /// A sample of the batch lies in a tier that the client does not map.
    #[error("a batch names a sample in tier {}, which its trainer does not map", .in_place.tier.0)]
    NotShared {
        /// Tier, chunk and offset of the sample.
        in_place: InPlace,
    },
}

/// Why memory could not be granted or denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// There is no such request, or it was answered before.
    #[error("request {} for memory is not open", .request.0)]
    NotRequested {
        /// The request that is not open.
        request: RequestId,
    },
    /// The grant has no chunks, or too many.
    #[error("a grant of {count} chunks; from 1 to {GRANT_CHUNKS_MAX} are possible")]
    Chunks {
        /// Number of chunks in the grant.
        count: usize,
    },
}
