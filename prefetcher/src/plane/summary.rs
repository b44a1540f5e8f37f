//! The effect of an operation of the data plane, for counters and for the recorder.

use tierfeed_core::{
    id::{Rank, SampleId, TierId},
    session::{Fault, Form, Operation, Origin, Promotion},
    units::Bytes,
};

use crate::recorder::{Endpoint, EventKind};

/// An operation without its addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Summary {
    /// `sample` is the first of so many.
    Move {
        from: Endpoint,
        to: Endpoint,
        sample: SampleId,
        samples: u32,
        len: Bytes,
    },
    Transform {
        sample: SampleId,
        form: Form,
        len: Bytes,
    },
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
                samples: 1,
                len: to.len,
            },
            Operation::Promote { parts } => {
                let first = parts.first()?;
                Self::Move {
                    from: Endpoint::Tier(first.from.tier),
                    to: Endpoint::Staging,
                    sample: first.sample,
                    samples: u32::try_from(parts.len()).unwrap_or(u32::MAX),
                    len: Promotion::bytes(parts),
                }
            }
            Operation::Prefetch { sample, len, to } => Self::Move {
                from: Endpoint::Cold,
                to: Endpoint::Tier(to.tier),
                sample: *sample,
                samples: 1,
                len: *len,
            },
            Operation::Advance { sample, from, len, to } => Self::Move {
                from: Endpoint::Tier(from.tier),
                to: Endpoint::Tier(to.tier),
                sample: *sample,
                samples: 1,
                len: *len,
            },
            Operation::Demote { sample, from, len, to, .. } => {
                let from = match from {
                    Origin::Staging(_) => Endpoint::Staging,
                    Origin::Tier(place) => Endpoint::Tier(place.tier),
                };
                let to = Endpoint::Tier(to.tier);
                Self::Move { from, to, sample: *sample, samples: 1, len: *len }
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

    /// Takes a part out of a list; `None` if this is no list.
    pub(crate) fn take_part(&mut self, part: &Promotion) -> Option<Self> {
        let whole = *self;
        let (Self::Move { samples, len, .. }, Self::Move { from, to, .. }) = (self, whole) else {
            return None;
        };
        *samples = samples.saturating_sub(1);
        len.0 = len.0.saturating_sub(part.to.len.0);
        Some(Self::Move { from, to, sample: part.sample, samples: 1, len: part.to.len })
    }

    pub(crate) fn event(self, fault: Option<Fault>) -> EventKind {
        match self {
            Self::Move { from, to, sample, samples, len } => {
                EventKind::Moved { from, to, sample, samples, len, fault }
            }
            Self::Transform { sample, form, len } => {
                EventKind::Transformed { sample, form, len, fault }
            }
            Self::Arena(rank) => EventKind::Arena(rank, fault),
            Self::Chunk(tier) => EventKind::Chunk(tier, fault),
        }
    }
}
