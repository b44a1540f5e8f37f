//! The operation that makes a row of a staged sample: workers do it ([`crate::transforms`]).
//!
//! A prepared form that a tier takes gets a checksum only if it was made of the bytes that arrived. A worker
//! reads them from staging, which trainers map, and compares them with the sum that they had when they
//! arrived.

use std::sync::Arc;

use tierfeed_core::{
    id::{Epoch, SampleId},
    session::{Form, Slot},
    units::Nanoseconds,
};
use tierfeed_transform::worker_protocol::{AfterTransform, InputForm, Part};

use crate::{
    plane::{
        answer::Answer,
        failure::{Cause, CopyError},
        state::PlaneState,
    },
    tier::{Allocation, Segment, forget_sums, record_arrival},
    transforms::{Finished, Task, Transforms},
};

/// The fields of [`tierfeed_core::session::Operation::Transform`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct TransformRequest {
    pub(crate) sample: SampleId,
    pub(crate) epoch: Epoch,
    pub(crate) from: Slot,
    pub(crate) form: Form,
    pub(crate) prepared: Option<Slot>,
    pub(crate) to: Slot,
}

impl PlaneState {
    pub(crate) fn transform(
        &self,
        answer: Answer,
        request: &TransformRequest,
        transforms: &Transforms,
    ) {
        let &TransformRequest { sample, epoch, from, form, prepared, to } = request;
        let store = match self.arena_store(from.rank) {
            Ok(store) => store,
            Err(error) => return answer.give(Some(sample), Err(error.into())),
        };
        let Allocation::Memory(memory) = store.allocation() else {
            let error = CopyError::UnknownArena { rank: from.rank };
            return answer.give(Some(sample), Err(error.into()));
        };
        let memory = Arc::clone(memory);
        let prepared = prepared.map(|slot| Segment {
            store: Arc::clone(&store),
            offset: slot.offset,
            len: slot.len,
        });
        let arrived = store.sums().get(from.offset, sample);
        forget_sums(prepared.as_slice());
        let room = prepared.as_ref().map_or(from.len, |prepared| from.len.max(prepared.len));
        transforms.submit(Task {
            sample,
            epoch,
            memory,
            slot: Part { offset: from.offset.0, len: room.0 },
            input_len: from.len.0,
            form: match form {
                Form::Stored => InputForm::Stored,
                Form::Prepared => InputForm::Prepared,
            },
            after: match (&prepared, arrived) {
                (Some(slot), Some(arrived)) => {
                    AfterTransform::Prepared { len: slot.len.0, input_sum: arrived.xxh3() }
                }
                // Without a sum of what arrived, no form of it can get one.
                (Some(_), None) | (None, _) => AfterTransform::Unused,
            },
            row: Part { offset: to.offset.0, len: to.len.0 },
            finish: Box::new(move |Finished { outcome, worked }| {
                match (&outcome, &prepared) {
                    (Ok(Some(sum)), Some(prepared)) => record_arrival(sample, prepared, *sum),
                    // Without a sum no tier takes it.
                    (Ok(None), Some(_)) => tracing::warn!(
                        sample = sample.0,
                        "no tier keeps this sample now: its prepared form was not written, or has not the \
                         length that the head of its image told, or a trainer changed its bytes in staging \
                         before they were transformed"
                    ),
                    _ => (),
                }
                let outcome = match store.bus_errors() {
                    0 => outcome.map(|_| ()).map_err(Cause::from),
                    _ => Err(CopyError::Poisoned { tier: None, chunk: None }.into()),
                };
                let worked = u64::try_from(worked.as_nanos()).unwrap_or(u64::MAX);
                answer.give_worked(sample, outcome, Nanoseconds(worked));
            }),
        });
    }
}
