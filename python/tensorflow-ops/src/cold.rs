//! Batches without an agent, for the calls of TensorFlow.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tierfeed_client::{
    Caller, ColdBatch, Connection, ReadFault, Stop, StorePatience, final_sample, to_usize,
};
use tierfeed_core::{
    batch::Stored,
    id::{BatchId, Epoch, SampleId},
    order::{EpochOrder, Spec},
    session::{Fault, Refusal},
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::{Briefing, LeasedBatch, NamedDataset, Row as LeasedRow};
use tierfeed_transform::Pipeline;

use crate::{
    batch::{Form, Staged, no_memory},
    c_api::{Code, Failure},
    fields::{Fields, WantedField},
    warnings::warn,
};

pub(crate) struct ColdReader {
    reader: tierfeed_client::ColdReader,
    /// The fields that are handed out beside the rows.
    fields: Fields,
    /// The epoch that was read last.
    order: Mutex<Option<(Epoch, Arc<EpochOrder>)>>,
    /// The order of the dataset by itself.
    spec: Spec,
}

impl ColdReader {
    /// Opens the dataset of a briefing. `exe`, the `tierfeed` program, reads what this process does not,
    /// from the first read on.
    pub(crate) fn open(
        briefing: &Briefing,
        dataset: NamedDataset,
        fields: Vec<WantedField>,
        exe: PathBuf,
    ) -> Result<Self, Failure> {
        let reader = tierfeed_client::ColdReader::open(briefing, dataset, exe)
            .map_err(|error| Failure::new(Code::FailedPrecondition, error.to_string()))?;
        let pipeline = dataset.transform(briefing);
        Ok(Self {
            reader,
            fields: Fields::new(pipeline.and_then(Pipeline::container), fields),
            order: Mutex::default(),
            spec: dataset.order(),
        })
    }

    /// The length of every sample, if all have the same.
    pub(crate) fn sample_bytes(&self) -> Option<Bytes> {
        if let Some(row_len) = self.reader.row_len() {
            return Some(row_len);
        }
        let mut sizes = self.reader.index().sizes();
        let first = sizes.next()?;
        sizes.all(|size| size == first).then_some(first)
    }

    /// Reads a batch, while it is wanted.
    pub(crate) fn read(
        &self,
        form: Form,
        batch: BatchId,
        patience: StorePatience,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Staged, Failure> {
        let samples = self.samples(batch)?;
        let read = self.reader.batch(batch, &samples, batch.epoch, patience, &mut Call(is_wanted));
        let mut cold = read.map_err(|stop| match stop {
            Stop::Interrupted(Closed) => closed(),
            Stop::Unreadable(sample, ReadFault { fault, message, .. }) => {
                self.failure(sample, fault, &message)
            }
            Stop::NoReader(error) => {
                let is_of_setup = error.is_of_setup();
                let code = if is_of_setup { Code::FailedPrecondition } else { Code::Unavailable };
                Failure::new(code, error.to_string())
            }
            Stop::NoMemory { source, .. } => no_memory(&source),
        })?;
        for (sample, reason) in &cold.reasons {
            self.leave_out(batch.epoch, *sample, || reason.clone())?;
        }
        let ColdBatch { rows, pages, .. } = &mut cold;
        let fields = self.fields_of(rows, |Stored { offset, len }, stored| {
            stored.copy_from_slice(pages.range(offset, len));
            Ok(())
        })?;
        Ok(Staged { fields, ..Staged::of_cold(form, cold)? })
    }

    pub(crate) fn samples(&self, batch: BatchId) -> Result<Vec<SampleId>, Failure> {
        Ok(self.order_of(batch)?.batch(batch.rank, batch.step).collect())
    }

    /// The failure of a sample that is not read here either, with the agent's reason; `None` without a reason.
    pub(crate) fn final_failure(&self, agent: &Connection, refusal: Refusal) -> Option<Failure> {
        let (sample, fault) = final_sample(refusal)?;
        let reasons = agent.explain([sample]).ok()?;
        Some(self.failure(sample, fault, reasons.get(&sample)?))
    }

    fn order_of(&self, batch: BatchId) -> Result<Arc<EpochOrder>, Failure> {
        let mut kept = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, order)) = kept.as_ref().filter(|(epoch, _)| *epoch == batch.epoch) {
            return Ok(Arc::clone(order));
        }
        let order = self.spec.epoch(batch.epoch).ok_or_else(|| {
            let message = "an order that the trainer publishes cannot be read by a dataset";
            Failure::new(Code::FailedPrecondition, message)
        })?;
        Ok(Arc::clone(&kept.insert((batch.epoch, Arc::new(order))).1))
    }

    /// Counts a sample that training goes on without, and warns of the first ones.
    fn leave_out(
        &self,
        epoch: Epoch,
        sample: SampleId,
        reason: impl Fn() -> String,
    ) -> Result<(), Failure> {
        let said = self.reader.leave_out(epoch, sample, reason);
        let said = said.map_err(|error| Failure::new(Code::DataLoss, error.to_string()))?;
        said.iter().for_each(|message| warn(message));
        Ok(())
    }

    /// Counts the samples that a batch of the agent lacks.
    pub(crate) fn leave_out_of(
        &self,
        agent: &Connection,
        leased: &LeasedBatch,
    ) -> Result<(), Failure> {
        let missing = leased.rows.iter().filter(|row| row.len.is_none()).map(|row| row.sample);
        missing.into_iter().try_for_each(|sample| {
            let unknown = || "the agent could not read or transform it".to_owned();
            let reasons = || agent.explain([sample]).unwrap_or_default();
            let reason = || reasons().remove(&sample).unwrap_or_else(unknown);
            self.leave_out(leased.id.epoch, sample, reason)
        })
    }

    /// The fields that the samples of a batch of the agent have beside their rows.
    pub(crate) fn fields_of_lease(&self, leased: &LeasedBatch) -> Result<Arc<[Vec<u8>]>, Failure> {
        self.fields_of(&leased.rows, |Stored { offset, len }, stored| {
            let of_stored =
                LeasedRow { offset, len: Some(len), shared_tier: None, ..leased.rows[0] };
            let read = leased.read(&of_stored, stored);
            read.map_err(|error| Failure::new(Code::Internal, error.to_string()))
        })
    }

    fn fields_of(
        &self,
        rows: &[LeasedRow],
        mut read: impl FnMut(Stored, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<Arc<[Vec<u8>]>, Failure> {
        let (mut fields, mut bytes) = (Vec::new(), Vec::new());
        if self.fields.is_none() {
            return Ok(fields.into());
        }
        for row in rows.iter().filter(|row| row.len.is_some()) {
            let no_fields = || Failure::new(Code::Internal, "a row has no stored bytes beside it");
            let stored = row.stored.ok_or_else(no_fields)?;
            bytes.resize(to_usize(stored.len), 0);
            read(stored, &mut bytes)?;
            fields.extend(self.fields_of_sample(row.sample, &bytes)?);
        }
        Ok(fields.into())
    }

    fn fields_of_sample(&self, sample: SampleId, stored: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        self.fields.of_sample(stored).map_err(|reason| {
            let (SampleId(id), object) = (sample, self.reader.index().object_name(sample));
            Failure::new(Code::InvalidArgument, format!("sample {id}, {object}: {reason}"))
        })
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.reader.index().has_labels()
    }

    fn failure(&self, SampleId(id): SampleId, fault: Fault, message: &str) -> Failure {
        let code = match fault {
            Fault::Vanished => Code::NotFound,
            Fault::Denied => Code::PermissionDenied,
            Fault::NoSpace => Code::ResourceExhausted,
            Fault::Changed
            | Fault::Truncated
            | Fault::Corrupt
            | Fault::Untransformable
            | Fault::Poisoned(..) => Code::DataLoss,
            Fault::Io | Fault::NoWorker => Code::Unavailable,
        };
        let object = self.reader.index().object_name(SampleId(id));
        let what = if fault == Fault::Untransformable { "transform" } else { "read" };
        let message = if message.contains(&object) {
            format!("cannot {what} sample {id}: {message}")
        } else {
            format!("cannot {what} sample {id}, {object}: {message}")
        };
        Failure::new(code, message)
    }
}

/// A call of TensorFlow, while its dataset is open.
struct Call<'a>(&'a dyn Fn() -> bool);

struct Closed;

impl Caller for Call<'_> {
    type Stop = Closed;

    fn check(&mut self) -> Result<(), Closed> {
        if (self.0)() { Ok(()) } else { Err(Closed) }
    }

    fn outage_begun(&mut self, why: &str) -> Result<(), Closed> {
        warn(&format!("the cold store cannot be read, and training waits for it: {why}"));
        Ok(())
    }

    fn outage_ended(&mut self, lasted: Nanoseconds) -> Result<(), Closed> {
        let seconds = lasted.0 / 1_000_000_000;
        warn(&format!("the cold store can be read again, after {seconds} s"));
        Ok(())
    }
}

/// The failure of a call that waits when its dataset is closed.
pub(crate) fn closed() -> Failure {
    Failure::new(Code::Cancelled, "the dataset was closed")
}
