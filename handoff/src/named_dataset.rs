//! One dataset of a job, as its loader sees it: samples and steps are counted from 0.
//!
//! The agent counts them over all datasets of the job. The two ways to count meet here.

use serde::Serialize;
use tierfeed_core::{
    id::{BatchId, DatasetId, SampleId},
    order::{Shuffle, Spec},
};
use tierfeed_transform::Pipeline;

use super::briefing::{Briefing, FurtherDataset};

/// The fields of an order that fix the sequence of every epoch.
#[derive(Serialize)]
struct Sequence {
    samples: u32,
    shuffle: Shuffle,
    seed: u64,
    drop_last: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedDataset {
    number: DatasetId,
    job: Spec,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the job {job} has no dataset {name:?}: {}", has(known))]
pub struct NoDataset {
    pub job: String,
    pub name: String,
    /// The names of its datasets beside the first.
    pub known: Vec<String>,
}

impl NamedDataset {
    /// Without a name it is the first dataset.
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

    /// `None` for the first dataset, which the briefing itself describes.
    #[must_use]
    pub fn further(self, briefing: &Briefing) -> Option<&FurtherDataset> {
        usize::from(self.number.0).checked_sub(1).and_then(|at| briefing.further.get(at))
    }

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

    /// JSON that fixes the sequence of its epochs: two datasets with the same text are read in the same
    /// order. It leaves out the number of epochs, the start of the job, and the division of an epoch into
    /// batches.
    #[must_use]
    pub fn sequence(&self) -> String {
        // Named one by one, so that a new field is thought of here.
        let Spec {
            samples,
            shuffle,
            seed,
            drop_last,
            epochs: _,
            batch_size: _,
            world: _,
            start: _,
            further: _,
        } = self.order();
        let sequence = Sequence { samples, shuffle, seed, drop_last };
        serde_json::to_string(&sequence).expect("numbers and names are always JSON")
    }

    /// The dataset is read at the end of each epoch whose number, counted from 1, is a multiple of this.
    #[must_use]
    pub fn every(&self) -> u32 {
        let further = usize::from(self.number.0).checked_sub(1);
        further.and_then(|at| self.job.further.iter().nth(at)).map_or(1, |it| it.every)
    }

    /// The agent's name of a batch of this dataset; `None` if the dataset is not read in that epoch.
    #[must_use]
    pub fn in_job(&self, batch: BatchId) -> Option<BatchId> {
        if self.number == DatasetId(0) {
            return Some(batch);
        }
        Some(self.job.section(batch.epoch, self.number)?.in_job(batch))
    }

    /// The loader's name of a batch of the agent.
    #[must_use]
    pub fn own(&self, batch: BatchId) -> BatchId {
        if self.number == DatasetId(0) {
            return batch;
        }
        self.job.section(batch.epoch, self.number).map_or(batch, |section| section.own(batch))
    }

    /// The agent's number of a sample of this dataset.
    #[must_use]
    pub fn sample_in_job(&self, sample: SampleId) -> SampleId {
        SampleId(sample.0.saturating_add(self.job.first_sample(self.number).0))
    }

    /// The loader's number of a sample of the agent.
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
