//! Transforms single samples through a worker of its own, for a process that waits for each: a trainer
//! whose agent is gone and that reads the cold store itself.
//!
//! Bytes go in, a row comes out, over memory that both processes map. A worker that crashed or hangs is
//! replaced: its sample is tried once more, alone, and then refused.

use std::{process, time::Duration};

use tierfeed_numa_memory::{AllocateError, Pages, RangeError, Region, Request as RegionRequest};
use tierfeed_units::{Bytes, Locality};

use crate::{
    worker_process::{Program, StartError, WorkerProcess},
    worker_protocol::{
        AfterTransform, ArenaId, Arrival, FromWorker, InputForm, Outcome, PacketError, Part,
        Request, Setup, ToWorker,
    },
};

const START_WITHIN: Duration = Duration::from_secs(30);

/// The time that the caller waits beyond the worker's own limit: the worker ends itself first, with a reason.
const GRACE: Duration = Duration::from_secs(2);

const ATTEMPTS: u32 = 2;

/// The least memory for inputs; it grows with the longest one.
const INPUT_BYTES_MIN: u64 = 1 << 20;

/// Both ranges of the memory start on a multiple of it.
const ALIGN: u64 = 64;

#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Its number in the dataset, which chooses the draws.
    pub number: u64,
    /// The epoch, which chooses the draws too.
    pub epoch: u32,
    pub bytes: &'a [u8],
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The sample cannot be transformed, ever.
    #[error("{0}")]
    Untransformable(String),
    /// The worker ended over it, at each attempt.
    #[error("its transform worker {0}")]
    Crashed(String),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("the transform worker: {0}")]
    Unfit(String),
    #[error("no memory for {len} between trainer and transform worker: {source}")]
    Memory { len: Bytes, source: AllocateError },
    /// The caller does not wait any more.
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Packet(#[from] PacketError),
}

/// A worker for one sample at a time, started at the first.
#[derive(Debug)]
pub struct BlockingWorker {
    program: Program,
    setup: Setup,
    row_len: u64,
    running: Option<Running>,
    next_id: u64,
}

#[derive(Debug)]
struct Running {
    process: WorkerProcess,
    memory: Option<Memory>,
}

#[derive(Debug)]
struct Memory {
    region: Region,
    arena: ArenaId,
    /// The row lies behind the input.
    input_bytes: u64,
}

enum Failed {
    /// The worker ended; a new one may do better.
    Worker(String),
    /// Another attempt brings the same.
    Sample(TransformError),
}

impl From<PacketError> for Failed {
    fn from(error: PacketError) -> Self {
        Self::Worker(error.to_string())
    }
}

impl BlockingWorker {
    /// A worker for rows of `row_len` bytes. `setup.parent` is set at each start.
    #[must_use]
    pub fn new(program: Program, setup: Setup, row_len: u64) -> Self {
        Self { program, setup, row_len, running: None, next_id: 0 }
    }

    /// Transforms a sample into `row`. `goes_on` is asked now and then whether the caller still waits.
    ///
    /// # Errors
    ///
    /// [`TransformError`]; the row is unchanged then.
    ///
    /// # Panics
    ///
    /// If `row` has another length than [`Self::new`] was told.
    pub fn transform_blocking(
        &mut self,
        sample: &Sample<'_>,
        row: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), TransformError> {
        assert_eq!(row.len() as u64, self.row_len, "the length of a row");
        let mut why = String::new();
        for _ in 0..ATTEMPTS {
            match self.attempt(sample, row, goes_on) {
                Ok(()) => return Ok(()),
                Err(Failed::Sample(error)) => return Err(error),
                Err(Failed::Worker(reason)) => why = reason,
            }
        }
        Err(TransformError::Crashed(why))
    }

    fn attempt(
        &mut self,
        sample: &Sample<'_>,
        row: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), Failed> {
        self.next_id += 1;
        let id = self.next_id;
        let limit = self.setup.time_limit + GRACE;
        let row_len = self.row_len;
        let mut running = self.take_running(goes_on).map_err(Failed::Sample)?;
        let asked = running.ask(id, sample, row_len);
        let answered = match asked {
            Ok(()) => running.answer(id, limit, goes_on),
            Err(failed) => Err(failed),
        };
        match answered {
            Ok(outcome) => {
                let read = match outcome {
                    Outcome::Done { .. } => running.read_row(row),
                    Outcome::Untransformable(defect) => {
                        Err(Failed::Sample(TransformError::Untransformable(defect.message)))
                    }
                    Outcome::Failed(why) => Err(Failed::Sample(TransformError::Unfit(why))),
                };
                self.running = Some(running);
                read
            }
            // The worker ends here: it still works for the caller that does not wait.
            Err(Failed::Sample(TransformError::Interrupted)) => {
                Err(Failed::Sample(TransformError::Interrupted))
            }
            Err(failed @ Failed::Sample(_)) => {
                self.running = Some(running);
                Err(failed)
            }
            Err(Failed::Worker(why)) => {
                let ending = running.process.end_by_itself();
                Err(Failed::Worker(if why.is_empty() { ending.to_string() } else { why }))
            }
        }
    }

    /// The worker, started if there is none.
    fn take_running(
        &mut self,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Running, TransformError> {
        if let Some(running) = self.running.take().filter(|it| it.process.is_own()) {
            return Ok(running);
        }
        let setup = Setup { parent: process::id(), ..self.setup.clone() };
        let mut process = WorkerProcess::start(&self.program, &setup)?;
        match receive(&mut process, START_WITHIN, goes_on)?.ok_or(TransformError::Interrupted)? {
            Arrival::Packet(FromWorker::Ready, _) => Ok(Running { process, memory: None }),
            Arrival::Packet(FromWorker::Unfit(why), _) => Err(TransformError::Unfit(why)),
            Arrival::Packet(..) | Arrival::Nothing | Arrival::End => {
                let ending = process.end_by_itself();
                Err(StartError::Ended { path: self.program.path.clone(), ending }.into())
            }
        }
    }
}

impl Running {
    fn ask(&mut self, id: u64, sample: &Sample<'_>, row_len: u64) -> Result<(), Failed> {
        let input_len = sample.bytes.len() as u64;
        let memory = self.memory_for(input_len, row_len)?;
        memory.region.write(Bytes(0), sample.bytes).map_err(outside)?;
        let request = Request {
            id,
            arena: memory.arena,
            slot: Part { offset: 0, len: memory.input_bytes },
            input_len,
            form: InputForm::Stored,
            after: AfterTransform::Unused,
            row: Part { offset: memory.input_bytes, len: row_len },
            sample: sample.number,
            epoch: sample.epoch,
        };
        Ok(self.process.send(&ToWorker::Request(request), None)?)
    }

    fn memory_for(&mut self, input_len: u64, row_len: u64) -> Result<&Memory, Failed> {
        let old = self.memory.take();
        let memory = match old {
            Some(memory) if memory.input_bytes >= input_len => memory,
            old => {
                let arena = ArenaId(old.as_ref().map_or(0, |it| it.arena.0.wrapping_add(1)));
                if let Some(old) = old {
                    self.process.send(&ToWorker::DropArena(old.arena), None)?;
                }
                let input_bytes =
                    input_len.max(INPUT_BYTES_MIN).next_power_of_two().next_multiple_of(ALIGN);
                let len = Bytes(input_bytes + row_len.max(1));
                let region = Region::reserve(&RegionRequest {
                    len,
                    locality: Locality::Anywhere,
                    name: "tierfeed-transform",
                    pages: Pages::Small,
                });
                let region = region
                    .map_err(|source| Failed::Sample(TransformError::Memory { len, source }))?;
                let packet = ToWorker::Arena { arena, len: len.0 };
                self.process.send(&packet, Some(region.fd()))?;
                Memory { region, arena, input_bytes }
            }
        };
        Ok(self.memory.insert(memory))
    }

    fn answer(
        &mut self,
        id: u64,
        limit: Duration,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome, Failed> {
        let interrupted = Failed::Sample(TransformError::Interrupted);
        match receive(&mut self.process, limit, goes_on)?.ok_or(interrupted)? {
            Arrival::Packet(FromWorker::Answer { id: answered, outcome, .. }, _)
                if answered == id =>
            {
                Ok(outcome)
            }
            Arrival::Packet(..) => Err(Failed::Worker("sent an answer to no question".to_owned())),
            Arrival::Nothing => Err(Failed::Worker("took longer than one sample may".to_owned())),
            Arrival::End => Err(Failed::Worker(String::new())),
        }
    }

    fn read_row(&self, row: &mut [u8]) -> Result<(), Failed> {
        let memory = self.memory.as_ref().expect("a request was made with it");
        memory.region.read(Bytes(memory.input_bytes), row).map_err(outside)
    }
}

/// The next packet of a worker; `None` if the caller stopped waiting for it.
fn receive(
    process: &mut WorkerProcess,
    limit: Duration,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Arrival<FromWorker>>, PacketError> {
    let mut is_waited_for = true;
    let arrival = process.receive_within(limit, &mut || {
        is_waited_for = goes_on();
        is_waited_for
    })?;
    Ok(is_waited_for.then_some(arrival))
}

fn outside(error: RangeError) -> Failed {
    Failed::Worker(error.to_string())
}
