//! Which used samples stay, and in which tier.
//!
//! A policy is asked once for every read of the node, in the order in which batches get their
//! places in staging, and answers by writing the [`Residency`]. Its other input is the
//! [`FutureAccesses`], as far as it asked for them. It knows neither clocks nor disks: equal reads
//! give equal residency.

mod belady;
mod by_age;
mod deepmemory;
mod deli;
mod gap;
mod lobster;
mod nopfs;
mod page_cache;
mod partitioned;
mod pinned;

mod farthest;
mod heaps;
mod idle;
mod lists;
mod queue;
mod tuning;
mod useful;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{
    fmt::{self, Debug},
    str::FromStr,
};

use self::{
    by_age::{Age, ByAge},
    lobster::{Eviction, Lobster},
};
pub use tuning::{
    Buffers, Distance, Fetches, RankFetches, Rates, Reuse, SampleCount, Source, Tuning,
};
pub use useful::{Reach, useful};

use crate::{
    id::{Epoch, NodeId, SampleId, TierId},
    order::{Shuffle, Spec},
    retention::{
        future_accesses::{FutureAccesses, NextUses, Use},
        partition::Membership,
        residency::Residency,
    },
    space::Space,
    units::Bytes,
};

/// The rule that decides what is kept where.
///
/// Tiers are ordered fastest first; [`TierId`] is the index.
pub trait Policy: Debug + Send {
    /// Epochs beyond the current one that it looks into.
    fn lookahead(&self) -> u32 {
        1
    }

    fn prepare(&mut self, _: Epoch, _: Need, _: &FutureAccesses, _: &Residency) -> Preparation {
        Preparation::Ready
    }

    fn prepared(&mut self, _: Planned) {}

    fn follow(&mut self, _: Membership) {}

    /// The node that holds a sample, if nodes share what they hold.
    fn holder(&self, _: SampleId) -> Option<NodeId> {
        None
    }

    fn next_uses(&self) -> NextUses {
        NextUses::Unasked
    }

    /// The tier into which a sample will go when it is read in an epoch; `None` if that is not decided, or
    /// if it will not be kept.
    fn tier_after(&self, _: SampleId, _: Epoch) -> Option<TierId> {
        None
    }

    /// Reads the decisions about samples that are read soon, independently of each other, so that they are
    /// in the CPU caches then.
    fn touch(&self, _: &[SampleId]) {}

    /// Decides where a sample that was read stays. It lies in staging now, so it may enter any tier or
    /// change its tier at the price of one copy. Other samples may be evicted, or demoted by one tier.
    fn read(&mut self, read: Read, future: &FutureAccesses, residency: &mut Residency);

    /// Whether a sample stays only as long as its room is not wanted for samples that are fetched ahead.
    fn is_idle(&self, _: SampleId) -> bool {
        false
    }

    /// Evicts a sample of a tier that stays only as long as its room is not wanted, for one that is fetched
    /// ahead. Returns whether there was one.
    fn give_way(&mut self, _: TierId, _: &mut Residency) -> bool {
        false
    }

    /// Notes that a sample left a tier by no decision of the policy: bytes were lost, or the tier
    /// shrank and the sample found room in a slower one, or none.
    fn displaced(&mut self, sample: SampleId, from: TierId, to: Option<TierId>);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// A batch of the epoch waits.
    Now,
    Soon,
}

#[derive(Debug)]
pub enum Preparation {
    Ready,
    /// The result of a job that was given out before.
    Pending,
    /// The result of this job, to be passed to [`Policy::prepared`].
    Job(Job),
}

/// Work for another thread: it takes too long to be done between reads.
#[derive(Debug)]
pub struct Job(Task);

#[derive(Debug)]
enum Task {
    Gap(gap::Job),
    Partition(partitioned::Job),
}

#[derive(Debug)]
pub struct Planned(Outcome);

#[derive(Debug)]
enum Outcome {
    Gap(gap::Planned),
    Partition(partitioned::Planned),
}

impl Job {
    /// Takes up to some seconds for millions of samples.
    #[must_use]
    pub fn run(self) -> Planned {
        Planned(match self.0 {
            Task::Gap(job) => Outcome::Gap(job.run()),
            Task::Partition(job) => Outcome::Partition(job.run()),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    pub sample: SampleId,
    pub at: Use,
}

#[derive(Debug, Clone)]
pub struct Setting {
    pub order: Spec,
    pub node: NodeId,
    pub sizes: Arc<[Bytes]>,
    /// In bytes, fastest first.
    pub capacities: Vec<Bytes>,
    pub aim: Aim,
}

/// The goals of a policy besides few cold bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Aim {
    /// Whether writing to each tier wears it out; a tier without an entry does not wear.
    pub wears: Vec<bool>,
    /// The most that may be written to each tier in an epoch; no limit for a tier without an entry.
    pub writes_per_epoch: Vec<Option<Bytes>>,
    pub useful: Vec<Bytes>,
    /// The scarce resource of the cold store.
    pub saves: Saves,
    pub tuning: Tuning,
    pub rates: Rates,
}

/// The resource that limits a cold store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Saves {
    /// Bandwidth, in bytes per second.
    #[default]
    Bytes,
    /// Requests per second: then small samples are worth as much as large ones, and take less room.
    Requests,
}

impl Setting {
    /// The bytes that the node reads in a step, on average.
    #[must_use]
    pub fn bytes_per_step(&self) -> Bytes {
        let total: u64 = self.sizes.iter().map(|len| Space::rounded(*len).0).sum();
        let steps = self.order.steps_per_epoch().max(1);
        Bytes(total / u64::from(self.order.world.nodes) / u64::from(steps))
    }
}

#[must_use]
pub fn build(kind: Kind, setting: &Setting) -> Box<dyn Policy> {
    match kind {
        // Of a published order little more than an epoch is known, and a sample may occur twice in
        // it.
        Kind::Gap if setting.order.shuffle == Shuffle::Published => {
            Box::new(Lobster::new(setting, Eviction::Bypass))
        }
        Kind::Gap => Box::new(gap::Gap::new(setting)),
        Kind::DeepMemory => Box::new(deepmemory::DeepMemory::new(setting)),
        Kind::Lobster => Box::new(Lobster::new(setting, Eviction::Eager)),
        Kind::LobsterLazy => Box::new(Lobster::new(setting, Eviction::Lazy)),
        Kind::NoPfs => Box::new(nopfs::NoPfs::new(setting)),
        Kind::Deli => Box::new(deli::Deli::new(setting)),
        Kind::Pinned => Box::new(pinned::Pinned),
        Kind::Partitioned => Box::new(partitioned::Partitioned::new(setting)),
        Kind::Belady => Box::new(Lobster::new(setting, Eviction::Bypass)),
        Kind::Fifo => Box::new(ByAge::new(setting, Age::SinceFirstRead)),
        Kind::Lru => Box::new(ByAge::new(setting, Age::SinceLastRead)),
        Kind::PageCache => Box::new(page_cache::PageCache::new(setting)),
        Kind::None => Box::new(Nothing),
    }
}

/// The stay of a sample in its tier by the decisions of the policy; lost bytes and shrinking tiers are not
/// included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    ForGood,
    /// At least until it is read again, independent of other reads, as long as trainers follow the
    /// order.
    UntilRead,
    /// Until another sample needs the room.
    Unknown,
}

/// The past reads on which it depends what tiers hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Past {
    /// Those of the last epochs.
    LastEpochs,
    /// Those that filled the tiers; others would have filled them with other samples, and as much.
    Filling,
    /// The same on one node. On several, on epochs long past: samples come back to a node in any of them.
    FillingOfOneNode,
    /// Those of epochs long past.
    Long,
}

#[derive(Debug)]
struct Nothing;

impl Policy for Nothing {
    fn lookahead(&self) -> u32 {
        0
    }

    fn read(&mut self, _: Read, _: &FutureAccesses, _: &mut Residency) {}

    fn displaced(&mut self, _: SampleId, _: TierId, _: Option<TierId>) {}
}

/// The fastest tier that could hold the sample if it were empty.
fn fastest(sample: SampleId, residency: &Residency) -> Option<TierId> {
    slower(None, sample, residency)
}

/// The next tier below `tier`, or the fastest, that could hold the sample if it were empty.
fn slower(tier: Option<TierId>, sample: SampleId, residency: &Residency) -> Option<TierId> {
    let below = tier.map_or(0, |tier| usize::from(tier.0) + 1);
    let len = residency.len_of(sample);
    let holds = |tier: &TierId| residency.levels()[usize::from(tier.0)].capacity >= len;
    residency.tiers().skip(below).find(holds)
}

/// The fastest tier that has room for the sample now.
fn first_with_room(sample: SampleId, residency: &Residency) -> Option<TierId> {
    let len = residency.len_of(sample);
    residency.tiers().find(|tier| residency.free(*tier) >= len)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Keep a sample if its next use is near enough; on one node, pin what fits.
    Gap,
    /// FIFO buffers and Algorithm 1 of DeepMemoryDL.
    DeepMemory,
    /// Lobster as printed: evict at once what is not used in the next epoch, else the farthest use.
    Lobster,
    /// Lobster with its rules as an eviction order that applies when room is needed.
    LobsterLazy,
    /// Keep what is read most often over all epochs, by a plan made before the first one (`NoPFS`).
    NoPfs,
    /// One bounded collection in front of the cold store, first in, first out (DELI).
    Deli,
    /// Keep what was read first (`MinIO` of `CoorDL`).
    Pinned,
    /// The nodes share what they hold, one copy of each sample (`CoorDL`).
    Partitioned,
    /// Evict the sample whose next use is farthest in the future.
    Belady,
    /// FIFO buffers that keep everything as long as it fits.
    Fifo,
    /// Evict the least recently used sample.
    Lru,
    /// The two lists of Linux, with shadow entries of samples that were evicted too early.
    PageCache,
    /// Keep nothing: every read is a cold read.
    None,
}

impl Kind {
    /// The default first.
    pub const ALL: [Self; 13] = [
        Self::Gap,
        Self::DeepMemory,
        Self::Lobster,
        Self::LobsterLazy,
        Self::NoPfs,
        Self::Deli,
        Self::Pinned,
        Self::Partitioned,
        Self::Belady,
        Self::Fifo,
        Self::Lru,
        Self::PageCache,
        Self::None,
    ];

    pub const NAMES: &str = "gap, deepmemory, lobster, lobster-lazy, nopfs, deli, pinned, partitioned, belady, \
                             fifo, lru, page-cache, none";

    /// Whether any sample that was read stays.
    #[must_use]
    pub fn keeps(self) -> bool {
        self != Self::None
    }

    /// Whether a node reads from another one what that keeps.
    #[must_use]
    pub const fn shares(self) -> bool {
        matches!(self, Self::Partitioned)
    }

    /// The stay under the policy that [`build`] chooses for such an order.
    #[must_use]
    pub const fn stay(self, shuffle: Shuffle) -> Stay {
        match self {
            Self::Gap if matches!(shuffle, Shuffle::Published) => Stay::Unknown,
            _ => self.properties().1,
        }
    }

    #[must_use]
    pub const fn past(self) -> Past {
        self.properties().2
    }

    #[must_use]
    pub const fn name(self) -> &'static str {
        self.properties().0
    }

    const fn properties(self) -> (&'static str, Stay, Past) {
        use Past::{Filling, FillingOfOneNode, LastEpochs, Long};
        use Stay::{ForGood, Unknown, UntilRead};
        match self {
            Self::Gap => ("gap", UntilRead, Filling),
            Self::DeepMemory => ("deepmemory", Unknown, Filling),
            Self::Lobster => ("lobster", Unknown, Filling),
            Self::LobsterLazy => ("lobster-lazy", Unknown, FillingOfOneNode),
            Self::NoPfs => ("nopfs", Unknown, FillingOfOneNode),
            Self::Deli => ("deli", Unknown, Filling),
            Self::Pinned => ("pinned", ForGood, FillingOfOneNode),
            Self::Partitioned => ("partitioned", ForGood, FillingOfOneNode),
            Self::Belady => ("belady", Unknown, FillingOfOneNode),
            Self::Fifo => ("fifo", Unknown, LastEpochs),
            Self::Lru => ("lru", Unknown, Filling),
            Self::PageCache => ("page-cache", Unknown, Long),
            Self::None => ("none", Unknown, LastEpochs),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {}", Kind::NAMES)]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownKind)
    }
}

#[cfg(test)]
mod tests;
