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

use serde::{Deserialize, Serialize};

use crate::{
    id::DatasetId,
    retention::form::Form,
    units::{Bytes, Nanoseconds},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    /// By [`crate::id::DatasetId`]; `None` for a dataset whose samples are handed over as they are stored.
    pub rows: Vec<Option<Row>>,
    /// Samples that a node transforms at a time.
    pub threads: NonZeroU32,
    /// The form in which tiers and other nodes hold samples; [`super::Settings::sizes`] are the lengths in
    /// this form.
    pub cached: Form,
    /// The length of every sample in the cold store, by [`crate::id::SampleId`].
    pub stored: Arc<[Bytes]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub len: Bytes,
    pub handed: Handed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handed {
    Row,
    /// The row and the stored bytes, which have fields beside the one that became the row. They lie in the
    /// input slot, which a prepared form would overwrite: so tiers hold the stored form.
    RowAndStored,
}

/// Transforms that are given out for each thread: one runs, and the next waits.
const WINDOW_PER_THREAD: NonZeroU32 = NonZeroU32::new(2).expect("2 is not 0");

impl Transform {
    #[must_use]
    pub fn row_of(&self, dataset: DatasetId) -> Option<Row> {
        self.rows.get(usize::from(dataset.0)).copied().flatten()
    }

    #[must_use]
    pub fn window(&self) -> NonZeroU32 {
        self.threads.saturating_mul(WINDOW_PER_THREAD)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransformCount {
    /// Samples that became rows.
    pub samples: u64,
    /// Samples that could not be made into rows.
    pub failed: u64,
    pub read: Bytes,
    pub made: Bytes,
    /// Summed over threads.
    pub time: Nanoseconds,
}

impl TransformCount {
    /// `None` before the first.
    #[must_use]
    pub fn mean(&self) -> Option<Nanoseconds> {
        self.time.0.checked_div(self.samples + self.failed).map(Nanoseconds)
    }
}
