//! What a data plane is started with.

use std::{io, num::NonZeroUsize};

use tierfeed_core::{
    id::TierId,
    tier::{Kind, Locality},
    units::Bytes,
};

use crate::tier::{DirectoryError, TierSettings};

/// Which copies are compared with the checksum of what the cold store delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Those from staging and from directories, which others can write.
    Shared,
    /// All of them, those from memory tiers too.
    Always,
}

/// What a data plane is started with; all of it stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Fastest first; the position is the [`TierId`].
    pub tiers: Vec<TierSettings>,
    /// The size of a chunk of any tier.
    pub chunk: Bytes,
    /// Where batches are staged.
    pub staging: Locality,
    /// The most operations that the session has in flight; every queue has as many places.
    pub operations_max: NonZeroUsize,
    /// Which copies are checked.
    pub verify: Verify,
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if self.chunk.0 == 0 {
            return Err(StartError::EmptyChunk);
        }
        let tiers_max = usize::from(u8::MAX);
        if self.tiers.len() > tiers_max {
            return Err(StartError::TooManyTiers { tiers: self.tiers.len(), tiers_max });
        }
        Ok(())
    }
}

/// Why a data plane does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Chunks of no bytes.
    #[error("a chunk of 0 B; it must have at least one byte, 512 MiB is usual")]
    EmptyChunk,
    /// More tiers than a [`TierId`] can number.
    #[error("{tiers} tiers; at most {tiers_max} are possible")]
    TooManyTiers {
        /// How many there are.
        tiers: usize,
        /// How many there may be.
        tiers_max: usize,
    },
    /// The directory of a tier cannot hold chunks.
    #[error("tier {} ({kind}): {source}", .tier.0)]
    Directory {
        /// Which tier.
        tier: TierId,
        /// What kind it is.
        kind: Kind,
        /// Why not.
        source: DirectoryError,
    },
    /// Threads cannot be started, or not pinned to their CPUs.
    #[error("cannot start {threads} threads on the CPUs they are for: {source}")]
    Threads {
        /// How many.
        threads: NonZeroUsize,
        /// What the operating system says.
        source: io::Error,
    },
}
