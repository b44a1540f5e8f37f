//! The duty to answer an operation, as a value: it cannot be forgotten, nor done twice.

use std::sync::Arc;

use tierfeed_core::{
    id::{OpId, SampleId},
    units::Nanoseconds,
};

use crate::plane::{
    failure::{Cause, Failure},
    operations::Operations,
    work::Work,
};

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
