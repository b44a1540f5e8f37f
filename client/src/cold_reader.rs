//! Samples without an agent: files are read by this process, and those of a bucket, or that a transform makes rows of,
//! by a child process of its own ([`Reader`]).
//!
//! Reading, the checks of size and time, the waits for a store and the workers are those of the agent, so samples
//! differ from the agent's only in the time that they take.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tierfeed_core::{
    batch::{Batch, Input, Stored},
    id::{BatchId, Epoch, SampleId},
    outage::{Failures, Next, Outage},
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::{Index, index::IndexError, read::FileSource, throttle::Throttle};
use tierfeed_handoff::{Briefing, NamedDataset, OnError, Row, monotonic_now};

use crate::{
    left_out::{LeftOut, TooManyLeftOut},
    memory::{PrivatePages, to_usize},
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
    Children(Box<Children>),
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

/// A batch in memory of this process, laid out as one of the agent.
#[derive(Debug)]
pub struct ColdBatch {
    pub rows: Vec<Row>,
    pub pages: PrivatePages,
    /// Why samples have no length.
    pub reasons: BTreeMap<SampleId, String>,
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

/// The reason that a batch was not read.
#[derive(Debug)]
pub enum Stop<S> {
    /// By [`Caller::check`].
    Interrupted(S),
    /// The training does not go on without the sample.
    Unreadable(SampleId, ReadFault),
    NoReader(ReaderError),
    NoMemory {
        len: Bytes,
        source: io::Error,
    },
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
            Source::Children(Box::new(Children { exe, task, idle: Mutex::default() }))
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

    /// Reads `samples`, in this order, as the batch of a place in an order, drawn for in `epoch`.
    pub fn batch<C: Caller>(
        &self,
        id: BatchId,
        samples: &[SampleId],
        epoch: Epoch,
        patience: StorePatience,
        caller: &mut C,
    ) -> Result<ColdBatch, Stop<C::Stop>> {
        let mut layout = self.lay_out(id, samples);
        let no_memory = |source| Stop::NoMemory { len: layout.len, source };
        let mut pages = PrivatePages::map(layout.len).map_err(no_memory)?;
        let mut reader = None;
        let (mut reasons, mut stored) = (BTreeMap::new(), Vec::new());
        for (at, entry) in layout.entries.iter_mut().enumerate() {
            let row = pages.range(entry.offset, entry.len.unwrap_or_default());
            let beside = entry.stored.map_or(Bytes(0), |it| it.len);
            stored.resize(to_usize(beside), 0);
            let wanted = (&samples[at..], epoch);
            match self.read(&mut reader, wanted, (row, &mut stored), patience, caller) {
                Ok(()) => {
                    if let Some(Stored { offset, len }) = entry.stored {
                        pages.range(offset, len).copy_from_slice(&stored);
                    }
                }
                Err(Stop::Unreadable(_, fault)) if self.goes_without(&fault) => {
                    entry.len = None;
                    reasons.insert(entry.sample, fault.message);
                }
                Err(stop) => return Err(stop),
            }
        }
        if let (Source::Children(children), Some(reader)) = (&self.source, reader) {
            children.give_back(reader);
        }
        let rows = layout.entries.iter().map(|entry| Row {
            sample: entry.sample,
            label: self.index.label(entry.sample),
            offset: entry.offset,
            len: entry.len,
            shared_tier: None,
            stored: entry.stored,
        });
        Ok(ColdBatch { rows: rows.collect(), pages, reasons })
    }

    /// Lays samples out as they are stored, or as rows, with their stored bytes behind them if trainers get
    /// those too.
    fn lay_out(&self, id: BatchId, samples: &[SampleId]) -> Batch {
        let sizes = samples.iter().map(|sample| (*sample, self.index.size(*sample)));
        let Some(Rows { len, has_fields }) = self.rows else { return Batch::lay_out(id, sizes) };
        let input = |(sample, len)| {
            let stored = has_fields.then_some(len);
            Input { sample, room: stored.unwrap_or_default(), stored }
        };
        Batch::lay_out_rows(id, len, sizes.map(input)).0
    }

    /// Reads the first of `samples` into `row`, and its stored bytes if those come beside it; a process may read
    /// the others ahead.
    fn read<C: Caller>(
        &self,
        reader: &mut Option<Reader>,
        wanted: (&[SampleId], Epoch),
        parts: (&mut [u8], &mut [u8]),
        patience: StorePatience,
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        caller.check().map_err(Stop::Interrupted)?;
        let deadline = self.reserve(self.index.size(wanted.0[0]));
        let outcome = self.read_patiently(reader, wanted, parts, patience, caller);
        if let Some(deadline) = deadline {
            wait_until(deadline, caller).map_err(Stop::Interrupted)?;
        }
        outcome
    }

    /// Whether training goes on without a sample.
    fn goes_without(&self, ReadFault { fault, .. }: &ReadFault) -> bool {
        matches!(self.on_error, OnError::Skip(_)) && fault.is_of_sample()
    }

    /// Repeats a read for as long as its store cannot be read.
    fn read_patiently<C: Caller>(
        &self,
        reader: &mut Option<Reader>,
        wanted: (&[SampleId], Epoch),
        (row, stored): (&mut [u8], &mut [u8]),
        patience: StorePatience,
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let outage = || self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        let mut failures = Failures::default();
        loop {
            let begun = monotonic_now();
            let fault = match self.read_once(reader, wanted, (row, stored), caller) {
                Ok(()) => {
                    let ended = outage().succeeded(begun, monotonic_now());
                    return ended.map_or(Ok(()), |lasted| {
                        caller.outage_ended(lasted).map_err(Stop::Interrupted)
                    });
                }
                Err(Stop::Unreadable(_, fault)) if patience == StorePatience::OfTheJob => fault,
                Err(other) => return Err(other),
            };
            let now = monotonic_now();
            let next = outage().failed(&mut failures, fault.fault, now);
            let Next::Again { pause, is_said } = next else {
                return Err(Stop::Unreadable(wanted.0[0], fault));
            };
            if is_said {
                caller.outage_begun(&fault.message).map_err(Stop::Interrupted)?;
            }
            let until = Nanoseconds(now.0.saturating_add(pause.0));
            wait_until(until, caller).map_err(Stop::Interrupted)?;
        }
    }

    fn read_once<C: Caller>(
        &self,
        reader: &mut Option<Reader>,
        (samples, epoch): (&[SampleId], Epoch),
        (row, stored): (&mut [u8], &mut [u8]),
        caller: &mut C,
    ) -> Result<(), Stop<C::Stop>> {
        let reader = match (&self.source, reader) {
            (Source::Files(source), _) => {
                let read = source.read_into(samples[0], row);
                return read.map_err(|error| Stop::Unreadable(samples[0], error.into()));
            }
            (Source::Children(children), reader) => reader.get_or_insert_with(|| children.take()),
        };
        let wanted: Vec<_> = samples.iter().map(|&sample| Asked { sample, epoch }).collect();
        let mut stop = None;
        let outcome =
            reader.read_into(&wanted, &mut [row, stored], &mut goes_on(caller, &mut stop));
        outcome.map_err(|error| match (stop, error) {
            (Some(stop), _) => Stop::Interrupted(stop),
            (None, ReaderError::Unreadable(fault)) => Stop::Unreadable(samples[0], fault),
            (None, error) => Stop::NoReader(error),
        })
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
    fn take(&self) -> Reader {
        let idle = self.idle.try_lock().ok().and_then(|mut idle| idle.pop());
        idle.unwrap_or_else(|| Reader::new(self.exe.clone(), self.task.clone()))
    }

    fn give_back(&self, reader: Reader) {
        if let Ok(mut idle) = self.idle.try_lock() {
            idle.push(reader);
        }
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
