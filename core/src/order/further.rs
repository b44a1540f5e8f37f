//! The datasets that a job reads beside its first one, such as that of a validation: each at the end of
//! every so many epochs, in an order of its own.
//!
//! A job has one sequence of batches for each rank, in which the datasets follow each other, and one
//! numbering of samples and steps: so one session reads, keeps and fetches ahead for all of them.
//!
//! 1. An epoch is a [`Section`] for the first dataset, then one for each further dataset that is due.
//! 2. Within its section a dataset is read as if it were a job of its own ([`Spec::of_dataset`]); samples
//!    and steps are shifted by those of the datasets and sections before.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{FURTHER_MAX, Position, Shuffle, Spec, SpecError};
use crate::id::{BatchId, DatasetId, Epoch, SampleId, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FurtherDataset {
    pub samples: u32,
    /// Never [`Shuffle::Published`].
    pub shuffle: Shuffle,
    /// Samples per rank and step. The last batch of a section may be shorter.
    pub batch_size: u32,
    /// It is read at the end of each epoch whose number, counted from 1, is a multiple of this.
    pub every: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<FurtherDataset>", into = "Vec<FurtherDataset>")]
pub struct FurtherDatasets([Option<FurtherDataset>; FURTHER_MAX]);

/// The part of an epoch in which the ranks read one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    pub dataset: DatasetId,
    pub order: Spec,
    pub first_step: Step,
    pub steps: u32,
    pub first_sample: SampleId,
}

impl FurtherDatasets {
    pub const NONE: Self = Self([None; FURTHER_MAX]);

    /// The datasets are read in this order.
    ///
    /// # Errors
    ///
    /// [`SpecError::TooManyDatasets`] beyond [`FURTHER_MAX`].
    pub fn try_new(datasets: &[FurtherDataset]) -> Result<Self, SpecError> {
        let mut all = Self::NONE;
        if datasets.len() > FURTHER_MAX {
            return Err(SpecError::TooManyDatasets { further: datasets.len() });
        }
        all.0.iter_mut().zip(datasets).for_each(|(place, it)| *place = Some(*it));
        Ok(all)
    }

    /// In the order in which they are read.
    pub fn iter(&self) -> impl Iterator<Item = &FurtherDataset> {
        self.0.iter().flatten()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

impl TryFrom<Vec<FurtherDataset>> for FurtherDatasets {
    type Error = SpecError;

    fn try_from(datasets: Vec<FurtherDataset>) -> Result<Self, SpecError> {
        Self::try_new(&datasets)
    }
}

impl From<FurtherDatasets> for Vec<FurtherDataset> {
    fn from(datasets: FurtherDatasets) -> Self {
        datasets.iter().copied().collect()
    }
}

impl FurtherDataset {
    #[must_use]
    pub fn is_due(&self, epoch: Epoch) -> bool {
        (epoch.0 + 1).is_multiple_of(self.every)
    }

    fn times_before(&self, epoch: Epoch) -> u64 {
        u64::from(epoch.0 / self.every)
    }
}

impl Section {
    /// The batch in the order of the dataset alone, for a batch of the job in this section.
    #[must_use]
    pub fn own(&self, batch: BatchId) -> BatchId {
        BatchId { step: Step(batch.step.0.saturating_sub(self.first_step.0)), ..batch }
    }

    /// The batch of the job, for a batch in the order of the dataset alone.
    #[must_use]
    pub fn in_job(&self, batch: BatchId) -> BatchId {
        BatchId { step: Step(batch.step.0.saturating_add(self.first_step.0)), ..batch }
    }
}

impl Spec {
    /// The order of the first dataset alone.
    #[must_use]
    pub fn of_first(&self) -> Self {
        Self { further: FurtherDatasets::NONE, ..*self }
    }

    /// The order of a dataset alone: its samples and the steps of its epochs are counted from 0. `None` if
    /// the job has no such dataset.
    #[must_use]
    pub fn of_dataset(&self, dataset: DatasetId) -> Option<Self> {
        let first = self.of_first();
        let Some(further) = usize::from(dataset.0).checked_sub(1) else { return Some(first) };
        let FurtherDataset { samples, shuffle, batch_size, .. } =
            *self.further.iter().nth(further)?;
        let start = Position { samples: 0, ..self.start };
        Some(Self { samples, shuffle, batch_size, start, drop_last: false, ..first })
    }

    /// In the order in which they are read.
    pub fn datasets(&self) -> impl Iterator<Item = DatasetId> + use<> {
        let further = self.further.iter().count();
        (0..=u8::MAX).take(1 + further).map(DatasetId)
    }

    #[must_use]
    pub fn all_samples(&self) -> u32 {
        self.further.iter().fold(self.samples, |sum, it| sum.saturating_add(it.samples))
    }

    #[must_use]
    pub fn first_sample(&self, dataset: DatasetId) -> SampleId {
        let Some(before) = usize::from(dataset.0).checked_sub(1) else { return SampleId(0) };
        let before = self.further.iter().take(before);
        SampleId(before.fold(self.samples, |sum, it| sum.saturating_add(it.samples)))
    }

    /// The dataset of a sample, and the number of the sample there.
    #[must_use]
    pub fn dataset_of(&self, sample: SampleId) -> (DatasetId, SampleId) {
        let of_later = self.datasets().skip(1).take_while(|it| self.first_sample(*it) <= sample);
        let dataset = of_later.last().unwrap_or(DatasetId(0));
        (dataset, SampleId(sample.0 - self.first_sample(dataset).0))
    }

    #[must_use]
    pub fn dataset_of_batch(&self, batch: BatchId) -> DatasetId {
        let section = (!self.further.is_empty()).then(|| self.section_of(batch)).flatten();
        section.map_or(DatasetId(0), |section| section.dataset)
    }

    /// The most samples that a batch has.
    #[must_use]
    pub fn batch_size_max(&self) -> u32 {
        self.further.iter().fold(self.batch_size, |most, it| most.max(it.batch_size))
    }

    /// The first dataset, then each further one that is due.
    pub fn sections(&self, epoch: Epoch) -> impl Iterator<Item = Section> + '_ {
        let is_due = move |dataset: &DatasetId| {
            let further = usize::from(dataset.0).checked_sub(1);
            let further = further.and_then(|at| self.further.iter().nth(at));
            further.is_none_or(|it| it.is_due(epoch))
        };
        let mut next = 0;
        self.datasets().filter(is_due).filter_map(move |dataset| {
            let order = self.of_dataset(dataset)?;
            let (first_step, steps) = (Step(next), order.steps_in(epoch));
            next = next.saturating_add(steps);
            let first_sample = self.first_sample(dataset);
            Some(Section { dataset, order, first_step, steps, first_sample })
        })
    }

    /// `None` if the dataset is not due.
    #[must_use]
    pub fn section(&self, epoch: Epoch, dataset: DatasetId) -> Option<Section> {
        self.sections(epoch).find(|section| section.dataset == dataset)
    }

    /// `None` if there is no such batch.
    #[must_use]
    pub fn section_of(&self, batch: BatchId) -> Option<Section> {
        let is_in = |section: &Section| {
            let steps = section.first_step.0..section.first_step.0.saturating_add(section.steps);
            steps.contains(&batch.step.0)
        };
        self.sections(batch.epoch).find(is_in)
    }

    /// Batches of further datasets that each rank reads in an epoch.
    pub(super) fn further_steps_in(&self, epoch: Epoch) -> u32 {
        if self.further.is_empty() {
            return 0;
        }
        let further = self.sections(epoch).filter(|it| it.dataset != DatasetId(0));
        further.fold(0, |sum, it| sum.saturating_add(it.steps))
    }

    /// As if every dataset were due.
    pub(super) fn further_steps(&self) -> u32 {
        let orders = self.datasets().skip(1).filter_map(|it| self.of_dataset(it));
        orders.fold(0, |sum, it| sum.saturating_add(it.steps_per_epoch()))
    }

    /// Batches of further datasets that each rank reads before `epoch`.
    pub(super) fn further_batches_before(&self, epoch: Epoch) -> u64 {
        let of = |(dataset, further): (DatasetId, &FurtherDataset)| {
            let steps = self.of_dataset(dataset).map_or(0, |order| order.steps_per_epoch());
            let times =
                further.times_before(epoch).checked_sub(further.times_before(self.start.epoch));
            u64::from(steps) * times.unwrap_or(0)
        };
        self.datasets().skip(1).zip(self.further.iter()).map(of).sum()
    }

    pub(super) fn validate_further(&self) -> Result<(), SpecError> {
        if self.further.is_empty() {
            return Ok(());
        }
        if self.shuffle == Shuffle::Published {
            return Err(SpecError::FurtherBesidePublished);
        }
        let samples = self
            .further
            .iter()
            .fold(u64::from(self.samples), |sum, it| sum.saturating_add(it.samples.into()));
        if samples > u64::from(u32::MAX) {
            return Err(SpecError::TooManyInAll { samples });
        }
        if self.further.iter().any(|it| it.every == 0) {
            return Err(SpecError::Zero { field: "every" });
        }
        if self.further.iter().any(|it| it.shuffle == Shuffle::Published) {
            return Err(SpecError::FurtherBesidePublished);
        }
        let mut orders = self.datasets().skip(1).filter_map(|it| self.of_dataset(it));
        orders.try_for_each(|order| order.validate())
    }
}
