//! Transforms samples for several callers at a time, each of which waits: one worker a caller, kept for the
//! next.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    Pipeline,
    blocking_worker::{BlockingWorker, Sample, TransformError},
    worker_process::Program,
    worker_protocol::Setup,
};

/// Workers for the samples of a job, started as callers need them: there are never more than callers at a
/// time.
#[derive(Debug)]
pub struct BlockingWorkers {
    program: Program,
    setup: Setup,
    row_len: u64,
    idle: Mutex<Vec<BlockingWorker>>,
}

impl BlockingWorkers {
    /// Starts no process yet.
    #[must_use]
    pub fn new(program: Program, pipeline: &Pipeline, seed: u64) -> Self {
        Self {
            program,
            setup: Setup::of(pipeline, seed),
            row_len: pipeline.row_bytes(),
            idle: Mutex::default(),
        }
    }

    #[must_use]
    pub fn row_len(&self) -> u64 {
        self.row_len
    }

    /// Transforms a sample into `row`. `goes_on` is asked now and then whether the caller still waits.
    ///
    /// # Errors
    ///
    /// As [`BlockingWorker::transform_blocking`].
    ///
    /// # Panics
    ///
    /// If `row` has another length than [`Self::row_len`].
    pub fn transform_blocking(
        &self,
        sample: &Sample<'_>,
        row: &mut [u8],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), TransformError> {
        // Taken out of the lock, so that callers do not wait for each other.
        let idle = self.idle().pop();
        let mut worker = idle.unwrap_or_else(|| {
            BlockingWorker::new(self.program.clone(), self.setup.clone(), self.row_len)
        });
        let outcome = worker.transform_blocking(sample, row, goes_on);
        self.idle().push(worker);
        outcome
    }

    fn idle(&self) -> MutexGuard<'_, Vec<BlockingWorker>> {
        // A poisoned lock guards workers that are whole: none is there while it is used.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
