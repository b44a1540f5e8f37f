//! What went wrong, in full: the session only needs a [`Fault`], people need the file and the reason.

use std::{
    collections::VecDeque,
    fmt, io,
    sync::{Arc, Mutex, PoisonError},
};

use tierfeed_core::{
    id::{ChunkId, OpId, Rank, SampleId, TierId},
    session::Fault,
    tier::Kind,
    units::Bytes,
};

use crate::tier::SpaceError;
use tierfeed_dataset::read::ReadError;

/// So many failures are kept; older ones are forgotten, though not uncounted.
pub const FAILURES_KEPT: usize = 64;

/// An operation that failed.
#[derive(Debug)]
pub struct Failure {
    /// Which operation.
    pub op: OpId,
    /// The sample that it was about, if any.
    pub sample: Option<SampleId>,
    /// What went wrong.
    pub cause: Cause,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sample {
            Some(sample) => write!(f, "sample {}: {}", sample.0, self.cause),
            None => self.cause.fmt(f),
        }
    }
}

/// Why an operation failed, by its kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// A fetch.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A promotion or a demotion.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A new chunk.
    #[error("chunk {} of tier {kind}: {source}", .chunk.0)]
    Chunk {
        /// Of which tier.
        kind: Kind,
        /// Which chunk.
        chunk: ChunkId,
        /// Why there is none.
        source: SpaceError,
    },
    /// The staging memory of a rank.
    #[error("staging memory of rank {}, {len}: {source}", .rank.0)]
    Arena {
        /// Whose.
        rank: Rank,
        /// How much was asked for.
        len: Bytes,
        /// Why there is none.
        source: SpaceError,
    },
    /// No thread carried it out: the queue was full, the plane stopped, or the thread panicked.
    #[error("the operation was abandoned")]
    Abandoned,
}

impl Cause {
    /// What the session is told.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Read(error) => error.fault(),
            Self::Copy(error) => error.fault(),
            Self::Chunk { source, .. } | Self::Arena { source, .. } => source.fault(),
            Self::Abandoned => Fault::Io,
        }
    }
}

/// Why a sample could not be copied, or what is wrong with where it was to go.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// There is no such tier.
    #[error("there is no tier {}; there are {tiers}", .tier.0)]
    UnknownTier {
        /// What was named.
        tier: TierId,
        /// How many there are.
        tiers: usize,
    },
    /// The tier has no such chunk.
    #[error("tier {kind} has no chunk {}", .chunk.0)]
    UnknownChunk {
        /// Which tier.
        kind: Kind,
        /// What was named.
        chunk: ChunkId,
    },
    /// The rank has no staging memory.
    #[error("rank {} has no staging memory", .rank.0)]
    UnknownArena {
        /// Which rank.
        rank: Rank,
    },
    /// The place is shorter than the sample.
    #[error("a place of {} bytes is too short for a sample of {}", .place.0, .len.0)]
    TooShort {
        /// The length of the place.
        place: Bytes,
        /// The length of the sample.
        len: Bytes,
    },
    /// The bytes are not those that the cold store delivered, or were never all put there.
    #[error("its copy in {} is not what the cold store delivered; it is not used", place(*.from))]
    Corrupt {
        /// The tier that held it, or staging.
        from: Option<Kind>,
    },
    /// A page of the memory broke.
    #[error("memory of {} broke under the copy; {}", place(tier.map(|(_, kind)| kind)), lost(*.chunk))]
    Poisoned {
        /// The tier that it belongs to; `None` for staging.
        tier: Option<(TierId, Kind)>,
        /// The chunk, which is lost.
        chunk: Option<ChunkId>,
    },
    /// Reading or writing failed.
    #[error("cannot copy from {} to {}: {source}", place(*.from), place(*.to))]
    Io {
        /// The tier it came from, or staging.
        from: Option<Kind>,
        /// The tier it went to, or staging.
        to: Option<Kind>,
        /// What the operating system says.
        source: io::Error,
    },
}

impl CopyError {
    /// What the session is told.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Corrupt { .. } => Fault::Corrupt,
            Self::Poisoned { tier: Some((tier, _)), chunk: Some(chunk) } => {
                Fault::Poisoned(*tier, *chunk)
            }
            // The cold store is well: the trainer can read what there is no memory for here.
            Self::Poisoned { .. } => Fault::NoSpace,
            Self::Io { source, .. } => match source.raw_os_error() {
                Some(libc::ENOSPC | libc::EDQUOT) => Fault::NoSpace,
                _ => Fault::Io,
            },
            _ => Fault::Io,
        }
    }
}

fn lost(chunk: Option<ChunkId>) -> String {
    match chunk {
        Some(chunk) => format!("chunk {} is given up", chunk.0),
        None => "batches there are refused".to_owned(),
    }
}

fn place(tier: Option<Kind>) -> &'static str {
    tier.map_or("staging", Kind::name)
}

/// The last failures.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<VecDeque<Arc<Failure>>>);

impl Failures {
    /// Keeps a failure, and forgets the oldest if there are too many.
    pub(crate) fn push(&self, failure: Failure) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == FAILURES_KEPT {
            kept.pop_front();
        }
        kept.push_back(Arc::new(failure));
    }

    /// The failures that are kept, oldest first.
    pub(crate) fn read(&self) -> Vec<Arc<Failure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
