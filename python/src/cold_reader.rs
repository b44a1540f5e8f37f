//! Batches without an agent: read from the cold store into the memory of this process, by itself, or
//! where that is a bucket by a child process of its own ([`Reader`]).
//!
//! Reading, the checks of size and time and the layout of a batch are the code that the agent runs, so
//! batches differ from the agent's only in the time that they take. The samples of a job with a transform
//! go through workers like those of the agent.

use std::{
    collections::BTreeMap,
    ffi::{CString, OsString},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, TryLockError},
};

use pyo3::{exceptions::PyRuntimeWarning, prelude::*};
use tierfeed_core::{
    batch::{self, Input, Stored},
    id::{BatchId, Epoch, Rank, SampleId, Step},
    outage::{Failures, Next, Outage},
    session::Fault,
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{
    Index,
    read::FileSource,
    reader::{Access, Launch, Reader, ReaderError},
    throttle::Throttle,
};
use tierfeed_handoff::{Briefing, Bucket, NamedDataset, OnError};
use tierfeed_transform::{
    BlockingWorkers,
    blocking_worker::{Sample, TransformError},
    worker_process::Program,
};

use crate::{
    batch::{Batch, Origin, Row},
    clock::{Clock, SignalPoll},
    errors,
    order::Order,
    view_memory::{PrivatePages, to_usize},
};

const UNTRANSFORMABLE: &str = Fault::Untransformable.name();

/// Files with many samples that stay open between reads.
const FILES_MAX: usize = 64;

/// A dataset index, and the means to read the cold store behind it.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct ColdReader {
    index: Arc<Index>,
    source: Source,
    /// Makes rows of the samples; `None` if they come as they are stored.
    workers: Option<BlockingWorkers>,
    /// Whether samples have fields beside the one that becomes the row, for which their stored bytes are
    /// kept.
    has_fields: bool,
    on_error: OnError,
    clock: Clock,
    /// Emulates a slower cold store.
    throttle: Option<Mutex<Throttle>>,
    /// The state of the store for which reads wait.
    outage: Mutex<Outage>,
}

enum Source {
    Files(FileSource),
    Bucket(Launch, Box<Mutex<Reader>>),
}

enum Reading<'a> {
    Files(&'a FileSource),
    Process(&'a mut Reader),
}

/// Why a batch was not read to its end.
enum Stop {
    Interrupted(PyErr),
    Unreadable(SampleId, ReadFault),
    NoReader(ReaderError),
    NoWorker(TransformError),
}

struct ReadFault {
    fault: Fault,
    errno: Option<i32>,
    message: String,
}

impl Source {
    /// Starts no process yet; the first read of a bucket does.
    fn new(index: &Arc<Index>, reader: Option<Launch>) -> Self {
        match reader {
            None => Self::Files(FileSource::new(Arc::clone(index), FILES_MAX)),
            Some(launch) => Self::Bucket(launch.clone(), Box::new(Mutex::new(Reader::new(launch)))),
        }
    }

    /// Calls `work` with a reader. One process answers one caller at a time, so a second thread, or a signal
    /// handler of the first, gets another process.
    fn with<T>(&self, work: impl FnOnce(Reading<'_>) -> T) -> T {
        match self {
            Self::Files(source) => work(Reading::Files(source)),
            Self::Bucket(launch, reader) => match reader.try_lock() {
                Ok(mut reader) => work(Reading::Process(&mut reader)),
                Err(TryLockError::Poisoned(reader)) => {
                    work(Reading::Process(&mut reader.into_inner()))
                }
                Err(TryLockError::WouldBlock) => {
                    work(Reading::Process(&mut Reader::new(launch.clone())))
                }
            },
        }
    }
}

impl Reading<'_> {
    /// Reads the first of `samples` into `target`; a process may read the others ahead.
    fn read_into(
        &mut self,
        samples: &[SampleId],
        target: &mut [u8],
        signals: &SignalPoll<'_>,
    ) -> Result<(), Stop> {
        let Some(&sample) = samples.first() else { return Ok(()) };
        match self {
            Self::Files(source) => source.read_into(sample, target).map_err(|error| {
                let (fault, errno) = (error.fault(), error.errno());
                Stop::Unreadable(sample, ReadFault { fault, errno, message: error.to_string() })
            }),
            Self::Process(reader) => {
                let mut raised = None;
                let outcome = reader.read_into(samples, target, &mut goes_on(signals, &mut raised));
                outcome.map_err(|error| match (raised, error) {
                    (Some(raised), _) => Stop::Interrupted(raised),
                    (None, ReaderError::Unreadable { fault, message }) => {
                        Stop::Unreadable(sample, ReadFault { fault, errno: None, message })
                    }
                    (None, error) => Stop::NoReader(error),
                })
            }
        }
    }
}

impl ColdReader {
    /// Lays samples out as they are stored, or as rows, with their stored bytes behind them if trainers get
    /// those too.
    fn lay_out(&self, id: BatchId, samples: &[SampleId]) -> batch::Batch {
        let sizes = samples.iter().map(|sample| (*sample, self.index.size(*sample)));
        let Some(workers) = &self.workers else { return batch::Batch::lay_out(id, sizes) };
        let input = |(sample, len)| {
            let stored = self.has_fields.then_some(len);
            Input { sample, room: stored.unwrap_or_default(), stored }
        };
        let (layout, _) =
            batch::Batch::lay_out_rows(id, Bytes(workers.row_len()), sizes.map(input));
        layout
    }

    fn known(&self, sample: u32) -> PyResult<SampleId> {
        let samples = self.index.len();
        if sample < samples {
            Ok(SampleId(sample))
        } else {
            Err(errors::no_sample(sample, samples))
        }
    }

    /// Reads every sample of `layout`, which is read in `epoch`. Samples that cannot be read lose their
    /// length; the reasons are returned.
    fn fill(
        &self,
        layout: &mut batch::Batch,
        memory: &mut PrivatePages,
        mut reading: Reading<'_>,
        epoch: u32,
    ) -> Result<BTreeMap<u32, String>, Stop> {
        let mut reasons = BTreeMap::new();
        let signals = self.clock.signal_poll();
        let samples: Vec<_> = layout.entries.iter().map(|entry| entry.sample).collect();
        let mut stored = Vec::new();
        for (at, entry) in layout.entries.iter_mut().enumerate() {
            signals.check().map_err(Stop::Interrupted)?;
            let deadline = self.reserve(self.index.size(entry.sample));
            let (offset, len) = (entry.offset, entry.len.unwrap_or_default());
            let outcome = match &self.workers {
                None => {
                    let target = memory.range(offset, len);
                    self.read_patiently(&mut reading, &samples[at..], target, &signals)
                }
                Some(workers) => {
                    stored.resize(to_usize(self.index.size(entry.sample)), 0);
                    let read =
                        self.read_patiently(&mut reading, &samples[at..], &mut stored, &signals);
                    if let Some(Stored { offset, len }) = entry.stored {
                        memory.range(offset, len).copy_from_slice(&stored);
                    }
                    let row = memory.range(offset, len);
                    read.and_then(|()| {
                        let sample =
                            Sample { number: entry.sample.0.into(), epoch, bytes: &stored };
                        transform(workers, entry.sample, &sample, row, &signals)
                    })
                }
            };
            if let Some(deadline) = deadline {
                signals.wait_until(deadline).map_err(Stop::Interrupted)?;
            }
            match (outcome, self.on_error) {
                (Err(Stop::Unreadable(sample, fault)), OnError::Skip(_))
                    if fault.fault.is_of_sample() =>
                {
                    entry.len = None;
                    reasons.insert(sample.0, fault.message);
                }
                (outcome, _) => outcome?,
            }
        }
        Ok(reasons)
    }

    /// Reads the first of `samples`, and waits for its store as long as the job says.
    fn read_patiently(
        &self,
        reading: &mut Reading<'_>,
        samples: &[SampleId],
        target: &mut [u8],
        signals: &SignalPoll<'_>,
    ) -> Result<(), Stop> {
        let mut failures = Failures::default();
        loop {
            let begun = self.clock.now();
            let read = reading.read_into(samples, target, signals);
            let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.now();
            let Err(Stop::Unreadable(sample, fault)) = read else {
                let lasted = read.is_ok().then(|| outage.succeeded(begun, now)).flatten();
                drop(outage);
                if let Some(lasted) = lasted {
                    warn_of_its_end(lasted).map_err(Stop::Interrupted)?;
                }
                return read;
            };
            let next = outage.failed(&mut failures, fault.fault, now);
            drop(outage);
            let Next::Again { pause, is_said } = next else {
                return Err(Stop::Unreadable(sample, fault));
            };
            if is_said {
                errors::warn_of_outage(&fault.message).map_err(Stop::Interrupted)?;
            }
            let until = Nanoseconds(now.0.saturating_add(pause.0));
            signals.wait_until(until).map_err(Stop::Interrupted)?;
        }
    }

    /// When the emulated cold store would have delivered `len` more bytes; `None` without emulation.
    fn reserve(&self, len: Bytes) -> Option<Nanoseconds> {
        let throttle = self.throttle.as_ref()?;
        let mut throttle = throttle.lock().unwrap_or_else(PoisonError::into_inner);
        Some(throttle.reserve(self.clock.now(), len))
    }
}

/// Warns that an outage is over, and returns what a filter of warnings raises.
fn warn_of_its_end(lasted: Nanoseconds) -> PyResult<()> {
    let seconds = lasted.0 / 1_000_000_000;
    let message = format!("tierfeed: the cold store can be read again, after {seconds} s");
    let message = CString::new(message).unwrap_or_default();
    Python::attach(|py| PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1))
}

fn transform(
    workers: &BlockingWorkers,
    sample: SampleId,
    stored: &Sample<'_>,
    row: &mut [u8],
    signals: &SignalPoll<'_>,
) -> Result<(), Stop> {
    let mut raised = None;
    let outcome = workers.transform_blocking(stored, row, &mut goes_on(signals, &mut raised));
    outcome.map_err(|error| match (raised, error) {
        (Some(raised), _) => Stop::Interrupted(raised),
        (None, error @ (TransformError::Untransformable(_) | TransformError::Crashed(_))) => {
            let fault = ReadFault {
                fault: Fault::Untransformable,
                errno: None,
                message: error.to_string(),
            };
            Stop::Unreadable(sample, fault)
        }
        (None, error) => Stop::NoWorker(error),
    })
}

/// Stops a wait if a signal handler raised, and notes what it raised.
fn goes_on(signals: &SignalPoll<'_>, raised: &mut Option<PyErr>) -> impl FnMut() -> bool {
    || {
        *raised = signals.check().err();
        raised.is_none()
    }
}

#[pymethods]
impl ColdReader {
    /// Opens the dataset of a briefing, the JSON that an agent sends its client and that `tierfeed client`
    /// prints for a job. A bucket is read by `exe`, the `tierfeed` program. Without a name it is the first
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
            let (index_path, fingerprint, bucket, emulation) = match dataset.further(&briefing) {
                None => (
                    &briefing.index_path,
                    briefing.fingerprint,
                    &briefing.bucket,
                    briefing.emulation,
                ),
                Some(it) => (&it.index_path, it.fingerprint, &it.bucket, it.emulation),
            };
            let index = Index::read(index_path).map_err(errors::reconfigure)?;
            let index = Arc::new(index);
            if index.fingerprint() != fingerprint {
                return Err(errors::other_index(index_path));
            }
            let speed = emulation.map(|emulation| Speed {
                latency: Nanoseconds(emulation.latency_ns),
                bandwidth: BytesPerSecond(emulation.bytes_per_s),
            });
            let launch = bucket.clone().map(|bucket| {
                let Bucket { endpoint, region, is_anonymous } = bucket;
                let access = Access { endpoint, region, is_anonymous };
                Launch { exe: exe.clone(), index: index_path.clone(), access }
            });
            let pipeline = dataset.transform(&briefing);
            let has_fields = pipeline.is_some_and(|steps| steps.container().is_some());
            let reader = Self {
                source: Source::new(&index, launch),
                index,
                workers: pipeline.map(|steps| {
                    BlockingWorkers::new(Program::tierfeed(exe), steps, briefing.order.seed)
                }),
                has_fields,
                on_error: briefing.on_error,
                clock: Clock::start(),
                throttle: speed.map(|speed| Mutex::new(Throttle::new(speed))),
                outage: Mutex::new(Outage::new(briefing.patience())),
            };
            Ok((Order::of(dataset), reader))
        })
    }

    /// Identifies the dataset: the xxh3-64 of its index.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.index.fingerprint()
    }

    /// What the job says about a sample that cannot be read.
    #[getter]
    fn on_error(&self) -> &'static str {
        match self.on_error {
            OnError::Fail => "fail",
            OnError::Skip(_) => "skip",
        }
    }

    /// How many of the `samples` of a dataset each of `ranks` may go without in an epoch; one more ends the
    /// training. 0 where the job leaves out none.
    fn skipped_most(&self, samples: u32, ranks: u32) -> u32 {
        self.on_error.skipped_most(samples, ranks)
    }

    /// The classes in the order of their labels, decoded as paths are.
    #[getter]
    fn class_names(&self) -> Vec<OsString> {
        self.index.class_names().to_vec()
    }

    /// The name of `sample` in messages: its file, or its key in a bucket.
    fn object(&self, sample: u32) -> PyResult<String> {
        self.known(sample).map(|sample| self.index.object_name(sample))
    }

    /// The exception for a sample that the agent could not hand over, for the reason of that name; `message` says
    /// more of it.
    #[pyo3(signature = (sample, reason, message=None))]
    fn sample_error(
        &self,
        py: Python<'_>,
        sample: u32,
        reason: &str,
        message: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        let object = self.object(sample)?;
        let what = if reason == UNTRANSFORMABLE { "transform" } else { "read" };
        let why = message.unwrap_or(reason);
        let message = format!("cannot {what} sample {sample}, {object}: {why}");
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
        let mut layout = self.lay_out(id, &ids);
        let mut memory =
            PrivatePages::map(layout.len).map_err(|error| errors::no_memory(layout.len, &error))?;
        let drawn_for = drawn_for.unwrap_or(epoch);
        let filled = py.detach(|| {
            self.source.with(|reading| self.fill(&mut layout, &mut memory, reading, drawn_for))
        });
        let skip_reasons = match filled {
            Ok(reasons) => reasons,
            Err(Stop::Interrupted(raised)) => return Err(raised),
            Err(Stop::NoReader(error)) => return Err(errors::no_reader(&error)),
            Err(Stop::NoWorker(error)) => return Err(errors::reconfigure(error)),
            Err(Stop::Unreadable(SampleId(sample), ReadFault { fault, errno, message })) => {
                let reason = fault.name();
                let object = self.object(sample)?;
                let message = match reason {
                    UNTRANSFORMABLE => {
                        format!("cannot transform sample {sample}, {object}: {message}")
                    }
                    _ => message,
                };
                return Err(errors::unreadable(py, sample, &object, reason, errno, message));
            }
        };
        let label = |sample| self.index.label(sample);
        let rows = layout.entries.iter().map(|entry| Row {
            sample: entry.sample.0,
            label: label(entry.sample),
            offset: entry.offset,
            len: entry.len,
            shared_tier: None,
            stored: entry.stored,
        });
        let batch = Batch::new(id, rows, Origin::Direct, memory.into_memory());
        Ok(batch.with_skip_reasons(skip_reasons))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<ColdReader>()
}
