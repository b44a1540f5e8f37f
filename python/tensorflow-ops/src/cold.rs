//! Batches without an agent: read from the cold store into the memory of this process, by the code that the
//! agent runs; a bucket is read by a child process ([`Reader`]).

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tierfeed_core::{
    batch::Stored,
    id::{BatchId, DatasetId, Epoch, Rank, SampleId},
    order::{EpochOrder, Spec},
    outage::{Failures, Next, Outage},
    session::{Fault, Refusal, Skipped},
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{
    Index,
    read::FileSource,
    reader::{Access, Launch, Reader, ReaderError},
    throttle::Throttle,
};
use tierfeed_handoff::{
    Briefing, Bucket, Explained, LeasedBatch, NamedDataset, OnError, Row as LeasedRow,
    monotonic_now,
};
use tierfeed_transform::{
    BlockingWorkers, Pipeline,
    blocking_worker::{self, TransformError},
    worker_process::Program,
};

use crate::{
    batch::{Form, Staged, Wanted},
    c_api::{Code, Failure},
    connection::Connection,
    fields::{Fields, WantedField},
    memory::to_usize,
    warnings::warn,
};

/// Files with many samples that stay open between reads.
const FILES_MAX: usize = 64;

/// The numbers of left-out samples of which the user is warned, as in `tierfeed/skipped.py`.
const WARNED_AT: [u64; 4] = [1, 10, 100, 1_000];

/// A reader reads one dataset for one rank and does not distinguish others.
const OF_THIS_READER: (Rank, DatasetId) = (Rank(0), DatasetId(0));

/// The longest pause of a read that waits before it checks again whether it is still wanted.
const PAUSE_NS: u64 = 100_000_000;

pub(crate) struct ColdReader {
    index: Arc<Index>,
    source: Source,
    /// Makes rows of the samples; `None` if they come as they are stored.
    workers: Option<BlockingWorkers>,
    /// The fields that are handed out beside the rows.
    fields: Fields,
    on_error: OnError,
    /// The state of the store for which reads wait.
    outage: Mutex<Outage>,
    left_out: Mutex<LeftOut>,
    /// The epoch that was read last.
    order: Mutex<Option<(Epoch, Arc<EpochOrder>)>>,
    /// Emulates a slower cold store.
    throttle: Option<Mutex<Throttle>>,
    dataset: NamedDataset,
    /// The order of the dataset by itself.
    spec: Spec,
}

/// The samples that training went on without.
#[derive(Default)]
struct LeftOut {
    all: u64,
    /// Only those that were read here; the agent counts those of its batches.
    read_here: Skipped,
}

/// How long reads wait for a store that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    OfTheJob,
    /// The agent has waited already.
    None,
}

enum Source {
    Files(FileSource),
    Bucket(Box<Mutex<Reader>>),
}

impl ColdReader {
    /// Opens the dataset of a briefing. A bucket is read by `exe`, the `tierfeed` program, from the first
    /// read on.
    pub(crate) fn open(
        briefing: &Briefing,
        dataset: NamedDataset,
        fields: Vec<WantedField>,
        exe: PathBuf,
    ) -> Result<Self, Failure> {
        let wrong = |message: String| Failure::new(Code::FailedPrecondition, message);
        let (path, fingerprint, bucket, emulation) = match dataset.further(briefing) {
            None => {
                (&briefing.index_path, briefing.fingerprint, &briefing.bucket, briefing.emulation)
            }
            Some(it) => (&it.index_path, it.fingerprint, &it.bucket, it.emulation),
        };
        let index = Index::read(path).map_err(|error| wrong(error.to_string()))?;
        if index.fingerprint() != fingerprint {
            let path = path.display();
            return Err(wrong(format!("the index {path} is of another dataset than the job's")));
        }
        let index = Arc::new(index);
        let source = match bucket.clone() {
            None => Source::Files(FileSource::new(Arc::clone(&index), FILES_MAX)),
            Some(Bucket { endpoint, region, is_anonymous }) => {
                let access = Access { endpoint, region, is_anonymous };
                let launch = Launch { exe: exe.clone(), index: path.clone(), access };
                Source::Bucket(Box::new(Mutex::new(Reader::new(launch))))
            }
        };
        let throttle = emulation.map(|emulation| {
            let bandwidth = BytesPerSecond(emulation.bytes_per_s);
            let latency = Nanoseconds(emulation.latency_ns);
            Mutex::new(Throttle::new(Speed { latency, bandwidth }))
        });
        let pipeline = dataset.transform(briefing);
        let seed = briefing.order.seed;
        Ok(Self {
            index,
            source,
            workers: pipeline.map(|it| BlockingWorkers::new(Program::tierfeed(exe), it, seed)),
            fields: Fields::new(pipeline.and_then(Pipeline::container), fields),
            on_error: briefing.on_error,
            outage: Mutex::new(Outage::new(briefing.patience())),
            left_out: Mutex::default(),
            order: Mutex::default(),
            throttle,
            dataset,
            spec: dataset.order(),
        })
    }

    /// How long a sample is in a batch.
    fn len_of(&self, sample: SampleId) -> Bytes {
        let stored = self.index.size(sample);
        self.workers.as_ref().map_or(stored, |workers| Bytes(workers.row_len()))
    }

    /// The length of every sample, if all have the same.
    pub(crate) fn sample_bytes(&self) -> Option<Bytes> {
        if let Some(workers) = &self.workers {
            return Some(Bytes(workers.row_len()));
        }
        let mut sizes = self.index.sizes();
        let first = sizes.next()?;
        sizes.all(|size| size == first).then_some(first)
    }

    /// Reads a batch, while it is wanted.
    pub(crate) fn read(
        &self,
        form: Form,
        batch: BatchId,
        patience: Patience,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Staged, Failure> {
        let order = self.order_of(batch)?;
        let samples: Vec<_> = order.batch(batch.rank, batch.step).collect();
        self.read_samples(form, batch.epoch, &samples, (patience, is_wanted))
    }

    /// The agent's numbers of the samples of a batch.
    pub(crate) fn samples_in_job(&self, batch: BatchId) -> Result<Vec<SampleId>, Failure> {
        let order = self.order_of(batch)?;
        let samples = order.batch(batch.rank, batch.step);
        Ok(samples.map(|sample| self.dataset.sample_in_job(sample)).collect())
    }

    /// The failure of a sample that the agent could not transform, with the agent's reason: it is not read
    /// here either, because it may crash workers or take minutes. `None` without a reason, and for other
    /// faults: if reading fails too, it says more.
    pub(crate) fn untransformable(
        &self,
        agent: Option<&Connection>,
        sample: SampleId,
        fault: Fault,
    ) -> Option<Failure> {
        let is_final = fault == Fault::Untransformable;
        let agent = agent.filter(|_| is_final)?;
        let reason = agent.reason(self.dataset.sample_in_job(sample))?;
        Some(self.failure(sample, fault, &reason))
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

    fn read_samples(
        &self,
        form: Form,
        epoch: Epoch,
        samples: &[SampleId],
        (patience, is_wanted): (Patience, &dyn Fn() -> bool),
    ) -> Result<Staged, Failure> {
        let (mut stored, mut fields) = (Vec::new(), Vec::new());
        let wanted = samples.iter().map(|sample| Wanted {
            sample: sample.0,
            label: self.index.label(*sample),
            len: self.len_of(*sample),
        });
        let wanted: Vec<_> = wanted.collect();
        let staged = Staged::assemble(form, &wanted, |at, target| {
            if !is_wanted() {
                return Err(closed());
            }
            let len = self.index.size(samples[at]);
            self.pause(len, is_wanted)?;
            let outcome = self.patiently(patience, is_wanted, || match &self.workers {
                None => self.read_into(&samples[at..], target, is_wanted),
                Some(workers) => {
                    stored.resize(to_usize(len), 0);
                    let read = self.read_into(&samples[at..], &mut stored, is_wanted);
                    let sample = blocking_worker::Sample {
                        number: samples[at].0.into(),
                        epoch: epoch.0,
                        bytes: &stored,
                    };
                    read.and_then(|()| transform(workers, &sample, target, is_wanted))
                }
            });
            match outcome {
                Ok(()) => {
                    fields.extend(self.fields_of_sample(samples[at], &stored)?);
                    Ok(true)
                }
                Err(Stop::Unreadable(fault, message))
                    if self.on_error != OnError::Fail && fault.is_of_sample() =>
                {
                    self.leave_out(samples[at], || message);
                    self.check_share(epoch, samples[at], fault).map(|()| false)
                }
                Err(Stop::Unreadable(fault, message)) => {
                    Err(self.failure(samples[at], fault, &message))
                }
                Err(Stop::NoReader(failure)) => Err(failure),
            }
        })?;
        Ok(Staged { fields: fields.into(), ..staged })
    }

    /// Repeats a read while its store cannot be read, for as long as the job says, and warns the user of it.
    fn patiently(
        &self,
        patience: Patience,
        is_wanted: &dyn Fn() -> bool,
        mut read: impl FnMut() -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let outage = || self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = Failures::default();
        loop {
            let begun = monotonic_now();
            let (fault, message) = match read() {
                Ok(()) => {
                    if let Some(time) = outage().succeeded(begun, monotonic_now()) {
                        let seconds = time.0 / 1_000_000_000;
                        warn(&format!("the cold store can be read again, after {seconds} s"));
                    }
                    return Ok(());
                }
                Err(Stop::Unreadable(fault, message)) if patience == Patience::OfTheJob => {
                    (fault, message)
                }
                Err(other) => return Err(other),
            };
            let now = monotonic_now();
            let next = outage().failed(&mut failures, fault, now);
            let Next::Again { pause, is_said } = next else {
                return Err(Stop::Unreadable(fault, message));
            };
            if is_said {
                warn(&format!(
                    "the cold store cannot be read, and training waits for it: {message}"
                ));
            }
            let until = Nanoseconds(now.0.saturating_add(pause.0));
            wait_until(until, is_wanted).map_err(Stop::NoReader)?;
        }
    }

    /// Counts a sample that training goes on without, and warns of the first ones.
    fn leave_out(&self, sample: SampleId, reason: impl FnOnce() -> String) {
        let count = {
            let mut left_out = self.left_out();
            left_out.all += 1;
            left_out.all
        };
        if WARNED_AT.contains(&count) {
            let (SampleId(id), object, reason) = (sample, self.index.object_name(sample), reason());
            let many = if count == 1 { String::new() } else { format!(", the {count}th") };
            warn(&format!("on_error is skip: sample {id}, {object}, is left out ({reason}){many}"));
        }
    }

    /// Fails with the sample that is one too many in an epoch.
    fn check_share(&self, epoch: Epoch, sample: SampleId, fault: Fault) -> Result<(), Failure> {
        let most = self.on_error.skipped_most(self.spec.samples, self.spec.world.ranks());
        let skipped = self.left_out().read_here.note(epoch, OF_THIS_READER, sample, most);
        if skipped <= most {
            return Ok(());
        }
        let refusal = Refusal::TooManySkipped { sample, fault, skipped, most };
        Err(Failure::new(Code::DataLoss, Explained(refusal).to_string()))
    }

    fn left_out(&self) -> MutexGuard<'_, LeftOut> {
        // A poisoned lock guards values that are whole at any time.
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the samples that a batch of the agent lacks.
    pub(crate) fn leave_out_of(&self, agent: &Connection, leased: &LeasedBatch) {
        for row in leased.rows.iter().filter(|row| row.len.is_none()) {
            let unknown = || "the agent could not read or transform it".to_owned();
            let reason = || agent.reason(row.sample).unwrap_or_else(unknown);
            self.leave_out(self.dataset.own_sample(row.sample), reason);
        }
    }

    /// The fields that the samples of a batch of the agent have beside their rows.
    pub(crate) fn fields_of(&self, leased: &LeasedBatch) -> Result<Arc<[Vec<u8>]>, Failure> {
        let mut fields = Vec::new();
        if self.fields.is_none() {
            return Ok(fields.into());
        }
        let (mut stored, named) = (Vec::new(), self.dataset);
        for row in leased.rows.iter().filter(|row| row.len.is_some()) {
            let no_fields = || Failure::new(Code::Internal, "a row has no stored bytes beside it");
            let Stored { offset, len } = row.stored.ok_or_else(no_fields)?;
            stored.resize(to_usize(len), 0);
            let of_stored = LeasedRow { offset, len: Some(len), ..*row };
            let read = leased.read(&of_stored, &mut stored);
            read.map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
            fields.extend(self.fields_of_sample(named.own_sample(row.sample), &stored)?);
        }
        Ok(fields.into())
    }

    fn fields_of_sample(&self, sample: SampleId, stored: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        if self.fields.is_none() {
            return Ok(Vec::new());
        }
        self.fields.of_sample(stored).map_err(|reason| {
            let (SampleId(id), object) = (sample, self.index.object_name(sample));
            Failure::new(Code::InvalidArgument, format!("sample {id}, {object}: {reason}"))
        })
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.index.has_labels()
    }

    fn read_into(
        &self,
        samples: &[SampleId],
        target: &mut [u8],
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<(), Stop> {
        match &self.source {
            Source::Files(source) => source
                .read_into(samples[0], target)
                .map_err(|error| Stop::Unreadable(error.fault(), error.to_string())),
            Source::Bucket(reader) => {
                let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
                let outcome = reader.read_into(samples, target, &mut || is_wanted());
                outcome.map_err(|error| match error {
                    ReaderError::Unreadable { fault, message } => Stop::Unreadable(fault, message),
                    ReaderError::Interrupted => Stop::NoReader(closed()),
                    error => Stop::NoReader(Failure::new(Code::Unavailable, error.to_string())),
                })
            }
        }
    }

    /// Waits for as long as an emulated cold store takes for `len` more bytes.
    fn pause(&self, len: Bytes, is_wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
        let Some(throttle) = &self.throttle else { return Ok(()) };
        let now = monotonic_now();
        let until = throttle.lock().unwrap_or_else(PoisonError::into_inner).reserve(now, len);
        wait_until(until, is_wanted)
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
        let object = self.index.object_name(SampleId(id));
        let what = if fault == Fault::Untransformable { "transform" } else { "read" };
        let message = if message.contains(&object) {
            format!("cannot {what} sample {id}: {message}")
        } else {
            format!("cannot {what} sample {id}, {object}: {message}")
        };
        Failure::new(code, message)
    }
}

enum Stop {
    Unreadable(Fault, String),
    NoReader(Failure),
}

fn transform(
    workers: &BlockingWorkers,
    stored: &blocking_worker::Sample<'_>,
    row: &mut [u8],
    is_wanted: &dyn Fn() -> bool,
) -> Result<(), Stop> {
    workers.transform_blocking(stored, row, &mut || is_wanted()).map_err(|error| match error {
        TransformError::Untransformable(_) | TransformError::Crashed(_) => {
            Stop::Unreadable(Fault::Untransformable, error.to_string())
        }
        TransformError::Interrupted => Stop::NoReader(closed()),
        error => Stop::NoReader(Failure::new(Code::FailedPrecondition, error.to_string())),
    })
}

/// Waits for a time, while the batch is wanted.
fn wait_until(until: Nanoseconds, is_wanted: &dyn Fn() -> bool) -> Result<(), Failure> {
    loop {
        let left = until.0.saturating_sub(monotonic_now().0);
        if left == 0 {
            return Ok(());
        }
        if !is_wanted() {
            return Err(closed());
        }
        sleep(left.min(PAUSE_NS));
    }
}

/// The failure of a call that waits when its dataset is closed.
pub(crate) fn closed() -> Failure {
    Failure::new(Code::Cancelled, "the dataset was closed")
}

#[expect(
    clippy::disallowed_methods,
    reason = "emulates a slow cold store: there is no event to wait for"
)]
fn sleep(nanoseconds: u64) {
    std::thread::sleep(std::time::Duration::from_nanos(nanoseconds));
}
