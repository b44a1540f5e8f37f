//! Which used samples stay, and in which tier.
//!
//! A policy decides retention and nothing else. Demotion is mechanism ([`crate::cache`]): what a full
//! buffer must give up goes one tier down in FIFO order if the policy still wants it, else out.

mod deepmemory;
mod fifo;
mod gap;

use alloc::boxed::Box;
use core::{
    fmt::{self, Debug},
    str::FromStr,
};

use crate::{
    id::{SampleId, TierId},
    units::Bytes,
};

/// The rule that decides what is kept where.
///
/// Tiers are given fastest first, and [`TierId`] is the position in that slice.
pub trait Policy: Debug + Send {
    /// Into which tier a sample goes that was read from the cold store, if into any.
    ///
    /// The tier may be full: then the oldest samples in it are given up, down or out.
    fn admit(&self, sample: Candidate, outlook: &dyn Outlook, tiers: &[Level]) -> Option<TierId>;

    /// Whether a sample that its tier gives up is worth a place one tier down.
    fn wants(&self, sample: Candidate, outlook: &dyn Outlook, tiers: &[Level]) -> bool;
}

/// A sample about whose future a policy is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Which sample.
    pub sample: SampleId,
    /// What it takes in a tier.
    pub len: Bytes,
}

/// What a policy may know about the future. Asked only when needed: an answer can cost a permutation.
pub trait Outlook {
    /// Steps of this node until the sample is read again, or `None` if it never is.
    fn next_use(&self, sample: SampleId) -> Option<u32>;

    /// Whether the sample is read again at all, as far as can be said without a permutation.
    fn is_used_again(&self, sample: SampleId) -> bool;
}

/// How full a tier is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// What it may hold.
    pub capacity: Bytes,
    /// What of that is not taken.
    pub free: Bytes,
}

/// Builds the policy that a job names, for a node that reads `bytes_per_step` on average.
#[must_use]
pub fn build(kind: Kind, bytes_per_step: Bytes) -> Box<dyn Policy> {
    match kind {
        Kind::Gap => Box::new(gap::Gap),
        Kind::DeepMemory => Box::new(deepmemory::DeepMemory::new(bytes_per_step)),
        Kind::Fifo => Box::new(fifo::Fifo),
        Kind::None => Box::new(Nothing),
    }
}

/// Keeps nothing.
#[derive(Debug)]
struct Nothing;

impl Policy for Nothing {
    fn admit(&self, _: Candidate, _: &dyn Outlook, _: &[Level]) -> Option<TierId> {
        None
    }

    fn wants(&self, _: Candidate, _: &dyn Outlook, _: &[Level]) -> bool {
        false
    }
}

/// The fastest tier that could hold the sample if it were empty.
fn fastest(sample: Candidate, tiers: &[Level]) -> Option<TierId> {
    position(tiers, |level| level.capacity >= sample.len)
}

fn position(tiers: &[Level], accepts: impl Fn(&Level) -> bool) -> Option<TierId> {
    let index = tiers.iter().position(accepts)?;
    u8::try_from(index).ok().map(TierId)
}

/// The policies that a job file can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Keep what is used again soon enough; on one node, pin what fits.
    Gap,
    /// FIFO buffers and Algorithm 1 of DeepMemoryDL.
    DeepMemory,
    /// FIFO buffers that keep everything as long as it fits.
    Fifo,
    /// Keep nothing: every read is a cold read.
    None,
}

impl Kind {
    /// All policies, the default first.
    pub const ALL: [Self; 4] = [Self::Gap, Self::DeepMemory, Self::Fifo, Self::None];

    /// The name in job files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::DeepMemory => "deepmemory",
            Self::Fifo => "fifo",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text names no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected one of gap, deepmemory, fifo, none")]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or(UnknownKind)
    }
}
