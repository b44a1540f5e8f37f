//! Batches without an agent: read from the cold store by this process, into its own memory.
//!
//! The same source code as the agent's, with the same checks of size and time, and the same layout of
//! a batch, so that a trainer cannot tell the difference except by the clock.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::prelude::*;
use tierfeed_core::{
    batch,
    id::{BatchId, Epoch, Rank, SampleId, Step},
    order::Spec,
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_prefetcher::{
    handoff::{self, Briefing},
    source::{FileSource, ReadError},
    throttle::Throttle,
};
use tierfeed_workload_analyzer::{Index, Job, job::OnError};

use crate::{
    batch::{Batch, Origin, Row},
    clock::Clock,
    errors,
    held::Blank,
    order::Order,
};

/// Files with many samples that stay open between reads.
const FILES_MAX: usize = 64;

/// A dataset index and the cold store behind it.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Local {
    source: FileSource,
    on_error: OnError,
    clock: Clock,
    /// A cold store that is played slower than it is.
    throttle: Option<Mutex<Throttle>>,
}

/// Why a batch was not read to its end.
enum Stop {
    Interrupted(PyErr),
    Unreadable(SampleId, ReadError),
}

impl Local {
    fn new(index: Index, on_error: OnError, speed: Option<Speed>) -> Self {
        let source = FileSource::new(Arc::new(index), FILES_MAX);
        let throttle = speed.map(|speed| Mutex::new(Throttle::new(speed)));
        Self { source, on_error, clock: Clock::start(), throttle }
    }

    fn index(&self) -> &Index {
        self.source.index()
    }

    fn known(&self, sample: u32) -> PyResult<SampleId> {
        let samples = self.index().len();
        if sample < samples {
            Ok(SampleId(sample))
        } else {
            Err(errors::no_sample(sample, samples))
        }
    }

    /// Reads every sample of `layout`; those that cannot be read lose their length.
    fn fill(&self, layout: &mut batch::Batch, memory: &mut Blank) -> Result<(), Stop> {
        let watch = self.clock.watch();
        for entry in &mut layout.entries {
            watch.check().map_err(Stop::Interrupted)?;
            let len = entry.len.unwrap_or_default();
            let deadline = self.reserve(len);
            let outcome = self.source.read_into(entry.sample, memory.place(entry.offset, len));
            if let Some(deadline) = deadline {
                watch.wait_until(deadline).map_err(Stop::Interrupted)?;
            }
            match (outcome, self.on_error) {
                (Ok(()), _) => (),
                (Err(_), OnError::Skip) => entry.len = None,
                (Err(error), OnError::Fail) => return Err(Stop::Unreadable(entry.sample, error)),
            }
        }
        Ok(())
    }

    fn reserve(&self, len: Bytes) -> Option<Nanoseconds> {
        let throttle = self.throttle.as_ref()?;
        let mut throttle = throttle.lock().unwrap_or_else(PoisonError::into_inner);
        Some(throttle.reserve(self.clock.now(), len))
    }
}

#[pymethods]
impl Local {
    /// Opens what a job file and an index file describe. Without an index, the one that the job names.
    ///
    /// Never lists the dataset itself: that takes threads, and this is the trainer's process.
    #[staticmethod]
    fn of_job(py: Python<'_>, job: PathBuf, index: Option<PathBuf>) -> PyResult<(Order, Self)> {
        py.detach(move || {
            let path = job;
            let job = Job::load(&path).map_err(errors::reconfigure)?;
            let index = index.or_else(|| job.dataset.index.clone());
            let index = index.ok_or_else(|| errors::no_index(&path))?;
            let index = Index::open(&index).map_err(errors::reconfigure)?;
            index.check(&job.dataset).map_err(errors::reconfigure)?;
            let spec = job.order(index.len()).map_err(errors::reconfigure)?;
            Ok((Order::new(spec), Self::new(index, job.on_error, job.dataset.speed)))
        })
    }

    /// Opens what an agent told its client, as JSON.
    #[staticmethod]
    fn of_briefing(py: Python<'_>, briefing: &str) -> PyResult<(Order, Self)> {
        py.detach(|| {
            let briefing: Briefing = serde_json::from_str(briefing).map_err(errors::reconfigure)?;
            let index = Index::open(&briefing.index_path).map_err(errors::reconfigure)?;
            if index.fingerprint() != briefing.fingerprint {
                return Err(errors::other_index(&briefing.index_path));
            }
            let spec: Spec = briefing.order;
            let on_error = match briefing.on_error {
                handoff::OnError::Fail => OnError::Fail,
                handoff::OnError::Skip => OnError::Skip,
            };
            let speed = briefing.emulation.map(|emulation| Speed {
                latency: Nanoseconds(emulation.latency_ns),
                bandwidth: BytesPerSecond(emulation.bytes_per_s),
            });
            Ok((Order::new(spec), Self::new(index, on_error, speed)))
        })
    }

    /// Tells this dataset from any other: the xxh3-64 of its index.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.index().fingerprint()
    }

    /// The classes in the order of their labels.
    #[getter]
    fn class_names(&self) -> Vec<String> {
        self.index().class_names().to_vec()
    }

    /// What `sample` is called in messages.
    fn object(&self, sample: u32) -> PyResult<String> {
        self.known(sample).map(|sample| self.index().object_name(sample))
    }

    /// The exception for a sample that the agent could not read, for the reason of that name.
    fn sample_error(&self, py: Python<'_>, sample: u32, reason: &str) -> PyResult<Py<PyAny>> {
        let object = self.object(sample)?;
        let message = format!("cannot read sample {sample}, {object}: {reason}");
        Ok(errors::unreadable(py, sample, &object, reason, message).into_value(py).into_any())
    }

    /// Reads `samples`, in this order, as the batch of a place in an order.
    fn read(
        &self,
        py: Python<'_>,
        epoch: u32,
        step: u32,
        rank: u32,
        samples: Vec<u32>,
    ) -> PyResult<Batch> {
        let id = BatchId { epoch: Epoch(epoch), step: Step(step), rank: Rank(rank) };
        let ids = samples.into_iter().map(|sample| self.known(sample));
        let ids = ids.collect::<PyResult<Vec<_>>>()?;
        let sizes = ids.into_iter().map(|sample| (sample, self.index().size(sample)));
        let mut layout = batch::Batch::lay_out(id, sizes);
        let mut memory =
            Blank::map(layout.len).map_err(|error| errors::no_memory(layout.len, &error))?;
        match py.detach(|| self.fill(&mut layout, &mut memory)) {
            Ok(()) => (),
            Err(Stop::Interrupted(raised)) => return Err(raised),
            Err(Stop::Unreadable(SampleId(sample), error)) => {
                let object = self.object(sample)?;
                let reason = error.fault().name();
                return Err(errors::unreadable(py, sample, &object, reason, error.to_string()));
            }
        }
        let label = |sample| self.index().label(sample).map(i64::from);
        let rows = layout.entries.iter().map(|entry| Row {
            sample: entry.sample.0,
            label: label(entry.sample),
            offset: entry.offset,
            len: entry.len,
        });
        Ok(Batch::new(id, rows, Origin::Direct, memory.into_held()))
    }
}

/// Adds the class to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Local>()
}
