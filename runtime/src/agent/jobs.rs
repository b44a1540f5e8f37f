//! Runs the session's long computations on threads beside the loop.

use std::{collections::VecDeque, num::NonZeroUsize, panic, thread};

use tierfeed_core::session::{Finished, Job};
use tokio::task::JoinSet;

/// Jobs that run at the same time. Each permutes or plans an epoch and needs up to 8 B for each sample of
/// the dataset.
const AT_A_TIME_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Jobs {
    at_a_time: usize,
    waiting: VecDeque<Job>,
    running: JoinSet<Finished>,
}

impl Jobs {
    /// Runs at most one job for each processor of the host.
    pub(super) fn new() -> Self {
        let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let at_a_time = cpus.min(AT_A_TIME_MAX);
        Self { at_a_time, waiting: VecDeque::new(), running: JoinSet::new() }
    }

    pub(super) fn start(&mut self, job: Job) {
        self.waiting.push_back(job);
        self.go_on();
    }

    /// The next result; `None` if no job runs. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<Finished> {
        let finished = self.running.join_next().await?;
        self.go_on();
        match finished {
            Ok(finished) => Some(finished),
            // Without the result the session would wait for ever.
            Err(error) => panic::resume_unwind(error.into_panic()),
        }
    }

    fn go_on(&mut self) {
        while self.running.len() < self.at_a_time
            && let Some(job) = self.waiting.pop_front()
        {
            self.running.spawn_blocking(move || job.run());
        }
    }
}
