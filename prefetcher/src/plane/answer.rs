//! The duty to answer an operation, as a value: it cannot be forgotten, nor done twice.

use std::sync::Arc;

use tierfeed_core::{
    id::{OpId, Rank, SampleId, TierId},
    session::{Command, Fault, Origin},
    units::{Bytes, Nanoseconds},
};

use crate::{
    plane::{
        failure::{Cause, Failure},
        operations::Operations,
    },
    recorder::{End, What},
};

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

/// Answers its operation when it is given, or with a fault when it is dropped.
///
/// A job that is refused, or whose thread panics, drops it.
#[derive(Debug)]
pub(crate) struct Answer {
    op: OpId,
    work: Option<Work>,
    begun: Nanoseconds,
    operations: Option<Arc<Operations>>,
}

impl Answer {
    /// The duty to answer `op`.
    pub(crate) fn new(op: OpId, work: Option<Work>, operations: Arc<Operations>) -> Self {
        Self { op, work, begun: operations.pace.now(), operations: Some(operations) }
    }

    /// Leaves out of its duration what passed so far: a thread takes it up only now.
    pub(crate) fn begin(&mut self) {
        self.begun = self.operations().pace.now();
    }

    /// What carries the operation out.
    pub(crate) fn operations(&self) -> Arc<Operations> {
        Arc::clone(self.operations.as_ref().expect("only giving the answer takes it, by value"))
    }

    /// Answers. A failure is kept with the sample it is about.
    pub(crate) fn give(mut self, sample: Option<SampleId>, outcome: Result<(), Cause>) {
        if let Some(operations) = self.operations.take() {
            operations.meter(self.work, self.begun, outcome.as_ref().err().map(Cause::fault));
            operations.answer(self.op, outcome.map_err(|cause| self.failure(sample, cause)));
        }
    }

    fn failure(&self, sample: Option<SampleId>, cause: Cause) -> Failure {
        Failure { op: self.op, sample, cause }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(operations) = self.operations.take() {
            operations.meter(self.work, self.begun, Some(Cause::Abandoned.fault()));
            operations.answer(self.op, Err(self.failure(None, Cause::Abandoned)));
        }
    }
}
