//! What a job can adjust of the published policies. Each default is what the paper says.

use alloc::vec::Vec;

use super::Kind;
use crate::{
    id::TierId,
    units::{Bytes, BytesPerSecond},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tuning {
    pub deepmemory: Buffers,
    pub lobster: Reuse,
    pub deli: Option<Fetches>,
    /// Where [`Kind::NoPfs`] reads a sample that it keeps.
    pub nopfs: Source,
}

/// The rule by which `DeepMemoryDL` counts a buffer as full, and the samples that it still needs then.
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reuse {
    /// It evicts samples that the node uses at most this many times again.
    pub count: u32,
    /// It evicts samples whose next use is farther away.
    pub distance: Distance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// To the end of the epoch that is this many after the current one.
    Epochs(u32),
    Steps(u32),
}

impl Default for Distance {
    /// The paper's `2 x I - h`.
    fn default() -> Self {
        Self::Epochs(1)
    }
}

/// The rule by which DELI requests samples ahead: a fetch at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetches {
    /// For each rank.
    pub size: SampleCount,
    /// A rank's next fetch begins when at most this many samples are fetched and not staged.
    pub threshold: SampleCount,
}

impl Default for Fetches {
    /// The 50/50 rule: both are half of the cache.
    fn default() -> Self {
        Self { size: SampleCount::Share(50), threshold: SampleCount::Share(50) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleCount {
    Samples(u32),
    /// A percentage of the samples that a rank's part of the cache holds.
    Share(u8),
}

impl SampleCount {
    /// For a rank's part of the cache that holds `cached` samples.
    #[must_use]
    pub fn of(self, cached: u64) -> u64 {
        match self {
            Self::Samples(count) => count.into(),
            Self::Share(percent) => cached.saturating_mul(percent.into()) / 100,
        }
    }
}

/// The place from which a sample that a tier holds is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Source {
    /// The place with the highest rate; of equals the nearest.
    #[default]
    Fastest,
    Tier,
}

impl Source {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fastest => "fastest",
            Self::Tier => "tier",
        }
    }
}

/// `None` for a rate that is neither measured nor emulated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// By tier; a tier without an entry has no figure.
    pub tiers: Vec<Option<BytesPerSecond>>,
    pub cold: Option<BytesPerSecond>,
}

impl Rates {
    #[must_use]
    pub fn is_cold_faster(&self, tier: TierId) -> bool {
        let of_tier = self.tiers.get(usize::from(tier.0)).copied().flatten();
        self.cold.zip(of_tier).is_some_and(|(cold, tier)| cold > tier)
    }
}

impl super::Aim {
    /// `None` for a policy that leaves look-ahead to the session.
    #[must_use]
    pub fn fetches(&self, policy: Kind) -> Option<Fetches> {
        self.tuning.deli.filter(|_| policy == Kind::Deli)
    }

    /// Whether a policy reads samples from the cold store although a tier has them.
    #[must_use]
    pub fn bypasses(&self, policy: Kind, tier: TierId) -> bool {
        policy == Kind::NoPfs
            && self.tuning.nopfs == Source::Fastest
            && self.rates.is_cold_faster(tier)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankFetches {
    /// Samples of a fetch, at least one.
    pub size: u64,
    /// Samples that are left of earlier fetches when the next one begins.
    pub threshold: u64,
}

impl Fetches {
    /// For each of `ranks` ranks that share a cache of `room`, with samples of this mean length.
    #[must_use]
    pub fn of_rank(self, room: Bytes, mean: Bytes, ranks: u32) -> RankFetches {
        let cached = room.0 / mean.0.max(1) / u64::from(ranks.max(1));
        RankFetches { size: self.size.of(cached).max(1), threshold: self.threshold.of(cached) }
    }
}

impl RankFetches {
    /// The most room that the fetches of `ranks` ranks take.
    #[must_use]
    pub fn room(self, mean: Bytes, ranks: u32) -> Bytes {
        let samples = self.size.saturating_add(self.threshold).saturating_mul(ranks.into());
        Bytes(samples.saturating_mul(mean.0))
    }
}
