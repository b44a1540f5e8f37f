//! One of the places for a worker: its process with the tasks that it was given, or the time until the next
//! one is started.

use std::collections::{BTreeSet, VecDeque};

use tierfeed_core::units::Nanoseconds;
use tierfeed_transform::{
    worker_process::WorkerProcess,
    worker_protocol::{AfterTransform, ArenaId},
};

use super::{GIVEN_MAX, Task};

/// How long a worker may take to start: programs of wheels may come from a slow file system.
const START_WITHIN: Nanoseconds = Nanoseconds(30_000_000_000);

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are few seats, and most are taken")]
pub(super) enum Seat {
    /// A process, which may not be ready yet.
    Taken(Worker),
    /// None is started before this time.
    Empty(Nanoseconds),
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) process: WorkerProcess,
    pub(super) is_ready: bool,
    pub(super) arenas: BTreeSet<ArenaId>,
    /// At most [`GIVEN_MAX`]; it works at the first.
    pub(super) given: VecDeque<Given>,
    /// When it should have started, or ended its first task.
    pub(super) deadline: Option<Nanoseconds>,
    /// When it began its first task: when that was given to it, or the one before it ended.
    pub(super) begun: Nanoseconds,
}

#[derive(Debug)]
pub(super) struct Given {
    pub(super) task: Task,
    pub(super) id: u64,
    /// Workers that ended over it.
    pub(super) ended: u32,
    pub(super) is_replacing: bool,
}

impl Given {
    /// Whether its worker may say that it replaces the input: once, if it was asked to. So a worker has two
    /// packets at most for each of its tasks.
    pub(super) fn may_be_replaced(&self) -> bool {
        !self.is_replacing && self.task.after != AfterTransform::Unused
    }
}

impl Worker {
    pub(super) fn new(process: WorkerProcess, now: Nanoseconds) -> Self {
        Self {
            process,
            is_ready: false,
            arenas: BTreeSet::new(),
            given: VecDeque::with_capacity(GIVEN_MAX),
            deadline: Some(Nanoseconds(now.0 + START_WITHIN.0)),
            begun: now,
        }
    }
}

impl Seat {
    pub(super) fn worker(&self) -> Option<&Worker> {
        match self {
            Self::Taken(worker) => Some(worker),
            Self::Empty(_) => None,
        }
    }

    pub(super) fn worker_mut(&mut self) -> Option<&mut Worker> {
        match self {
            Self::Taken(worker) => Some(worker),
            Self::Empty(_) => None,
        }
    }

    /// How many tasks it has, if it can be given another.
    pub(super) fn room(&self) -> Option<usize> {
        let worker = self.worker().filter(|worker| worker.is_ready)?;
        Some(worker.given.len()).filter(|given| *given < GIVEN_MAX)
    }

    /// When something is to be done here, even if no packet comes.
    pub(super) fn wakes_at(&self) -> Option<Nanoseconds> {
        match self {
            Self::Taken(worker) => worker.deadline,
            Self::Empty(until) => Some(*until),
        }
    }
}
