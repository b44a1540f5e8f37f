//! The indexes of all datasets of a job.
//!
//! The samples of a job are numbered over all its datasets, those of the first one first, as the core's
//! `order::Spec` numbers them. An index knows one dataset, and numbers its samples from 0.

use std::sync::Arc;

use tierfeed_core::{id::SampleId, units::Bytes};

use crate::Index;

/// The indexes of the datasets of a job, at least one.
#[derive(Debug, Clone)]
pub struct Catalog {
    indexes: Vec<Arc<Index>>,
}

impl Catalog {
    /// # Panics
    ///
    /// If they have more samples together than can be numbered; such a job has no order.
    #[must_use]
    pub fn new(first: Arc<Index>, further: impl IntoIterator<Item = Arc<Index>>) -> Self {
        let indexes: Vec<_> = std::iter::once(first).chain(further).collect();
        let samples: u64 = indexes.iter().map(|index| u64::from(index.len())).sum();
        assert!(u32::try_from(samples).is_ok(), "{samples} samples are numbered with 32 bits");
        Self { indexes }
    }

    #[must_use]
    pub fn first(&self) -> &Arc<Index> {
        &self.indexes[0]
    }

    #[must_use]
    pub fn further(&self) -> &[Arc<Index>] {
        &self.indexes[1..]
    }

    #[must_use]
    pub fn samples(&self) -> Vec<u32> {
        self.indexes.iter().map(|index| index.len()).collect()
    }

    /// Bytes of each sample, in the order of the numbers of the samples.
    pub fn sizes(&self) -> impl Iterator<Item = Bytes> + '_ {
        self.indexes.iter().flat_map(|index| index.sizes())
    }

    /// The class of a sample, as [`Index::label`] returns it.
    ///
    /// # Panics
    ///
    /// If the job has no such sample.
    #[must_use]
    pub fn label(&self, sample: SampleId) -> Option<i64> {
        let (index, sample) = self.find(sample);
        index.label(sample)
    }

    /// The name of a sample in messages, as [`Index::object_name`] returns it.
    ///
    /// # Panics
    ///
    /// If the job has no such sample.
    #[must_use]
    pub fn object_name(&self, sample: SampleId) -> String {
        let (index, sample) = self.find(sample);
        index.object_name(sample)
    }

    /// The index that has a sample, and the sample's number there. A number behind the last sample is looked
    /// up in the last dataset, which has no such sample either.
    fn find(&self, sample: SampleId) -> (&Index, SampleId) {
        let (last, before) = self.indexes.split_last().expect("there is a first dataset");
        let mut own = sample;
        for index in before {
            if own.0 < index.len() {
                return (index, own);
            }
            own.0 -= index.len();
        }
        (last, own)
    }
}
