//! The duty to answer an operation, as a value: the type makes sure that it happens exactly once.

use std::sync::Arc;

use tierfeed_core::{
    id::{OpId, SampleId},
    session::{Event, Fault, Promotion},
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
        let fault = outcome.as_ref().err().map(Cause::fault);
        self.end(fault, |op, state| {
            let outcome = noted(op, sample, outcome, state);
            Event::Completed { op, outcome }
        });
    }

    /// As [`Self::give`], with the time for which a processor worked at the operation.
    pub(crate) fn give_worked(
        self,
        sample: SampleId,
        outcome: Result<(), Cause>,
        took: Nanoseconds,
    ) {
        let fault = outcome.as_ref().err().map(Cause::fault);
        self.end(fault, |op, state| {
            let outcome = noted(op, Some(sample), outcome, state);
            Event::Transformed { op, outcome, took }
        });
    }

    /// Of a list, with the parts that failed, which are counted apart.
    pub(crate) fn give_parts(mut self, failed: Vec<(usize, &Promotion, Cause)>) {
        if failed.is_empty() {
            return self.give(None, Ok(()));
        }
        for (_, part, cause) in &failed {
            let of_part = self.summary.as_mut().and_then(|summary| summary.take_part(part));
            self.state().count(of_part, self.begun, Some(cause.fault()));
        }
        self.end(None, |op, state| {
            let fault = |(index, part, cause): (usize, &Promotion, Cause)| {
                (index, state.note(Failure { op, sample: Some(part.sample), cause }))
            };
            Event::PartsFailed { op, parts: failed.into_iter().map(fault).collect() }
        });
    }

    fn end(mut self, fault: Option<Fault>, event: impl FnOnce(OpId, &PlaneState) -> Event) {
        if let Some(state) = self.state.take() {
            let event = event(self.op, &state);
            state.count(self.summary, self.begun, fault);
            state.answer(event);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            state.count(self.summary, self.begun, Some(Cause::Abandoned.fault()));
            let outcome = noted(self.op, None, Err(Cause::Abandoned), &state);
            state.answer(Event::Completed { op: self.op, outcome });
        }
    }
}

fn noted(
    op: OpId,
    sample: Option<SampleId>,
    outcome: Result<(), Cause>,
    state: &PlaneState,
) -> Result<(), Fault> {
    outcome.map_err(|cause| state.note(Failure { op, sample, cause }))
}
