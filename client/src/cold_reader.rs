//! Samples without an agent: files are read by this process, and those of a bucket, or that a transform makes rows of,
//! by a child process of its own ([`Reader`]).
//!
//! Reading, the checks of size and time, the waits for a store and the workers are those of the agent, so samples
//! differ from the agent's only in the time that they take.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tierfeed_core::{
    id::{Epoch, SampleId},
    outage::{Failures, Next, Outage},
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{Index, index::IndexError, read::FileSource, throttle::Throttle};
use tierfeed_handoff::{Briefing, NamedDataset, OnError, monotonic_now};

use crate::{
    left_out::{LeftOut, TooManyLeftOut},
    reader::{Asked, ReadFault, ReadTask, Reader, ReaderError},
};

/// Files with many samples that stay open between reads.
const FILES_MAX: usize = 64;

/// The longest pause of a wait before its caller is asked again.
const PAUSE_MAX: Duration = Duration::from_millis(100);

/// A dataset index, and the means to read the cold store behind it.
#[derive(Debug)]
pub struct ColdReader {
    index: Arc<Index>,
    source: Source,
    /// `None` if samples come as they are stored.
    rows: Option<Rows>,
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
    Children(Children),
}

/// Processes that read, as many as there are callers at a time; those that no caller uses are kept for the next.
#[derive(Debug)]
struct Children {
    exe: PathBuf,
    task: ReadTask,
    idle: Mutex<Vec<Reader>>,
}

#[derive(Debug)]
struct Rows {
    len: Bytes,
    /// Whether trainers get the stored bytes of a sample beside its row: other fields are in them.
    has_fields: bool,
}

/// The right to read: a process answers one caller at a time.
#[derive(Debug)]
pub enum Reading<'a> {
    Files(&'a FileSource),
    Child(ReadingChild<'a>),
}

#[derive(Debug)]
pub struct ReadingChild<'a> {
    /// `None` once it is dropped.
    reader: Option<Reader>,
    of: &'a Children,
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
    /// Opens a dataset of a briefing. `exe` is the `tierfeed` program, which reads what this process does not; none is
    /// started before the first read. An error if the index is not that of the job.
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
        let transform = dataset.transform(briefing);
        let rows = transform.map(|steps| Rows {
            len: Bytes(steps.row_bytes()),
            has_fields: steps.container().is_some(),
        });
        let source = if bucket.is_none() && transform.is_none() {
            Source::Files(FileSource::new(Arc::clone(&index), FILES_MAX))
        } else {
            let task = ReadTask {
                index: path.clone(),
                fingerprint,
                bucket: bucket.clone(),
                transform: transform.cloned(),
                seed: briefing.order.seed,
            };
            Source::Children(Children { exe, task, idle: Mutex::default() })
        };
        let throttle = emulation.map(|emulation| {
            let bandwidth = BytesPerSecond(emulation.bytes_per_s);
            let latency = Nanoseconds(emulation.latency_ns);
            Mutex::new(Throttle::new(Speed { latency, bandwidth }))
        });
        let outage = Mutex::new(Outage::new(briefing.patience()));
        let (on_error, order) = (briefing.on_error, dataset.order());
        let most = on_error.skipped_most(order.samples, order.world.ranks());
        let left_out = Mutex::new(LeftOut::with_most(most));
        Ok(Self { index, source, rows, on_error, left_out, throttle, outage })
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
        self.rows.as_ref().map(|rows| rows.len)
    }

    /// Whether the stored bytes of a sample come beside its row.
    pub fn has_fields(&self) -> bool {
        self.rows.as_ref().is_some_and(|rows| rows.has_fields)
    }

    /// The length of a sample in a batch.
    pub fn len_of(&self, sample: SampleId) -> Bytes {
        self.row_len().unwrap_or_else(|| self.index.size(sample))
    }

    pub fn reading(&self) -> Reading<'_> {
        match &self.source {
            Source::Files(files) => Reading::Files(files),
            Source::Children(children) => Reading::Child(children.reading()),
        }
    }

    /// Reads the first of `samples` into `target`, as a row if the job has a transform; a process may read the
    /// others ahead. `stored` gets the stored bytes if those come beside the row. [`Stop::LeftOut`] or
    /// [`Stop::Unreadable`] if the sample cannot be read, and waiting does not help.
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
        let beside = if self.has_fields() { len } else { Bytes(0) };
        stored.resize(usize::try_from(beside.0).unwrap_or(usize::MAX), 0);
        let outcome =
            self.read_patiently(reading, (samples, epoch), (target, stored), patience, caller);
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
        wanted: (&[SampleId], Epoch),
        (target, stored): (&mut [u8], &mut [u8]),
        patience: StorePatience,
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let outage = || self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = Failures::default();
        loop {
            let begun = monotonic_now();
            let fault = match reading.read_into(wanted, (target, stored), caller) {
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

impl Children {
    /// Does not wait for the list: in a forked child, the thread that held it may not exist.
    fn reading(&self) -> ReadingChild<'_> {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        let reader = idle.unwrap_or_else(|| Reader::new(self.exe.clone(), self.task.clone()));
        ReadingChild { reader: Some(reader), of: self }
    }
}

impl Drop for ReadingChild<'_> {
    fn drop(&mut self) {
        if let Ok(mut idle) = self.of.idle.try_lock() {
            idle.extend(self.reader.take());
        }
    }
}

impl Reading<'_> {
    fn read_into<C: Caller>(
        &mut self,
        (samples, epoch): (&[SampleId], Epoch),
        (target, stored): (&mut [u8], &mut [u8]),
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let reader = match self {
            Self::Files(source) => {
                let read = source.read_into(samples[0], target);
                return read.map_err(|error| Stop::Unreadable(error.into()));
            }
            Self::Child(child) => child.reader.as_mut().expect("it is there until the drop"),
        };
        let wanted: Vec<_> = samples.iter().map(|&sample| Asked { sample, epoch }).collect();
        let mut stop = None;
        let outcome =
            reader.read_into(&wanted, &mut [target, stored], &mut goes_on(caller, &mut stop));
        outcome.map_err(|error| match (stop, error) {
            (Some(stop), _) => Stop::Interrupted(stop),
            (None, ReaderError::Unreadable(fault)) => Stop::Unreadable(fault),
            (None, error) => Stop::NoReader(error),
        })
    }
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
