//! The datasets that a job reads beside its first one, such as that of a validation: each at the end of
//! every so many epochs, in an order of its own.
//!
//! A job has one sequence of batches for each rank, in which the datasets follow each other, and one
//! numbering of samples and steps: so one session reads, keeps and fetches ahead for all of them.
//!
//! 1. An epoch is a [`Section`] for the first dataset, then one for each further dataset that is due.
//! 2. Within its section a dataset is read as if it were a job of its own ([`Spec::of_dataset`]); samples
//!    and steps are shifted by those of the datasets and sections before.

use super::{FURTHER_MAX, Position, Shuffle, Spec, SpecError};
use crate::id::{BatchId, DatasetId, Epoch, SampleId, Step};

/// A dataset that is read beside the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FurtherDataset {
    /// Samples in it.
    pub samples: u32,
    /// How it is permuted for an epoch; never [`Shuffle::Published`].
    pub shuffle: Shuffle,
    /// Samples per rank and step. The last batch of a section may be shorter.
    pub batch_size: u32,
    /// It is read at the end of each epoch with a number, counted from 1, that this divides.
    pub every: u32,
}

/// The datasets of a job beside the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct FurtherDatasets([Option<FurtherDataset>; FURTHER_MAX]);

/// The part of an epoch in which the ranks read one dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The dataset.
    pub dataset: DatasetId,
    /// The order of the dataset by itself.
    pub order: Spec,
    /// Its first step in the epoch.
    pub first_step: Step,
    /// Steps that it has.
    pub steps: u32,
    /// The first sample of the dataset.
    pub first_sample: SampleId,
}

impl FurtherDatasets {
    /// A job with one dataset.
    pub const NONE: Self = Self([None; FURTHER_MAX]);

    /// These datasets, in the order in which they are read.
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

    /// The datasets, in the order in which they are read.
    pub fn iter(&self) -> impl Iterator<Item = &FurtherDataset> {
        self.0.iter().flatten()
    }

    /// Whether the job has one dataset only.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

impl FurtherDataset {
    /// Whether it is read in an epoch.
    #[must_use]
    pub fn is_due(&self, epoch: Epoch) -> bool {
        (epoch.0 + 1).is_multiple_of(self.every)
    }

    /// Epochs before this one in which it is read.
    fn times_before(&self, epoch: Epoch) -> u64 {
        u64::from(epoch.0 / self.every)
    }
}

impl Section {
    /// The batch of the dataset by itself that a batch of this section is.
    #[must_use]
    pub fn own(&self, batch: BatchId) -> BatchId {
        BatchId { step: Step(batch.step.0.saturating_sub(self.first_step.0)), ..batch }
    }

    /// The batch of the job that a batch of the dataset by itself is.
    #[must_use]
    pub fn in_job(&self, batch: BatchId) -> BatchId {
        BatchId { step: Step(batch.step.0.saturating_add(self.first_step.0)), ..batch }
    }
}

impl Spec {
    /// The order of the first dataset by itself.
    #[must_use]
    pub fn of_first(&self) -> Self {
        Self { further: FurtherDatasets::NONE, ..*self }
    }

    /// The order of a dataset by itself: its samples and the steps of its epochs are counted from 0.
    /// `None` if the job has no such dataset.
    #[must_use]
    pub fn of_dataset(&self, dataset: DatasetId) -> Option<Self> {
        let first = self.of_first();
        let Some(further) = usize::from(dataset.0).checked_sub(1) else { return Some(first) };
        let FurtherDataset { samples, shuffle, batch_size, .. } =
            *self.further.iter().nth(further)?;
        let start = Position { samples: 0, ..self.start };
        Some(Self { samples, shuffle, batch_size, start, drop_last: false, ..first })
    }

    /// The datasets of the job, in the order in which they are read.
    pub fn datasets(&self) -> impl Iterator<Item = DatasetId> + use<> {
        let further = self.further.iter().count();
        (0..=u8::MAX).take(1 + further).map(DatasetId)
    }

    /// Samples of all datasets.
    #[must_use]
    pub fn all_samples(&self) -> u32 {
        self.further.iter().fold(self.samples, |sum, it| sum.saturating_add(it.samples))
    }

    /// The first sample of a dataset.
    #[must_use]
    pub fn first_sample(&self, dataset: DatasetId) -> SampleId {
        let Some(before) = usize::from(dataset.0).checked_sub(1) else { return SampleId(0) };
        let before = self.further.iter().take(before);
        SampleId(before.fold(self.samples, |sum, it| sum.saturating_add(it.samples)))
    }

    /// The dataset of a sample, and the sample's number there.
    #[must_use]
    pub fn dataset_of(&self, sample: SampleId) -> (DatasetId, SampleId) {
        let of_later = self.datasets().skip(1).take_while(|it| self.first_sample(*it) <= sample);
        let dataset = of_later.last().unwrap_or(DatasetId(0));
        (dataset, SampleId(sample.0 - self.first_sample(dataset).0))
    }

    /// The dataset of a batch.
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

    /// What an epoch consists of: the first dataset, then each further one that is due.
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

    /// The part of an epoch in which a dataset is read; `None` if it is not due.
    #[must_use]
    pub fn section(&self, epoch: Epoch, dataset: DatasetId) -> Option<Section> {
        self.sections(epoch).find(|section| section.dataset == dataset)
    }

    /// The part of its epoch that a batch belongs to; `None` if there is no such batch.
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

    /// Batches of further datasets that each rank reads in an epoch in which all of them are due.
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

    /// Checks that the further datasets can be read.
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
