//! Batches without an agent, in private memory of this process.

use std::{
    ffi::{CString, OsString},
    path::PathBuf,
};

use pyo3::{exceptions::PyRuntimeWarning, prelude::*};
use tierfeed_client::{Caller, ColdBatch, ReadFault, Stop, StorePatience};
use tierfeed_core::{
    id::{BatchId, Epoch, Rank, SampleId, Step},
    session::Fault,
    units::Nanoseconds,
};
use tierfeed_handoff::{Briefing, NamedDataset};

use crate::{
    batch::{Batch, Origin},
    clock::SignalPoll,
    errors,
    order::Order,
};

const UNTRANSFORMABLE: &str = Fault::Untransformable.name();

/// A dataset index, and the means to read the cold store behind it.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct ColdReader {
    reader: tierfeed_client::ColdReader,
}

impl ColdReader {
    fn unreadable(&self, py: Python<'_>, sample: SampleId, fault: ReadFault) -> PyErr {
        let ReadFault { fault, errno, message } = fault;
        let (reason, object) = (fault.name(), self.reader.index().object_name(sample));
        let message = match reason {
            UNTRANSFORMABLE => format!("cannot transform sample {}, {object}: {message}", sample.0),
            _ => message,
        };
        errors::unreadable(py, sample.0, &object, reason, errno, message)
    }

    fn known(&self, sample: u32) -> PyResult<SampleId> {
        let samples = self.reader.index().len();
        if sample < samples {
            Ok(SampleId(sample))
        } else {
            Err(errors::no_sample(sample, samples))
        }
    }
}

impl Caller for SignalPoll {
    type Stop = PyErr;

    fn check(&mut self) -> PyResult<()> {
        SignalPoll::check(self)
    }

    fn outage_begun(&mut self, why: &str) -> PyResult<()> {
        errors::warn_of_outage(why)
    }

    fn outage_ended(&mut self, lasted: Nanoseconds) -> PyResult<()> {
        let seconds = lasted.0 / 1_000_000_000;
        let message = format!("tierfeed: the cold store can be read again, after {seconds} s");
        let message = CString::new(message).unwrap_or_default();
        Python::attach(|py| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1))
    }
}

#[pymethods]
impl ColdReader {
    /// Opens the dataset of a briefing, the JSON that an agent sends its client and that `tierfeed client`
    /// prints for a job. `exe`, the `tierfeed` program, reads buckets and makes rows. Without a name it is the first
    /// dataset of the job.
    #[staticmethod]
    #[pyo3(signature = (briefing, exe, dataset=None))]
    fn of_briefing(
        py: Python<'_>,
        briefing: &str,
        exe: PathBuf,
        dataset: Option<&str>,
    ) -> PyResult<(Order, Self)> {
        py.detach(|| {
            let briefing: Briefing = serde_json::from_str(briefing).map_err(errors::reconfigure)?;
            let dataset = NamedDataset::find(&briefing, dataset).map_err(errors::reconfigure)?;
            let reader = tierfeed_client::ColdReader::open(&briefing, dataset, exe);
            Ok((Order::of(dataset), Self { reader: reader.map_err(errors::reconfigure)? }))
        })
    }

    /// Counts a sample that training goes on without in an epoch; a warning if it is one of the first. Raises
    /// `SampleError` if the job does not go without so many.
    fn leave_out(
        &self,
        py: Python<'_>,
        epoch: u32,
        sample: u32,
        reason: &str,
    ) -> PyResult<Option<String>> {
        let left_out =
            self.reader.leave_out(Epoch(epoch), self.known(sample)?, || reason.to_owned());
        left_out.or_else(|error| {
            let error = self.sample_error(py, sample, "too-many-skipped", &error.to_string())?;
            Err(PyErr::from_value(error.into_bound(py)))
        })
    }

    /// The classes in the order of their labels, decoded as paths are.
    #[getter]
    fn class_names(&self) -> Vec<OsString> {
        self.reader.index().class_names().to_vec()
    }

    /// The name of `sample` in messages: its file, or its key in a bucket.
    fn object(&self, sample: u32) -> PyResult<String> {
        self.known(sample).map(|sample| self.reader.index().object_name(sample))
    }

    /// The exception for a sample that the agent could not hand over, for the reason of that name; `message` says
    /// more of it.
    fn sample_error(
        &self,
        py: Python<'_>,
        sample: u32,
        reason: &str,
        message: &str,
    ) -> PyResult<Py<PyAny>> {
        let object = self.object(sample)?;
        let what = if reason == UNTRANSFORMABLE { "transform" } else { "read" };
        let message = format!("cannot {what} sample {sample}, {object}: {message}");
        let error = errors::unreadable(py, sample, &object, reason, None, message);
        Ok(error.into_value(py).into_any())
    }

    /// Reads `samples`, in this order, as the batch of a place in an order. What a transform draws for them is
    /// that of the epoch `drawn_for`, by default that of the place.
    #[pyo3(signature = (epoch, step, rank, samples, *, drawn_for=None))]
    fn read(
        &self,
        py: Python<'_>,
        epoch: u32,
        step: u32,
        rank: u32,
        samples: Vec<u32>,
        drawn_for: Option<u32>,
    ) -> PyResult<Batch> {
        let id = BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(rank) };
        let ids = samples.into_iter().map(|sample| self.known(sample));
        let ids = ids.collect::<PyResult<Vec<_>>>()?;
        let drawn_for = Epoch(drawn_for.unwrap_or(epoch));
        let read = py.detach(|| {
            let (patience, mut signals) = (StorePatience::OfTheJob, SignalPoll::start());
            self.reader.batch(id, &ids, drawn_for, patience, &mut signals)
        });
        let ColdBatch { rows, pages, reasons } = read.map_err(|stop| match stop {
            Stop::Interrupted(raised) => raised,
            Stop::NoReader(error) => errors::no_reader(&error),
            Stop::NoMemory { len, source } => errors::no_memory(len, &source),
            Stop::Unreadable(sample, fault) => self.unreadable(py, sample, fault),
        })?;
        let reasons = reasons.into_iter().map(|(SampleId(sample), reason)| (sample, reason));
        let batch = Batch::new(id, rows, Origin::Direct, pages.into_memory());
        Ok(batch.with_skip_reasons(reasons.collect()))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ColdReader>()
}
