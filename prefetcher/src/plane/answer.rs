//! The duty to answer an operation, as a value: the type makes sure that it happens exactly once.

use std::sync::Arc;

use tierfeed_core::{
    id::{OpId, SampleId},
    units::Nanoseconds,
};

use crate::plane::{
    failure::{Cause, Failure},
    state::PlaneState,
    summary::Summary,
};

/// Answers its operation by [`Self::give`], or with a fault when it is dropped.
///
/// A job that is refused, or whose thread panics, drops it.
#[derive(Debug)]
pub(crate) struct Answer {
    op: OpId,
    summary: Option<Summary>,
    begun: Nanoseconds,
    state: Option<Arc<PlaneState>>,
}

impl Answer {
    pub(crate) fn new(op: OpId, summary: Option<Summary>, state: Arc<PlaneState>) -> Self {
        Self { op, summary, begun: state.pace.now(), state: Some(state) }
    }

    /// Starts the measured duration now, so that the time in the queue is left out.
    pub(crate) fn begin(&mut self) {
        self.begun = self.state().pace.now();
    }

    pub(crate) fn op(&self) -> OpId {
        self.op
    }

    pub(crate) fn state(&self) -> Arc<PlaneState> {
        Arc::clone(self.state.as_ref().expect("only giving the answer takes it, by value"))
    }

    /// A failure is kept with the sample that it concerns.
    pub(crate) fn give(self, sample: Option<SampleId>, outcome: Result<(), Cause>) {
        self.give_worked(sample, outcome, None);
    }

    /// As [`Self::give`], with the time for which a processor worked at the operation.
    pub(crate) fn give_worked(
        mut self,
        sample: Option<SampleId>,
        outcome: Result<(), Cause>,
        worked: Option<Nanoseconds>,
    ) {
        if let Some(state) = self.state.take() {
            state.count(self.summary, self.begun, outcome.as_ref().err().map(Cause::fault));
            state.answer(self.op, outcome.map_err(|cause| self.failure(sample, cause)), worked);
        }
    }

    fn failure(&self, sample: Option<SampleId>, cause: Cause) -> Failure {
        Failure { op: self.op, sample, cause }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            state.count(self.summary, self.begun, Some(Cause::Abandoned.fault()));
            state.answer(self.op, Err(self.failure(None, Cause::Abandoned)), None);
        }
    }
}
