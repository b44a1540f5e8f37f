//! What the operations of the data plane do.

use tierfeed_core::{
    id::{Rank, SampleId, TierId},
    session::{Fault, Operation, Origin},
    units::Bytes,
};

use crate::recorder::{End, What};

/// What an operation does, for counters and for the recorder.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Work {
    /// Moves a sample.
    Move { from: End, to: End, sample: SampleId, len: Bytes },
    /// Maps staging memory.
    Arena(Rank),
    /// Adds a chunk.
    Chunk(TierId),
}

impl Work {
    /// What an operation does; `None` if neither the counters nor the recorder ask.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        Some(match operation {
            Operation::Fetch { sample, to, .. } => {
                Self::Move { from: End::Cold, to: End::Staging, sample: *sample, len: to.len }
            }
            Operation::Promote { sample, from, to, .. } => {
                let from = End::Tier(from.tier);
                Self::Move { from, to: End::Staging, sample: *sample, len: to.len }
            }
            Operation::Demote { sample, from, len, to, .. } => {
                let from = match from {
                    Origin::Staging(_) => End::Staging,
                    Origin::Tier(place) => End::Tier(place.tier),
                };
                Self::Move { from, to: End::Tier(to.tier), sample: *sample, len: *len }
            }
            Operation::OpenArena { rank, .. } => Self::Arena(*rank),
            Operation::AddChunk { tier, .. } => Self::Chunk(*tier),
            Operation::TrimArena { .. } | Operation::RestoreArena { .. } => return None,
        })
    }

    /// The event of its end.
    pub(crate) fn ended(self, fault: Option<Fault>) -> What {
        match self {
            Self::Move { from, to, sample, len } => What::Moved { from, to, sample, len, fault },
            Self::Arena(rank) => What::Arena(rank, fault),
            Self::Chunk(tier) => What::Chunk(tier, fault),
        }
    }
}
