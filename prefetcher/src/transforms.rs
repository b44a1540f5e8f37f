//! Turns staged samples into rows, in worker processes: a crash or a hang of one costs at most its sample.
//!
//! A thread of its own ([`dispatcher`]) starts the workers, gives each at most [`GIVEN_MAX`] tasks, and hears
//! their answers. Tasks come in the order of their deadlines, and go to the worker that has fewest. A worker
//! that ends is replaced; the sample that it worked at is tried once more, and then refused.
//!
//! Invariants:
//!
//! 1. Every task is finished exactly once, or dropped with its `finish` if the pool stops.
//! 2. The memory of a task is held until the task is finished.
//! 3. A worker is to blame for the oldest of its tasks only: it works at one at a time, in their order.
//! 4. After the drop of [`Transforms`] none of its processes runs.

mod counts;
mod dispatcher;
mod orders;
mod rows;
mod seat;
mod threads;

use std::{
    fmt, io,
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use tierfeed_core::{
    id::{Epoch, SampleId},
    session::Fault,
};
use tierfeed_numa_memory::Region;
use tierfeed_transform::{
    worker_process::Program,
    worker_protocol::{AfterTransform, Defect, DefectKind, InputForm, Part, Setup},
};

use self::{dispatcher::Dispatcher, orders::Orders};

pub use counts::{Counts, Rejection};
pub use rows::Rows;
pub use threads::auto_threads;

/// Tasks that a worker has at most: the one that it works at, and the next, so that it never waits for it.
pub const GIVEN_MAX: usize = 2;

#[derive(Debug, Clone)]
pub struct Settings {
    pub program: Program,
    pub setup: Setup,
    pub workers: NonZeroUsize,
    /// Tasks that wait for a worker; more are refused.
    pub queued_max: NonZeroUsize,
}

pub type Finish = Box<dyn FnOnce(Finished) + Send>;

pub struct Task {
    /// The number of the sample in the dataset, which keys its random draws.
    pub sample: SampleId,
    pub epoch: Epoch,
    /// The memory in which all parts lie.
    pub memory: Arc<Region>,
    /// The place of the sample, which fills the first `input_len` bytes of it.
    pub slot: Part,
    pub input_len: u64,
    pub form: InputForm,
    /// The content of the slot afterwards.
    pub after: AfterTransform,
    pub row: Part,
    /// Called at the end, on the thread of the pool. It must neither block nor panic.
    pub finish: Finish,
}

impl Task {
    fn end(self, outcome: Result<Option<u64>, TransformError>, worked: Duration) {
        let Self { finish, memory, .. } = self;
        finish(Finished { outcome, worked });
        // Only now, see invariant 2.
        drop(memory);
    }
}

#[derive(Debug)]
pub struct Finished {
    /// The checksum of the prepared form in the slot, if there is one, or the reason why there is no row.
    pub outcome: Result<Option<u64>, TransformError>,
    /// The time for which a processor worked at it.
    pub worked: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    #[error("it cannot be transformed: {}", .0.message)]
    Untransformable(Defect),
    #[error("two transform workers ended over it, the last {0}")]
    Crashed(String),
    #[error("two transform workers ended over it, the last {0}")]
    OutOfMemory(String),
    #[error("two transform workers took longer than {} s over it", .0.as_secs())]
    TimedOut(Duration),
    #[error("a transform worker failed: {0}")]
    Failed(String),
    #[error("no transform worker starts: {0}")]
    NoWorker(String),
}

impl TransformError {
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Untransformable(_)
            | Self::Crashed(_)
            | Self::OutOfMemory(_)
            | Self::TimedOut(_) => Fault::Untransformable,
            // The sample is good: the trainer can make its row.
            Self::Failed(_) | Self::NoWorker(_) => Fault::NoWorker,
        }
    }

    fn ending(&self) -> String {
        match self {
            Self::Crashed(ending) | Self::OutOfMemory(ending) => ending.clone(),
            Self::TimedOut(limit) => format!("took longer than {} s", limit.as_secs()),
            other => other.to_string(),
        }
    }

    /// `None` if the sample is not at fault.
    pub(crate) fn rejection(&self) -> Option<Rejection> {
        match self {
            Self::Untransformable(Defect { kind, .. }) => Some(match kind {
                DefectKind::Damaged => Rejection::Damaged,
                DefectKind::TooLarge => Rejection::TooLarge,
                DefectKind::Unsuitable => Rejection::Unsuitable,
                DefectKind::OutOfMemory => Rejection::OutOfMemory,
            }),
            Self::Crashed(_) => Some(Rejection::Crashed),
            Self::OutOfMemory(_) => Some(Rejection::OutOfMemory),
            Self::TimedOut(_) => Some(Rejection::TimedOut),
            Self::Failed(_) | Self::NoWorker(_) => None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    #[error("cannot start the thread of the transform workers: {0}")]
    System(#[from] io::Error),
    #[error("no transform worker starts: {0}")]
    Worker(String),
}

#[derive(Debug)]
pub struct Transforms {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

impl Transforms {
    /// Starts the workers, and waits until the first one is ready.
    ///
    /// # Errors
    ///
    /// No process runs then.
    pub fn start_blocking(settings: Settings) -> Result<Self, StartError> {
        let orders = Arc::new(Orders::new(settings.queued_max)?);
        let (report, started) = mpsc::sync_channel(1);
        let dispatcher = Dispatcher::new(settings, Arc::clone(&orders), report);
        let thread = thread::Builder::new().name("transforms".to_owned());
        let thread = Some(thread.spawn(move || dispatcher.run())?);
        let pool = Self { orders, thread };
        match started.recv() {
            Ok(Ok(())) => Ok(pool),
            Ok(Err(why)) => Err(StartError::Worker(why)),
            Err(_) => Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
        }
    }

    /// Takes a task. One that finds the queue full is dropped, and so is its `finish`.
    pub fn submit(&self, task: Task) {
        self.orders.push(task);
    }

    /// Unmaps a memory in all workers, once their tasks in it have ended.
    pub fn forget(&self, memory: &Arc<Region>) {
        self.orders.forget(Arc::downgrade(memory));
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { waiting: self.orders.waiting(), ..*self.orders.counts.lock() }
    }
}

impl Drop for Transforms {
    fn drop(&mut self) {
        self.orders.close();
        if let Some(thread) = self.thread.take() {
            // Its tasks do not panic, and what it holds ends with it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("sample", &self.sample).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
