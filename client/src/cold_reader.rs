//! Samples without an agent: read from the cold store by this process, or where that is a bucket by a child
//! process of its own ([`Reader`]).
//!
//! Reading, the checks of size and time and the waits for a store are those of the agent, so samples differ from the
//! agent's only in the time that they take. The samples of a job with a transform go through workers like those of
//! the agent.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError},
    time::Duration,
};

use tierfeed_core::{
    id::{Epoch, SampleId},
    outage::{Failures, Next, Outage},
    session::Fault,
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{
    Index,
    index::IndexError,
    read::FileSource,
    reader::{Launch, Reader, ReaderError},
    throttle::Throttle,
};
use tierfeed_handoff::{Briefing, NamedDataset, OnError, monotonic_now};
use tierfeed_transform::{
    BlockingWorkers,
    blocking_worker::{Sample, TransformError},
    worker_process::Program,
};

use crate::left_out::{LeftOut, TooManyLeftOut};

/// Files with many samples that stay open between reads.
const FILES_MAX: usize = 64;

/// The longest pause of a wait before its caller is asked again.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A dataset index, and the means to read the cold store behind it.
#[derive(Debug)]
pub struct ColdReader {
    index: Arc<Index>,
    source: Source,
    /// Makes rows of the samples; `None` if they come as they are stored.
    workers: Option<BlockingWorkers>,
    on_error: OnError,
    left_out: Mutex<LeftOut>,
    /// Emulates a slower cold store.
    throttle: Option<Mutex<Throttle>>,
    /// The state of the store for which reads wait.
    outage: Mutex<Outage>,
}

#[derive(Debug)]
enum Source {
    Files(FileSource),
    Bucket(Launch, Box<Mutex<Reader>>),
}

/// The right to read: a process of a bucket answers one caller at a time.
#[derive(Debug)]
pub enum Reading<'a> {
    Files(&'a FileSource),
    Shared(MutexGuard<'a, Reader>),
    Own(Box<Reader>),
}

/// The call that waits for a sample.
pub trait Caller {
    /// The reason for which it does not wait any more.
    type Stop;

    /// Asked before each read, and every 100 ms of a wait. An error ends the wait, as one of the others does.
    fn check(&mut self) -> Result<(), Self::Stop>;

    /// The store cannot be read, and the read waits for it; called at once, then once a minute.
    fn outage_begun(&mut self, why: &str) -> Result<(), Self::Stop>;

    /// The store can be read again.
    fn outage_ended(&mut self, lasted: Nanoseconds) -> Result<(), Self::Stop>;
}

/// The time for which a read waits for a store that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorePatience {
    OfTheJob,
    /// The agent has waited already.
    None,
}

/// The reason that a sample was not read.
#[derive(Debug)]
pub enum Stop<S> {
    /// By [`Caller::check`].
    Interrupted(S),
    /// The training goes on without the sample.
    LeftOut(ReadFault),
    /// It does not.
    Unreadable(ReadFault),
    NoReader(ReaderError),
    NoWorker(TransformError),
}

#[derive(Debug)]
pub struct ReadFault {
    pub fault: Fault,
    pub errno: Option<i32>,
    pub message: String,
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("{} was indexed again since the job started; restart the job", .0.display())]
    IndexedAgain(PathBuf),
}

impl ColdReader {
    /// Opens a dataset of a briefing. `exe` is the `tierfeed` program, which reads a bucket and transforms; no
    /// process is started before the first read. An error if the index is not that of the job.
    pub fn open(
        briefing: &Briefing,
        dataset: NamedDataset,
        exe: PathBuf,
    ) -> Result<Self, OpenError> {
        let (path, fingerprint, bucket, emulation) = match dataset.further(briefing) {
            None => {
                (&briefing.index_path, briefing.fingerprint, &briefing.bucket, briefing.emulation)
            }
            Some(it) => (&it.index_path, it.fingerprint, &it.bucket, it.emulation),
        };
        let index = Arc::new(Index::read(path)?);
        if index.fingerprint() != fingerprint {
            return Err(OpenError::IndexedAgain(path.clone()));
        }
        let source = match bucket.clone() {
            None => Source::Files(FileSource::new(Arc::clone(&index), FILES_MAX)),
            Some(access) => {
                let launch = Launch { exe: exe.clone(), index: path.clone(), access };
                Source::Bucket(launch.clone(), Box::new(Mutex::new(Reader::new(launch))))
            }
        };
        let throttle = emulation.map(|emulation| {
            let bandwidth = BytesPerSecond(emulation.bytes_per_s);
            let latency = Nanoseconds(emulation.latency_ns);
            Mutex::new(Throttle::new(Speed { latency, bandwidth }))
        });
        let seed = briefing.order.seed;
        let workers = dataset
            .transform(briefing)
            .map(|steps| BlockingWorkers::new(Program::tierfeed(exe), steps, seed));
        let outage = Mutex::new(Outage::new(briefing.patience()));
        let (on_error, order) = (briefing.on_error, dataset.order());
        let most = on_error.skipped_most(order.samples, order.world.ranks());
        let left_out = Mutex::new(LeftOut::with_most(most));
        Ok(Self { index, source, workers, on_error, left_out, throttle, outage })
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Counts a sample that training goes on without in an epoch, and returns the warning of it if it is one of the
    /// first. An error if the job does not go without so many.
    pub fn leave_out(
        &self,
        epoch: Epoch,
        sample: SampleId,
        reason: impl Fn() -> String,
    ) -> Result<Option<String>, TooManyLeftOut> {
        let left_out = || self.left_out.lock().unwrap_or_else(PoisonError::into_inner);
        let said = left_out().add(epoch, sample, &reason)?;
        Ok(said.map(|said| {
            let (SampleId(id), object) = (sample, self.index.object_name(sample));
            format!("on_error is skip: sample {id}, {object}, is left out ({}){said}", reason())
        }))
    }

    /// The length of a row; `None` without a transform.
    pub fn row_len(&self) -> Option<Bytes> {
        self.workers.as_ref().map(|workers| Bytes(workers.row_len()))
    }

    /// The length of a sample in a batch.
    pub fn len_of(&self, sample: SampleId) -> Bytes {
        self.row_len().unwrap_or_else(|| self.index.size(sample))
    }

    /// Does not wait: while another thread reads, or the call that a signal handler interrupts, this one gets a
    /// process of its own.
    pub fn reading(&self) -> Reading<'_> {
        match &self.source {
            Source::Files(files) => Reading::Files(files),
            Source::Bucket(launch, reader) => match reader.try_lock() {
                Ok(reader) => Reading::Shared(reader),
                Err(TryLockError::Poisoned(reader)) => Reading::Shared(reader.into_inner()),
                Err(TryLockError::WouldBlock) => {
                    Reading::Own(Box::new(Reader::new(launch.clone())))
                }
            },
        }
    }

    /// Reads the first of `samples` into `target`, as a row if the job has a transform; a process may read the
    /// others ahead. `stored` gets the bytes of which a row is made. [`Stop::LeftOut`] or [`Stop::Unreadable`] if the
    /// sample cannot be read, and waiting does not help.
    pub fn read<C: Caller>(
        &self,
        reading: &mut Reading<'_>,
        (samples, epoch): (&[SampleId], Epoch),
        (target, stored): (&mut [u8], &mut Vec<u8>),
        patience: StorePatience,
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let Some(&sample) = samples.first() else { return Ok(()) };
        caller.check().map_err(Stop::Interrupted)?;
        let len = self.index.size(sample);
        let deadline = self.reserve(len);
        let outcome = match &self.workers {
            None => self.read_patiently(reading, samples, target, patience, caller),
            Some(workers) => {
                stored.resize(usize::try_from(len.0).unwrap_or(usize::MAX), 0);
                self.read_patiently(reading, samples, stored, patience, caller).and_then(|()| {
                    let number = sample.0.into();
                    let sample = Sample { number, epoch: epoch.0, bytes: stored };
                    transform(workers, &sample, target, caller)
                })
            }
        };
        if let Some(deadline) = deadline {
            wait_until(deadline, caller).map_err(Stop::Interrupted)?;
        }
        outcome.map_err(|stop| match (stop, self.on_error) {
            (Stop::Unreadable(it), OnError::Skip(_)) if it.fault.is_of_sample() => {
                Stop::LeftOut(it)
            }
            (stop, _) => stop,
        })
    }

    /// Repeats a read for as long as its store cannot be read.
    fn read_patiently<C: Caller>(
        &self,
        reading: &mut Reading<'_>,
        samples: &[SampleId],
        target: &mut [u8],
        patience: StorePatience,
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let outage = || self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = Failures::default();
        loop {
            let begun = monotonic_now();
            let fault = match reading.read_into(samples, target, caller) {
                Ok(()) => {
                    let ended = outage().succeeded(begun, monotonic_now());
                    return ended.map_or(Ok(()), |lasted| {
                        caller.outage_ended(lasted).map_err(Stop::Interrupted)
                    });
                }
                Err(Stop::Unreadable(fault)) if patience == StorePatience::OfTheJob => fault,
                Err(other) => return Err(other),
            };
            let now = monotonic_now();
            let next = outage().failed(&mut failures, fault.fault, now);
            let Next::Again { pause, is_said } = next else {
                return Err(Stop::Unreadable(fault));
            };
            if is_said {
                caller.outage_begun(&fault.message).map_err(Stop::Interrupted)?;
            }
            let until = Nanoseconds(now.0.saturating_add(pause.0));
            wait_until(until, caller).map_err(Stop::Interrupted)?;
        }
    }

    /// The time at which the emulated cold store would have delivered `len` more bytes; `None` without emulation.
    fn reserve(&self, len: Bytes) -> Option<Nanoseconds> {
        let throttle = self.throttle.as_ref()?;
        let mut throttle = throttle.lock().unwrap_or_else(PoisonError::into_inner);
        Some(throttle.reserve(monotonic_now(), len))
    }
}

impl Reading<'_> {
    fn read_into<C: Caller>(
        &mut self,
        samples: &[SampleId],
        target: &mut [u8],
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let reader: &mut Reader = match self {
            Self::Files(source) => {
                return source.read_into(samples[0], target).map_err(|error| {
                    let (fault, errno) = (error.fault(), error.errno());
                    Stop::Unreadable(ReadFault { fault, errno, message: error.to_string() })
                });
            }
            Self::Shared(reader) => reader,
            Self::Own(reader) => reader,
        };
        let mut stop = None;
        let outcome = reader.read_into(samples, target, &mut goes_on(caller, &mut stop));
        outcome.map_err(|error| match (stop, error) {
            (Some(stop), _) => Stop::Interrupted(stop),
            (None, ReaderError::Unreadable { fault, message }) => {
                Stop::Unreadable(ReadFault { fault, errno: None, message })
            }
            (None, error) => Stop::NoReader(error),
        })
    }
}

fn transform<C: Caller>(
    workers: &BlockingWorkers,
    sample: &Sample<'_>,
    row: &mut [u8],
    caller: &mut C,
) -> Result<(), Stop<C::Stop>> {
    let mut stop = None;
    let outcome = workers.transform_blocking(sample, row, &mut goes_on(caller, &mut stop));
    outcome.map_err(|error| match (stop, error) {
        (Some(stop), _) => Stop::Interrupted(stop),
        (None, error @ (TransformError::Untransformable(_) | TransformError::Crashed(_))) => {
            let (fault, errno) = (Fault::Untransformable, None);
            Stop::Unreadable(ReadFault { fault, errno, message: error.to_string() })
        }
        (None, error) => Stop::NoWorker(error),
    })
}

/// Ends a wait when the caller stops, and keeps its reason.
fn goes_on<C: Caller>(caller: &mut C, stop: &mut Option<C::Stop>) -> impl FnMut() -> bool {
    || {
        *stop = caller.check().err();
        stop.is_none()
    }
}

fn wait_until<C: Caller>(deadline: Nanoseconds, caller: &mut C) -> Result<(), C::Stop> {
    loop {
        let left = deadline.0.saturating_sub(monotonic_now().0);
        if left == 0 {
            return Ok(());
        }
        sleep(Duration::from_nanos(left).min(PAUSE_MAX));
        caller.check()?;
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "emulates a slow cold store, and waits for one that is out: there is no event to wait for"
)]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}
