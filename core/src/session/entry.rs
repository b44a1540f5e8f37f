//! Names one sample of a batch.

use crate::{id::BatchId, retention::cache::Due};

/// One sample of a batch, by its index in [`crate::batch::Batch::entries`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EntryRef {
    pub(super) batch: BatchId,
    pub(super) index: usize,
}

impl From<Due> for EntryRef {
    fn from(Due { batch, index }: Due) -> Self {
        Self { batch, index: index as usize }
    }
}
