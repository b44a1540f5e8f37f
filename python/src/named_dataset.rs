//! One dataset of a job, as its loader sees it: samples and steps are counted from 0.
//!
//! The agent counts them over all datasets of the job. The two ways to count meet here.

use pyo3::PyResult;
use tierfeed_core::{
    id::{BatchId, DatasetId, SampleId},
    order::Spec,
};
use tierfeed_handoff::{Briefing, FurtherDataset};

use crate::errors;

/// One dataset of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedDataset {
    number: DatasetId,
    job: Spec,
}

impl NamedDataset {
    /// The dataset of that name; without a name the first one.
    pub(crate) fn find(briefing: &Briefing, name: Option<&str>) -> PyResult<Self> {
        let job = briefing.order;
        let Some(name) = name else { return Ok(Self { number: DatasetId(0), job }) };
        let further = job.datasets().skip(1).zip(&briefing.further);
        let found = further.into_iter().find(|(_, it)| it.name == name);
        match found {
            Some((number, _)) => Ok(Self { number, job }),
            None => Err(errors::no_dataset(name, briefing)),
        }
    }

    /// How the dataset is read without the agent, if it is not the first one.
    pub(crate) fn further(self, briefing: &Briefing) -> Option<&FurtherDataset> {
        usize::from(self.number.0).checked_sub(1).and_then(|at| briefing.further.get(at))
    }

    /// The order of the dataset by itself.
    pub(crate) fn order(&self) -> Spec {
        self.job.of_dataset(self.number).expect("it was found in the job")
    }

    /// It is read at the end of each epoch with a number, counted from 1, that this divides.
    pub(crate) fn every(&self) -> u32 {
        let further = usize::from(self.number.0).checked_sub(1);
        further.and_then(|at| self.job.further.iter().nth(at)).map_or(1, |it| it.every)
    }

    /// What the agent calls a batch of this dataset; `None` if the dataset is not read in that epoch.
    pub(crate) fn in_job(&self, batch: BatchId) -> Option<BatchId> {
        if self.number == DatasetId(0) {
            return Some(batch);
        }
        Some(self.job.section(batch.epoch, self.number)?.in_job(batch))
    }

    /// What the loader calls a batch of the agent.
    pub(crate) fn own(&self, batch: BatchId) -> BatchId {
        if self.number == DatasetId(0) {
            return batch;
        }
        self.job.section(batch.epoch, self.number).map_or(batch, |section| section.own(batch))
    }

    /// What the loader calls a sample of the agent.
    pub(crate) fn own_sample(&self, sample: SampleId) -> SampleId {
        SampleId(sample.0.saturating_sub(self.job.first_sample(self.number).0))
    }
}
