//! What a job can adjust of the published policies. Each default is what the paper says.

use alloc::vec::Vec;

use super::Kind;
use crate::{
    id::TierId,
    units::{Bytes, BytesPerSecond},
};

/// What a job adjusts of the policies that have something to adjust.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The buffers of [`Kind::DeepMemory`].
    pub deepmemory: Buffers,
    /// The eviction of [`Kind::Lobster`] and [`Kind::LobsterLazy`].
    pub lobster: Reuse,
    /// The fetches of [`Kind::Deli`]; without them, samples are fetched ahead as with any policy.
    pub deli: Option<Fetches>,
    /// Where [`Kind::NoPfs`] reads a sample that it keeps.
    pub nopfs: Source,
}

/// When `DeepMemoryDL` takes a buffer for full, and what it still needs then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// Below this fill level, in percent, a buffer evicts nothing.
    pub threshold: u8,
    /// The steps within which a sample must be needed to stay; `None` for as many as the buffers can hold.
    pub iterations: Option<u32>,
}

impl Default for Buffers {
    fn default() -> Self {
        Self { threshold: 90, iterations: None }
    }
}

/// Which used samples Lobster evicts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reuse {
    /// Those that the node uses at most this many times again.
    pub count: u32,
    /// Those that are used again farther away.
    pub distance: Distance,
}

/// A reuse distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// To the end of the so-manieth epoch after the current one.
    Epochs(u32),
    /// This many steps.
    Steps(u32),
}

impl Default for Distance {
    /// The paper's `2 x I - h`.
    fn default() -> Self {
        Self::Epochs(1)
    }
}

/// How DELI requests samples ahead: a fetch at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetches {
    /// Samples of a fetch, for each rank.
    pub size: SampleCount,
    /// A rank's next fetch begins when no more samples than this are fetched and not staged.
    pub threshold: SampleCount,
}

impl Default for Fetches {
    /// The 50/50 rule: both are half of the cache.
    fn default() -> Self {
        Self { size: SampleCount::Share(50), threshold: SampleCount::Share(50) }
    }
}

/// A number of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleCount {
    /// This many.
    Samples(u32),
    /// As many as this percentage of a rank's part of the cache holds.
    Share(u8),
}

impl SampleCount {
    /// The samples, if a rank's part of the cache holds so many.
    #[must_use]
    pub fn of(self, cached: u64) -> u64 {
        match self {
            Self::Samples(count) => count.into(),
            Self::Share(percent) => cached.saturating_mul(percent.into()) / 100,
        }
    }
}

/// Where a sample that a tier has is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// Where it comes fastest; of equals the nearest.
    #[default]
    Fastest,
    /// In its tier.
    Tier,
}

impl Source {
    /// The name in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::Tier => "tier",
        }
    }
}

/// The rates of the places that have samples, as far as they are measured or emulated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of each tier; a tier without an entry has no figure.
    pub tiers: Vec<Option<BytesPerSecond>>,
    /// Of the cold store.
    pub cold: Option<BytesPerSecond>,
}

impl Rates {
    /// Whether the cold store is known to be faster than a tier.
    #[must_use]
    pub fn is_cold_faster(&self, tier: TierId) -> bool {
        let of_tier = self.tiers.get(usize::from(tier.0)).copied().flatten();
        self.cold.zip(of_tier).is_some_and(|(cold, tier)| cold > tier)
    }
}

impl super::Aim {
    /// Whether a policy reads samples from the cold store although a tier has them.
    #[must_use]
    pub fn bypasses(&self, policy: Kind, tier: TierId) -> bool {
        policy == Kind::NoPfs
            && self.tuning.nopfs == Source::Fastest
            && self.rates.is_cold_faster(tier)
    }
}

/// The fetches of one rank, in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankFetches {
    /// Samples of a fetch, at least one.
    pub size: u64,
    /// Samples that are left of earlier fetches when the next one begins.
    pub threshold: u64,
}

impl Fetches {
    /// The fetches of each of so many ranks that share a cache of `room`, with samples of this mean length.
    #[must_use]
    pub fn of_rank(self, room: Bytes, mean: Bytes, ranks: u32) -> RankFetches {
        let cached = room.0 / mean.0.max(1) / u64::from(ranks.max(1));
        RankFetches { size: self.size.of(cached).max(1), threshold: self.threshold.of(cached) }
    }
}

impl RankFetches {
    /// The room that the fetches of so many ranks take at most.
    #[must_use]
    pub fn room(self, mean: Bytes, ranks: u32) -> Bytes {
        let samples = self.size.saturating_add(self.threshold).saturating_mul(ranks.into());
        Bytes(samples.saturating_mul(mean.0))
    }
}
