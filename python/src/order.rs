//! The samples that a rank reads at each step, for the Python side: computed as the agent computes it,
//! or kept as the trainer published it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use pyo3::{exceptions::PyIndexError, prelude::*};
use tierfeed_client::EpochStep;
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, SampleId, Step},
    order::{EpochOrder, Shuffle, Spec},
};

use tierfeed_handoff::NamedDataset;

use crate::errors::Reconfigure;

/// Computed epochs that are kept, 4 bytes a sample each: the current one and the next.
const EPOCHS_KEPT: usize = 2;

/// The order of a dataset of a job, and of the epochs beyond it as more of them would have it.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Order {
    /// With as many epochs as can be counted.
    spec: Spec,
    /// The number of epochs of the job.
    epochs: u32,
    every: u32,
    sequence: String,
    computed: Mutex<Vec<(Epoch, Arc<EpochOrder>)>>,
    /// The orders that this process published.
    published: Mutex<Published>,
}

type Published = BTreeMap<(Epoch, Rank), Arc<Vec<u32>>>;

enum RankOrder {
    Computed(Arc<EpochOrder>),
    Published(Arc<Vec<u32>>),
}

impl Order {
    /// The order of a dataset by itself.
    pub(crate) fn of(dataset: NamedDataset) -> Self {
        let (spec, every, sequence) = (dataset.order(), dataset.every(), dataset.sequence());
        Self {
            epochs: spec.epochs,
            spec: Spec { epochs: u32::MAX, ..spec },
            every,
            sequence,
            computed: Mutex::default(),
            published: Mutex::default(),
        }
    }

    fn published(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, epoch: i64, step: i64, rank: u32) -> PyResult<BatchId> {
        let outside = || {
            let (steps, ranks) = (self.spec.steps_per_epoch(), self.spec.world.ranks());
            PyIndexError::new_err(format!(
                "no batch at epoch {epoch}, step {step}, rank {rank}: \
                 an epoch has {steps} steps for {ranks} ranks"
            ))
        };
        let epoch = Epoch(u32::try_from(epoch).map_err(|_| outside())?);
        let step = Step(u32::try_from(step).map_err(|_| outside())?);
        let batch = BatchId { epoch, step, rank: Rank(rank) };
        if self.spec.contains(batch) { Ok(batch) } else { Err(outside()) }
    }

    fn of_rank(&self, epoch: Epoch, rank: Rank) -> PyResult<RankOrder> {
        if self.spec.shuffle == Shuffle::Published {
            let published = self.published().get(&(epoch, rank)).map(Arc::clone);
            return published.map(RankOrder::Published).ok_or_else(|| {
                let message = format!(
                    "the order of epoch {} was not published for rank {}; call publish() first",
                    epoch.0, rank.0
                );
                Reconfigure::new_err(message)
            });
        }
        let mut computed = self.computed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = computed.iter().find(|(known, _)| *known == epoch) {
            return Ok(RankOrder::Computed(Arc::clone(order)));
        }
        let order = Arc::new(self.spec.epoch(epoch).expect("only published orders are unknown"));
        if computed.len() == EPOCHS_KEPT {
            computed.remove(0);
        }
        computed.push((epoch, Arc::clone(&order)));
        Ok(RankOrder::Computed(order))
    }

    /// The first step whose samples `is_it`, searched from `near` on and around the end.
    fn search(
        &self,
        (epoch, rank): (Epoch, Rank),
        near: Step,
        is_it: impl Fn(&mut dyn Iterator<Item = u32>) -> bool,
    ) -> PyResult<Option<Step>> {
        let order = self.of_rank(epoch, rank)?;
        let steps = order.steps(&self.spec, epoch);
        let near = near.0.min(steps);
        let mut candidates = (near..steps).chain(0..near).map(Step);
        Ok(candidates.find(|step| is_it(&mut order.batch(&self.spec, rank, *step))))
    }
}

impl RankOrder {
    fn steps(&self, spec: &Spec, epoch: Epoch) -> u32 {
        match self {
            Self::Computed(_) => spec.steps_in(epoch),
            Self::Published(samples) => {
                let samples = u32::try_from(samples.len()).expect("no more than the job says");
                samples.div_ceil(spec.batch_size)
            }
        }
    }

    fn batch(&self, spec: &Spec, rank: Rank, step: Step) -> Box<dyn Iterator<Item = u32> + '_> {
        match self {
            Self::Computed(order) => Box::new(order.batch(rank, step).map(|SampleId(id)| id)),
            Self::Published(samples) => {
                let first = step.0 as usize * spec.batch_size as usize;
                Box::new(samples.iter().skip(first).take(spec.batch_size as usize).copied())
            }
        }
    }
}

#[pymethods]
impl Order {
    /// Samples in the dataset.
    #[getter]
    fn samples(&self) -> u32 {
        self.spec.samples
    }

    /// Passes over the dataset that the job has.
    #[getter]
    fn epochs(&self) -> u32 {
        self.epochs
    }

    /// What fixes the sequence of an epoch, as JSON.
    #[getter]
    fn sequence(&self) -> &str {
        &self.sequence
    }

    /// The dataset is read at the end of each epoch with a number, counted from 1, that this divides.
    #[getter]
    fn every(&self) -> u32 {
        self.every
    }

    /// Samples per rank and step.
    #[getter]
    fn batch_size(&self) -> u32 {
        self.spec.batch_size
    }

    /// Batches that each rank reads in an epoch.
    #[getter]
    fn steps_per_epoch(&self) -> u32 {
        self.spec.steps_per_epoch()
    }

    /// Samples that each rank reads in an epoch.
    #[getter]
    fn samples_per_rank(&self) -> u32 {
        self.spec.samples_per_rank()
    }

    /// Training processes of the job.
    #[getter]
    fn world(&self) -> u32 {
        self.spec.world.ranks()
    }

    /// Nodes of the job.
    #[getter]
    fn nodes(&self) -> u32 {
        self.spec.world.nodes
    }

    /// Training processes of each node.
    #[getter]
    fn ranks_per_node(&self) -> u32 {
        self.spec.world.ranks_per_node
    }

    /// The seed of the permutation.
    #[getter]
    fn seed(&self) -> u64 {
        self.spec.seed
    }

    /// The name of the shuffle, as in job files.
    #[getter]
    fn shuffle(&self) -> &'static str {
        self.spec.shuffle.name()
    }

    /// Whether the end of an epoch is cut instead of padded.
    #[getter]
    fn drop_last(&self) -> bool {
        self.spec.drop_last
    }

    /// Where the job begins to read: the epoch, and the samples of it that were read before.
    #[getter]
    fn start(&self) -> (u32, u32) {
        (self.spec.start.epoch.0, self.spec.start.samples)
    }

    /// Batches that `rank` reads in `epoch`: fewer in one that is resumed or was published shorter.
    fn steps_in(&self, epoch: u32, rank: u32) -> u32 {
        let (epoch, rank) = (Epoch(epoch), Rank(rank));
        match self.published().get(&(epoch, rank)) {
            Some(samples) => RankOrder::Published(Arc::clone(samples)).steps(&self.spec, epoch),
            None => self.spec.steps_in(epoch),
        }
    }

    /// The place after one, where `rank` reads.
    fn following(&self, place: EpochStep, rank: u32) -> EpochStep {
        tierfeed_client::following(place, self.steps_in(place.0, rank))
    }

    /// The places after one and before `end_epoch` that are requested with it.
    fn window(
        &self,
        place: EpochStep,
        rank: u32,
        end_epoch: u32,
        batches_ahead: u32,
    ) -> Vec<EpochStep> {
        let steps_in = |epoch| self.steps_in(epoch, rank);
        tierfeed_client::window(place, end_epoch, batches_ahead, steps_in)
    }

    /// The epoch, and the samples of it that all ranks have read, when each has read `steps` batches of
    /// `epoch`: where a job with any other world may start.
    fn position_after(&self, epoch: u32, steps: u32) -> (u32, u32) {
        let position = self.spec.position_after(Epoch(epoch), steps);
        (position.epoch.0, position.samples)
    }

    /// Refuses a place that the order does not have.
    fn check(&self, epoch: i64, step: i64, rank: u32) -> PyResult<()> {
        self.place(epoch, step, rank).map(|_| ())
    }

    /// The samples of one batch, in reading order.
    fn batch(&self, py: Python<'_>, epoch: i64, step: i64, rank: u32) -> PyResult<Vec<u32>> {
        let BatchId { epoch, step, rank } = self.place(epoch, step, rank)?;
        py.detach(|| Ok(self.of_rank(epoch, rank)?.batch(&self.spec, rank, step).collect()))
    }

    /// The step whose batch is exactly `samples`, searched from step `near` on and around the end.
    fn find(
        &self,
        py: Python<'_>,
        epoch: u32,
        rank: u32,
        samples: Vec<u32>,
        near: u32,
    ) -> PyResult<Option<u32>> {
        let found = py.detach(move || {
            self.search((Epoch(epoch), Rank(rank)), Step(near), |batch| {
                batch.eq(samples.iter().copied())
            })
        })?;
        Ok(found.map(|step| step.0))
    }

    /// The step whose batch begins with `sample`, searched likewise.
    fn starting_with(
        &self,
        py: Python<'_>,
        epoch: u32,
        rank: u32,
        sample: u32,
        near: u32,
    ) -> PyResult<Option<u32>> {
        let found = py.detach(|| {
            self.search((Epoch(epoch), Rank(rank)), Step(near), |batch| {
                batch.next() == Some(sample)
            })
        })?;
        Ok(found.map(|step| step.0))
    }

    /// Keeps what `rank` will read in `epoch`, and forgets its epochs before the last one.
    fn publish(&self, epoch: u32, rank: u32, samples: Vec<u32>) -> PyResult<()> {
        if self.spec.shuffle != Shuffle::Published {
            let message = format!(
                "the job's order is {}; only a job with `shuffle: published` takes an order",
                self.spec.shuffle.name()
            );
            return Err(Reconfigure::new_err(message));
        }
        let wanted = self.spec.samples_per_rank_in(Epoch(epoch));
        if samples.is_empty() || samples.len() > wanted as usize {
            let message = format!(
                "{} samples published for epoch {epoch}; each rank reads from 1 to {wanted}",
                samples.len()
            );
            return Err(Reconfigure::new_err(message));
        }
        if let Some(unknown) = samples.iter().find(|sample| **sample >= self.spec.samples) {
            let message = format!("sample {unknown}; the dataset has {}", self.spec.samples);
            return Err(Reconfigure::new_err(message));
        }
        self.published().insert((Epoch(epoch), Rank(rank)), Arc::new(samples));
        Ok(())
    }

    /// What `rank` published and was not forgotten, by epoch.
    #[pyo3(name = "published")]
    fn published_by(&self, rank: u32) -> BTreeMap<u32, Vec<u32>> {
        let published = self.published();
        let of_rank = published.iter().filter(|((_, known), _)| known.0 == rank);
        of_rank.map(|((epoch, _), samples)| (epoch.0, samples.to_vec())).collect()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.spec == other.spec && self.epochs == other.epochs && self.every == other.every
    }

    /// Forgets the epochs that were published before `epoch`.
    fn forget_before(&self, epoch: u32) {
        self.published().retain(|(known, _), _| known.0 >= epoch);
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Order>()
}
