//! The worth of a stored chunk under each policy.

mod classic;
mod known;
mod lrfu;
mod online;
mod registered;

use std::cmp::Ordering;

use self::{
    classic::{Greedy, Lfu, Lru, Random},
    known::{Known, Weighing},
    lrfu::{Deployed, Lrfu, Ties},
    online::Online,
    registered::Registered,
};
use super::{
    chunks::{ChunkId, Chunks, number},
    workload::{Job, Pattern},
};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Moment {
    /// Jobs before this one. The clock: a job has all its chunks at one time.
    pub(super) job: usize,
    /// Uses before this one, of all jobs.
    pub(super) used: usize,
}

/// The worth of a chunk: the least is evicted first. The second number breaks ties.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth(pub(super) f64, pub(super) f64);

impl Worth {
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.total_cmp(&other.1))
    }
}

pub(super) trait Policy {
    /// A job starts, and has registered what it will use.
    fn handle_job(&mut self, _job: &Job, _now: Moment) {}

    /// `chunk` is not stored and had to be prepared.
    fn handle_miss(&mut self, _chunk: ChunkId) {}

    fn handle_use(&mut self, _chunk: ChunkId, _now: Moment) {}

    fn worth(&mut self, chunk: ChunkId, now: Moment) -> Worth;

    /// Whether `chunk`, which is being used, is stored although `victims` have to be evicted for it.
    fn admits(&mut self, _chunk: ChunkId, _victims: &[ChunkId], _now: Moment) -> bool {
        true
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Lru,
    Lfu,
    Lrfu,
    Random,
    Greedy,
    DlCache,
    DlCacheSecond,
    DlCacheDeployed,
    DlCacheRegistered,
    Tierfeed,
    Belady,
    TierfeedKnown,
}

impl Kind {
    pub(super) const ALL: [Self; 12] = [
        Self::Lru,
        Self::Lfu,
        Self::Lrfu,
        Self::Random,
        Self::Greedy,
        Self::DlCache,
        Self::DlCacheSecond,
        Self::DlCacheDeployed,
        Self::DlCacheRegistered,
        Self::Tierfeed,
        Self::Belady,
        Self::TierfeedKnown,
    ];

    /// The index of the paper's policy in [`Self::ALL`].
    pub(super) const DLCACHE: usize = Self::DlCache as usize;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Lrfu => "lrfu",
            Self::Random => "random",
            Self::Greedy => "greedy",
            Self::DlCache => "dlcache",
            Self::DlCacheSecond => "dlcache-1s",
            Self::DlCacheDeployed => "dlcache-deployed",
            Self::DlCacheRegistered => "dlcache-registered",
            Self::Tierfeed => "tierfeed",
            Self::Belady => "belady",
            Self::TierfeedKnown => "tierfeed-known",
        }
    }

    pub(super) const fn knows(self) -> &'static str {
        match self {
            Self::DlCacheRegistered | Self::Tierfeed => "the running job",
            Self::Belady | Self::TierfeedKnown => "all jobs",
            _ => "the past",
        }
    }

    pub(super) fn policy<'a>(self, chunks: &'a Chunks, pattern: &Pattern) -> Box<dyn Policy + 'a> {
        let dlcache = Lrfu::new(chunks, lrfu::JOB_PUBLISHED_S, Ties::Cost);
        match self {
            Self::Lru => Box::new(Lru::new(chunks)),
            Self::Lfu => Box::new(Lfu::new(chunks)),
            Self::Lrfu => Box::new(Lrfu::new(chunks, lrfu::JOB_PUBLISHED_S, Ties::Age)),
            Self::Random => Box::new(Random::new(pattern.number)),
            Self::Greedy => Box::new(Greedy(chunks)),
            Self::DlCache => Box::new(dlcache),
            Self::DlCacheSecond => Box::new(Lrfu::new(chunks, 1.0, Ties::Cost)),
            Self::DlCacheDeployed => Box::new(Deployed::new(chunks)),
            Self::DlCacheRegistered => Box::new(Registered::new(chunks, dlcache)),
            Self::Tierfeed => Box::new(Registered::new(chunks, Online::new(chunks))),
            Self::Belady => Box::new(Known::new(chunks, pattern, Weighing::Alike)),
            Self::TierfeedKnown => Box::new(Known::new(chunks, pattern, Weighing::ByDensity)),
        }
    }
}
