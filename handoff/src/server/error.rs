//! Why an answer of the agent could not be given.

use std::io;

use rustix::io::Errno;
use tierfeed_core::{batch::InPlace, id::ConnectionId};
use tierfeed_numa_memory::{AllocateError, RangeError};

use crate::message::{GRANT_CHUNKS_MAX, RequestId};

/// Why a holder could not be let in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError {
    /// There is no memory for its rings.
    #[error("cannot make the rings of a connection")]
    Rings(#[source] AllocateError),
    /// The agent has no descriptors left, most often.
    #[error("cannot make or watch the bells of a connection; raise the limit of open files?")]
    System(#[source] io::Error),
    /// The briefing does not fit in a packet, or its path is not UTF-8.
    #[error("cannot write the briefing")]
    Briefing(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It was let in before, or reads no batches.
    #[error("connection {} does not wait to be let in", .holder.0)]
    NotWaiting {
        /// The connection.
        holder: ConnectionId,
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
    /// The holder has no open request.
    #[error("a connection without an open request was to get an answer")]
    NotRequested,
    /// The batch does not lie in the arena of the holder.
    #[error("a batch does not lie in the arena of its rank")]
    OutsideArena(#[source] RangeError),
    /// A sample of the batch lies in a tier that the holder does not map.
    #[error("a batch names a sample in tier {}, which its trainer does not map", .shown.tier.0)]
    NotShown {
        /// Where it lies.
        shown: InPlace,
    },
}

/// Why memory could not be granted or denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GrantError {
    /// There is no such request, or it has been answered.
    #[error("request {} for memory is not open", .request.0)]
    NotRequested {
        /// The request.
        request: RequestId,
    },
    /// The grant has no chunks, or too many.
    #[error("a grant of {count} chunks; from 1 to {GRANT_CHUNKS_MAX} are possible")]
    Chunks {
        /// As given.
        count: usize,
    },
}
