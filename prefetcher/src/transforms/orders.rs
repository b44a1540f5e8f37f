//! The orders of other threads to the thread of the pool: tasks, memory that is no longer used, and the end.

use std::{
    collections::VecDeque,
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Weak,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{read, write},
};
use tierfeed_numa_memory::Region;

use super::{Counts, Task, TransformError};

#[derive(Debug)]
pub(super) struct Orders {
    state: Mutex<State>,
    /// Readable if there is something new.
    wake: OwnedFd,
    queued_max: NonZeroUsize,
    /// Without the tasks that wait.
    pub(super) counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct State {
    tasks: VecDeque<Task>,
    /// At most one for each arena that was opened: the thread takes all at each round.
    forgotten: Vec<Weak<Region>>,
    is_closed: bool,
}

impl Orders {
    pub(super) fn new(queued_max: NonZeroUsize) -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), wake, queued_max, counts: Mutex::default() })
    }

    pub(super) fn waiting(&self) -> usize {
        self.state.lock().tasks.len()
    }

    /// Queues a task; refuses it if the queue is full or closed, which is no fault of its sample.
    pub(super) fn push(&self, task: Task) {
        let mut state = self.state.lock();
        let is_full = state.tasks.len() >= self.queued_max.get();
        if state.is_closed || is_full {
            drop(state);
            let why = if is_full { "too many samples wait for one" } else { "the pool ends" };
            task.end(Err(TransformError::NoWorker(why.to_owned())), Duration::ZERO);
            return;
        }
        state.tasks.push_back(task);
        drop(state);
        self.wake();
    }

    pub(super) fn forget(&self, memory: Weak<Region>) {
        self.state.lock().forgotten.push(memory);
        self.wake();
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.wake();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    pub(super) fn take_task(&self) -> Option<Task> {
        self.state.lock().tasks.pop_front()
    }

    pub(super) fn take_forgotten(&self) -> Vec<Weak<Region>> {
        std::mem::take(&mut self.state.lock().forgotten)
    }

    /// All tasks, so that none comes behind the last round of the thread.
    pub(super) fn take_tasks(&self) -> VecDeque<Task> {
        std::mem::take(&mut self.state.lock().tasks)
    }

    /// Clears all wake-ups so far. The caller takes the orders that they announced afterwards.
    pub(super) fn drain_wakeups(&self) {
        // It fails if there was none.
        let _ = read(&self.wake, &mut [0; 8]);
    }

    fn wake(&self) {
        // A full counter has a wake-up already.
        let _ = write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl AsFd for Orders {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
