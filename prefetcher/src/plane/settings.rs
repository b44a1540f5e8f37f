//! The settings of a data plane.

use std::{collections::BTreeMap, io, num::NonZeroUsize};

use tierfeed_core::{
    id::{Rank, TierId},
    tier::{Kind, Locality},
    units::Bytes,
};

use tierfeed_numa_memory::RegionPart;

use crate::tier::{DirectoryError, TierSettings};

/// Which copies are compared with the checksum of the bytes that the cold store delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Copies from staging and from directories, which other processes can write.
    Shared,
    /// All copies, also those from memory tiers.
    Always,
}

/// The settings of a data plane, fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The tiers, fastest first; the index is the [`TierId`].
    pub tiers: Vec<TierSettings>,
    /// The size of a chunk of any tier.
    pub chunk: Bytes,
    /// Where the batches of each rank are staged; a rank that is left out has no preference.
    pub staging: BTreeMap<Rank, Locality>,
    /// Where the last bytes of each rank's staging memory lie instead, in the order of addresses.
    pub staging_behind: Vec<RegionPart>,
    /// The most operations that the session has in flight; also the bound of every queue.
    pub operations_max: NonZeroUsize,
    /// Which copies are compared with their checksum.
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
    /// The size of a chunk is zero.
    #[error("a chunk of 0 B; it must have at least one byte, 512 MiB is usual")]
    EmptyChunk,
    /// More tiers than a [`TierId`] can number.
    #[error("{tiers} tiers; at most {tiers_max} are possible")]
    TooManyTiers {
        /// Number of tiers in the settings.
        tiers: usize,
        /// Number of tiers that are possible.
        tiers_max: usize,
    },
    /// The directory of a tier cannot hold chunks.
    #[error("tier {} ({kind}): {source}", .tier.0)]
    Directory {
        /// The tier that cannot be opened.
        tier: TierId,
        /// The kind of the tier.
        kind: Kind,
        /// Why the directory cannot hold chunks.
        source: DirectoryError,
    },
    /// Threads cannot be started or pinned to their CPUs.
    #[error("cannot start {threads} threads on the CPUs they are for: {source}")]
    Threads {
        /// Number of threads that were to start.
        threads: NonZeroUsize,
        /// What the operating system says.
        source: io::Error,
    },
}
