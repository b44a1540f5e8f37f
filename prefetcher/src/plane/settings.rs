//! The settings of a data plane.

use std::{collections::BTreeMap, io, num::NonZeroUsize};

use tierfeed_core::{
    id::{Rank, TierId},
    tier::{Kind, Locality},
    units::Bytes,
};

use tierfeed_numa_memory::RegionPart;

use crate::tier::{DirectoryError, TierSettings};

/// The copies that are compared with the checksum of the bytes that the cold store delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verify {
    /// Copies from staging and from directories, which other processes can write.
    Shared,
    /// All copies, also those from memory tiers.
    Always,
}

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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("a chunk of 0 B; it must have at least one byte, 512 MiB is usual")]
    EmptyChunk,
    #[error("{tiers} tiers; at most {tiers_max} are possible")]
    TooManyTiers { tiers: usize, tiers_max: usize },
    #[error("tier {} ({kind}): {source}", .tier.0)]
    Directory { tier: TierId, kind: Kind, source: DirectoryError },
    #[error("cannot start {threads} threads on the CPUs they are for: {source}")]
    Threads { threads: NonZeroUsize, source: io::Error },
}
