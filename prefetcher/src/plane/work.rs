//! What the operations of the data plane do.

use tierfeed_core::{
    id::{Rank, SampleId, TierId},
    session::{Command, Fault, Origin},
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
    /// What a command does; `None` if it is no operation.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        Some(match command {
            Command::Fetch { sample, to, .. } => {
                Self::Move { from: End::Cold, to: End::Staging, sample: *sample, len: to.len }
            }
            Command::Promote { sample, from, to, .. } => {
                let from = End::Tier(from.tier);
                Self::Move { from, to: End::Staging, sample: *sample, len: to.len }
            }
            Command::Demote { sample, from, len, to, .. } => {
                let from = match from {
                    Origin::Staging(_) => End::Staging,
                    Origin::Tier(place) => End::Tier(place.tier),
                };
                Self::Move { from, to: End::Tier(to.tier), sample: *sample, len: *len }
            }
            Command::OpenArena { rank, .. } => Self::Arena(*rank),
            Command::AddChunk { tier, .. } => Self::Chunk(*tier),
            _ => return None,
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
