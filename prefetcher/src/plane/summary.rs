//! The effect of an operation of the data plane, for counters and for the recorder.

use tierfeed_core::{
    id::{Rank, SampleId, TierId},
    session::{Fault, Form, Operation, Origin},
    units::Bytes,
};

use crate::recorder::{Endpoint, EventKind};

/// An operation without its addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Summary {
    Move { from: Endpoint, to: Endpoint, sample: SampleId, len: Bytes },
    Transform { sample: SampleId, form: Form, len: Bytes },
    Arena(Rank),
    Chunk(TierId),
}

impl Summary {
    /// The summary of an operation; `None` if it is neither counted nor recorded.
    pub(crate) fn of(operation: &Operation) -> Option<Self> {
        Some(match operation {
            Operation::Fetch { sample, to, .. } => Self::Move {
                from: Endpoint::Cold,
                to: Endpoint::Staging,
                sample: *sample,
                len: to.len,
            },
            Operation::Promote { sample, from, to, .. } => {
                let from = Endpoint::Tier(from.tier);
                Self::Move { from, to: Endpoint::Staging, sample: *sample, len: to.len }
            }
            Operation::Prefetch { sample, len, to } => Self::Move {
                from: Endpoint::Cold,
                to: Endpoint::Tier(to.tier),
                sample: *sample,
                len: *len,
            },
            Operation::Advance { sample, from, len, to } => Self::Move {
                from: Endpoint::Tier(from.tier),
                to: Endpoint::Tier(to.tier),
                sample: *sample,
                len: *len,
            },
            Operation::Demote { sample, from, len, to, .. } => {
                let from = match from {
                    Origin::Staging(_) => Endpoint::Staging,
                    Origin::Tier(place) => Endpoint::Tier(place.tier),
                };
                Self::Move { from, to: Endpoint::Tier(to.tier), sample: *sample, len: *len }
            }
            Operation::Transform { sample, form, to, .. } => {
                Self::Transform { sample: *sample, form: *form, len: to.len }
            }
            Operation::OpenArena { rank, .. } => Self::Arena(*rank),
            Operation::AddChunk { tier, .. } => Self::Chunk(*tier),
            Operation::Receive { .. }
            | Operation::TrimArena { .. }
            | Operation::RestoreArena { .. } => return None,
        })
    }

    pub(crate) fn event(self, fault: Option<Fault>) -> EventKind {
        match self {
            Self::Move { from, to, sample, len } => {
                EventKind::Moved { from, to, sample, len, fault }
            }
            Self::Transform { sample, form, len } => {
                EventKind::Transformed { sample, form, len, fault }
            }
            Self::Arena(rank) => EventKind::Arena(rank, fault),
            Self::Chunk(tier) => EventKind::Chunk(tier, fault),
        }
    }
}
