//! One dataset of a job, as its loader sees it: samples and steps are counted from 0.
//!
//! The agent counts them over all datasets of the job. The two ways to count meet here.

use super::briefing::{self, Briefing, FurtherDataset};
use tierfeed_core::{
    id::{BatchId, DatasetId, SampleId},
    order::Spec,
};
use tierfeed_transform::Pipeline;

/// One dataset of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedDataset {
    number: DatasetId,
    job: Spec,
}

/// The job has no dataset of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the job {job} has no dataset {name:?}: {}", has(known))]
pub struct NoDataset {
    /// The job.
    pub job: String,
    /// The name.
    pub name: String,
    /// The names of its datasets beside the first.
    pub known: Vec<String>,
}

impl NamedDataset {
    /// The dataset of that name; without a name the first one.
    ///
    /// # Errors
    ///
    /// [`NoDataset`] if the job has none of that name.
    pub fn find(briefing: &Briefing, name: Option<&str>) -> Result<Self, NoDataset> {
        let job = briefing.order;
        let Some(name) = name else { return Ok(Self { number: DatasetId(0), job }) };
        let further = job.datasets().skip(1).zip(&briefing.further);
        let found = further.into_iter().find(|(_, it)| it.name == name);
        match found {
            Some((number, _)) => Ok(Self { number, job }),
            None => Err(NoDataset {
                job: briefing.job.clone(),
                name: name.to_owned(),
                known: briefing.further.iter().map(|it| it.name.clone()).collect(),
            }),
        }
    }

    /// How the dataset is read without the agent, if it is not the first one.
    #[must_use]
    pub fn further(self, briefing: &Briefing) -> Option<&FurtherDataset> {
        usize::from(self.number.0).checked_sub(1).and_then(|at| briefing.further.get(at))
    }

    /// What its samples become before they are handed out.
    #[must_use]
    pub fn transform(self, briefing: &Briefing) -> Option<&Pipeline> {
        match self.further(briefing) {
            None => briefing.transform.as_ref(),
            Some(further) => further.transform.as_ref(),
        }
    }

    /// The order of the dataset by itself.
    ///
    /// # Panics
    ///
    /// Never: the dataset was found in the job.
    #[must_use]
    pub fn order(&self) -> Spec {
        self.job.of_dataset(self.number).expect("it was found in the job")
    }

    /// What fixes the sequence of its epochs, as JSON: two datasets with the same text are read in the same order.
    /// It leaves out how many epochs there are, where the job starts, and how an epoch is divided into batches.
    #[must_use]
    pub fn sequence(&self) -> String {
        briefing::sequence(&self.order())
    }

    /// It is read at the end of each epoch with a number, counted from 1, that this divides.
    #[must_use]
    pub fn every(&self) -> u32 {
        let further = usize::from(self.number.0).checked_sub(1);
        further.and_then(|at| self.job.further.iter().nth(at)).map_or(1, |it| it.every)
    }

    /// What the agent calls a batch of this dataset; `None` if the dataset is not read in that epoch.
    #[must_use]
    pub fn in_job(&self, batch: BatchId) -> Option<BatchId> {
        if self.number == DatasetId(0) {
            return Some(batch);
        }
        Some(self.job.section(batch.epoch, self.number)?.in_job(batch))
    }

    /// What the loader calls a batch of the agent.
    #[must_use]
    pub fn own(&self, batch: BatchId) -> BatchId {
        if self.number == DatasetId(0) {
            return batch;
        }
        self.job.section(batch.epoch, self.number).map_or(batch, |section| section.own(batch))
    }

    /// What the agent calls a sample of this dataset.
    #[must_use]
    pub fn sample_in_job(&self, sample: SampleId) -> SampleId {
        SampleId(sample.0.saturating_add(self.job.first_sample(self.number).0))
    }

    /// What the loader calls a sample of the agent.
    #[must_use]
    pub fn own_sample(&self, sample: SampleId) -> SampleId {
        SampleId(sample.0.saturating_sub(self.job.first_sample(self.number).0))
    }
}

fn has(known: &[String]) -> String {
    match known {
        [] => "it has none beside `dataset`; name it below `datasets`".to_owned(),
        _ => format!("beside `dataset` it has {}", known.join(", ")),
    }
}
