//! Failures in full: the session only needs a [`Fault`], a user needs the file and the reason.

use std::{collections::VecDeque, fmt, io, sync::Arc};

use parking_lot::Mutex;
use tierfeed_core::{
    id::{ChunkId, OpId, Rank, SampleId, TierId},
    session::Fault,
    tier::Kind,
    units::Bytes,
};

use crate::{tier::SpaceError, transforms::TransformError};
use tierfeed_dataset::read::ReadError;

/// Number of failures that are kept; older ones are dropped but stay counted.
pub const FAILURES_KEPT: usize = 64;

/// Number of reasons that are kept for trainers that ask why samples were left out.
pub const REASONS_KEPT: usize = 4096;

#[derive(Debug)]
pub struct Failure {
    pub op: OpId,
    pub sample: Option<SampleId>,
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

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Transform(#[from] TransformError),
    #[error("chunk {} of tier {kind}: {source}", .chunk.0)]
    Chunk { kind: Kind, chunk: ChunkId, source: SpaceError },
    #[error("staging memory of rank {}, {len}: {source}", .rank.0)]
    Arena { rank: Rank, len: Bytes, source: SpaceError },
    /// No thread carried it out: the queue was full, the plane stopped, or the thread panicked.
    #[error("the operation was abandoned")]
    Abandoned,
}

impl Cause {
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Read(error) => error.fault(),
            Self::Copy(error) => error.fault(),
            Self::Transform(error) => error.fault(),
            Self::Chunk { source, .. } | Self::Arena { source, .. } => source.fault(),
            Self::Abandoned => Fault::Io,
        }
    }

    /// The reason for which a sample cannot be handed over; `None` if another copy of it may be good.
    fn of_sample(&self) -> Option<String> {
        match self {
            Self::Transform(TransformError::Untransformable(defect)) => {
                Some(defect.message.clone())
            }
            Self::Transform(error) => error.rejection().map(|_| self.to_string()),
            Self::Read(_) => Some(self.to_string()),
            _ => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    #[error("there is no tier {}; there are {tiers}", .tier.0)]
    UnknownTier { tier: TierId, tiers: usize },
    #[error("tier {kind} has no chunk {}", .chunk.0)]
    UnknownChunk { kind: Kind, chunk: ChunkId },
    #[error("rank {} has no staging memory", .rank.0)]
    UnknownArena { rank: Rank },
    #[error("a place of {} bytes is too short for a sample of {}", .place.0, .len.0)]
    TooShort { place: Bytes, len: Bytes },
    /// The bytes are not those that the cold store delivered, or the copy was never complete.
    #[error("its copy in {} is not what the cold store delivered; it is not used", place(*.from))]
    Corrupt {
        /// `None` for staging.
        from: Option<Kind>,
    },
    #[error("a page of the memory of {} is poisoned; {}", place(tier.map(|(_, kind)| kind)), lost(*.chunk))]
    Poisoned {
        /// `None` for staging.
        tier: Option<(TierId, Kind)>,
        chunk: Option<ChunkId>,
    },
    /// The chunk has no memory for the place, and gets none: other processes took it after the chunk was
    /// added.
    #[error("{}: {source}", holder(*.chunk, *.to))]
    NoMemory {
        /// `None` for staging.
        to: Option<Kind>,
        chunk: Option<ChunkId>,
        source: SpaceError,
    },
    #[error("cannot copy from {} to {}: {source}", place(*.from), place(*.to))]
    Io {
        /// `None` for staging.
        from: Option<Kind>,
        /// `None` for staging.
        to: Option<Kind>,
        source: io::Error,
    },
}

impl CopyError {
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Corrupt { .. } => Fault::Corrupt,
            Self::Poisoned { tier: Some((tier, _)), chunk: Some(chunk) } => {
                Fault::Poisoned(*tier, *chunk)
            }
            // The cold store is intact: the trainer can read the sample itself.
            Self::Poisoned { .. } => Fault::NoSpace,
            Self::NoMemory { source, .. } => source.fault(),
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

fn holder(chunk: Option<ChunkId>, tier: Option<Kind>) -> String {
    match chunk {
        Some(chunk) => format!("chunk {} of tier {}", chunk.0, place(tier)),
        None => place(tier).to_owned(),
    }
}

fn place(tier: Option<Kind>) -> &'static str {
    tier.map_or("staging", Kind::name)
}

/// The most recent failures: [`FAILURES_KEPT`] of all kinds, and [`REASONS_KEPT`] for which a sample cannot
/// be handed over.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    all: VecDeque<Arc<Failure>>,
    reasons: VecDeque<(SampleId, String)>,
}

impl Failures {
    pub(crate) fn push(&self, failure: Failure) {
        let mut kept = self.0.lock();
        if let Some((sample, reason)) = failure.sample.zip(failure.cause.of_sample()) {
            push_bounded(&mut kept.reasons, (sample, reason), REASONS_KEPT);
        }
        push_bounded(&mut kept.all, Arc::new(failure), FAILURES_KEPT);
    }

    pub(crate) fn reason(&self, sample: SampleId) -> Option<String> {
        let kept = self.0.lock();
        let reason = kept.reasons.iter().rev().find(|(failed, _)| *failed == sample);
        reason.map(|(_, reason)| reason.clone())
    }

    /// Oldest first.
    pub(crate) fn read(&self) -> Vec<Arc<Failure>> {
        self.0.lock().all.iter().cloned().collect()
    }
}

fn push_bounded<T>(kept: &mut VecDeque<T>, new: T, most: usize) {
    if kept.len() == most {
        kept.pop_front();
    }
    kept.push_back(new);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tierfeed_transform::worker_protocol::{Defect, DefectKind};

    use super::*;

    fn failed(sample: u32, cause: impl Into<Cause>) -> Failure {
        Failure { op: OpId(1), sample: Some(SampleId(sample)), cause: cause.into() }
    }

    #[test]
    fn the_last_reason_of_a_sample_is_known_unless_too_many_failed_since() {
        let failures = Failures::default();
        let why = |message: &str| {
            let (kind, message) = (DefectKind::Damaged, message.to_owned());
            TransformError::Untransformable(Defect { kind, message })
        };
        failures.push(failed(7, why("no image")));
        failures.push(failed(8, TransformError::TimedOut(Duration::from_secs(30))));
        failures.push(failed(7, why("a truncated image")));
        failures.push(failed(7, CopyError::Corrupt { from: None }));
        assert_eq!(failures.reason(SampleId(7)).unwrap(), "a truncated image");
        let reason = failures.reason(SampleId(8)).unwrap();
        assert_eq!(reason, "two transform workers took longer than 30 s over it");
        failures.push(failed(9, TransformError::NoWorker("out of descriptors".to_owned())));
        assert_eq!(failures.reason(SampleId(9)), None, "an outage is no fault of the sample");
        (0..REASONS_KEPT).for_each(|_| failures.push(failed(10, why("no image"))));
        assert_eq!(failures.reason(SampleId(7)), None);
        assert_eq!(failures.read().len(), FAILURES_KEPT);
    }
}
