//! What becomes of the bytes of a sample between their arrival and the lease of their batch: one row of a tensor.
//!
//! The session knows lengths and times only, and no pixels. A transform has a deterministic first part, whose
//! result is the prepared form of a sample, and a rest that differs between epochs. Tiers and other nodes hold
//! samples in one of the two forms, the same everywhere in a job ([`Transform::cached`]); the cold store has the
//! stored ones.
//!
//! Every sample arrives in an input slot of its batch. When it is there, the arrival goes on as
//! [`Operation::Transform`](super::Operation::Transform) under the same name, and ends when the row is there.
//! What reads the arrived bytes, a copy into a tier, waits only for the form that it takes.

use alloc::{sync::Arc, vec::Vec};
use core::num::NonZeroU32;

use crate::{
    id::DatasetId,
    retention::form::Form,
    units::{Bytes, Nanoseconds},
};

/// What a session knows of the transform of its job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    /// What the samples of each dataset become, by [`crate::id::DatasetId`]; those of one without are handed over
    /// as they are stored.
    pub rows: Vec<Option<Row>>,
    /// The samples that a node transforms at a time.
    pub threads: NonZeroU32,
    /// The form in which tiers and other nodes hold samples; [`super::Settings::sizes`] are the lengths in it.
    pub cached: Form,
    /// The length of every sample in the cold store, by [`crate::id::SampleId`].
    pub stored: Arc<[Bytes]>,
}

/// What a sample becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The length of a row of a batch.
    pub len: Bytes,
    /// What of the sample is handed over.
    pub handed: Handed,
}

/// What of a sample trainers get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handed {
    /// Its row.
    Row,
    /// Its row and its stored bytes, which have fields beside the one that became the row. They are in the
    /// input slot, which a prepared form would overwrite: so tiers hold the stored form.
    RowAndStored,
}

/// Transforms that are given out for each thread: one runs, and the next waits where the thread finds it.
const WINDOW_PER_THREAD: NonZeroU32 = NonZeroU32::new(2).expect("2 is not 0");

impl Transform {
    /// What the samples of a dataset become.
    #[must_use]
    pub fn row_of(&self, dataset: DatasetId) -> Option<Row> {
        self.rows.get(usize::from(dataset.0)).copied().flatten()
    }

    /// Transforms that are given out at a time.
    #[must_use]
    pub fn window(&self) -> NonZeroU32 {
        self.threads.saturating_mul(WINDOW_PER_THREAD)
    }
}

/// Transforms of samples that arrived in one form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TransformCount {
    /// Samples that became rows.
    pub samples: u64,
    /// Samples that did not.
    pub failed: u64,
    /// Bytes that went in.
    pub read: Bytes,
    /// Bytes of rows.
    pub made: Bytes,
    /// For how long threads worked at them, all together.
    pub time: Nanoseconds,
}

impl TransformCount {
    /// The mean time of a transform; `None` before the first.
    #[must_use]
    pub fn mean(&self) -> Option<Nanoseconds> {
        self.time.0.checked_div(self.samples + self.failed).map(Nanoseconds)
    }
}
