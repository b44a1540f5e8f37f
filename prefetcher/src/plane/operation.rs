//! What an operation of the data plane does, for counters and for the recorder.

use tierfeed_core::{
    id::{Rank, SampleId, TierId},
    session::{Command, Fault, Origin},
    units::Bytes,
};

use crate::recorder::{Endpoint, EventKind};

/// An operation of the data plane without its addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    /// Copies or reads `len` bytes of a sample.
    Move { from: Endpoint, to: Endpoint, sample: SampleId, len: Bytes },
    /// Maps the staging memory of a rank.
    Arena(Rank),
    /// Adds a chunk to a tier.
    Chunk(TierId),
}

impl Operation {
    /// The operation of a command; `None` if the command is not measured.
    pub(crate) fn of(command: &Command) -> Option<Self> {
        Some(match command {
            Command::Fetch { sample, to, .. } => Self::Move {
                from: Endpoint::Cold,
                to: Endpoint::Staging,
                sample: *sample,
                len: to.len,
            },
            Command::Promote { sample, from, to, .. } => {
                let from = Endpoint::Tier(from.tier);
                Self::Move { from, to: Endpoint::Staging, sample: *sample, len: to.len }
            }
            Command::Demote { sample, from, len, to, .. } => {
                let from = match from {
                    Origin::Staging(_) => Endpoint::Staging,
                    Origin::Tier(place) => Endpoint::Tier(place.tier),
                };
                Self::Move { from, to: Endpoint::Tier(to.tier), sample: *sample, len: *len }
            }
            Command::OpenArena { rank, .. } => Self::Arena(*rank),
            Command::AddChunk { tier, .. } => Self::Chunk(*tier),
            _ => return None,
        })
    }

    /// The event that the recorder gets when it ends.
    pub(crate) fn event(self, fault: Option<Fault>) -> EventKind {
        match self {
            Self::Move { from, to, sample, len } => {
                EventKind::Moved { from, to, sample, len, fault }
            }
            Self::Arena(rank) => EventKind::Arena(rank, fault),
            Self::Chunk(tier) => EventKind::Chunk(tier, fault),
        }
    }
}
