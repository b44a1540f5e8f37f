//! Rows of single samples, for callers that wait for each: bytes go in, a row comes out.

use std::{
    num::NonZeroUsize,
    sync::{Arc, mpsc},
};

use parking_lot::Mutex;
use tierfeed_core::{
    id::{Epoch, SampleId},
    tier::Locality,
    units::Bytes,
};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_transform::{
    worker_process::Program,
    worker_protocol::{AfterTransform, InputForm, Part, Setup},
};

use super::{Finished, Settings, StartError, Task, TransformError, Transforms};

/// The least memory for a sample.
const INPUT_BYTES_MIN: u64 = 1 << 20;

/// One worker, and memory for the samples of as many callers as there are at a time.
#[derive(Debug)]
pub struct Rows {
    workers: Transforms,
    row_len: u64,
    /// A sample lies at the start of its memory, and its row at the end.
    idle: Mutex<Vec<Arc<Region>>>,
}

impl Rows {
    /// Starts a worker for rows of so many bytes, and waits until it is ready. More than so many callers at a
    /// time are refused.
    ///
    /// # Errors
    ///
    /// As [`Transforms::start_blocking`].
    pub fn start_blocking(
        program: Program,
        setup: Setup,
        row_len: u64,
        callers: NonZeroUsize,
    ) -> Result<Self, StartError> {
        let (workers, queued_max) = (NonZeroUsize::MIN, callers);
        let settings = Settings { program, setup, workers, queued_max };
        let workers = Transforms::start_blocking(settings)?;
        Ok(Self { workers, row_len, idle: Mutex::default() })
    }

    /// The row of a sample with these bytes in the cold store.
    ///
    /// # Errors
    ///
    /// A [`TransformError`].
    pub fn of_sample_blocking(
        &self,
        sample: SampleId,
        epoch: Epoch,
        bytes: &[u8],
    ) -> Result<Vec<u8>, TransformError> {
        let failed = |why: String| TransformError::Failed(why);
        let memory = self.memory_for(bytes.len() as u64).map_err(failed)?;
        memory.write(Bytes(0), bytes).map_err(|error| failed(error.to_string()))?;
        let input_bytes = memory.len().0 - self.row_len;
        let (ended, end) = mpsc::sync_channel(1);
        self.workers.submit(Task {
            sample,
            epoch,
            memory: Arc::clone(&memory),
            slot: Part { offset: 0, len: input_bytes },
            input_len: bytes.len() as u64,
            form: InputForm::Stored,
            after: AfterTransform::Unused,
            row: Part { offset: input_bytes, len: self.row_len },
            // The receiver waits for it.
            finish: Box::new(move |finished| _ = ended.send(finished)),
        });
        let Finished { outcome, .. } =
            end.recv().map_err(|_| failed("the pool ends".to_owned()))?;
        let mut row = vec![0; usize::try_from(self.row_len).expect("a row fits in memory")];
        let read = memory.read(Bytes(input_bytes), &mut row);
        self.idle.lock().push(memory);
        outcome?;
        read.map_err(|error| failed(error.to_string()))?;
        Ok(row)
    }

    fn memory_for(&self, input_bytes: u64) -> Result<Arc<Region>, String> {
        let idle = self.idle.lock().pop();
        let len = input_bytes.max(INPUT_BYTES_MIN).next_power_of_two() + self.row_len.max(1);
        match idle {
            Some(memory) if memory.len().0 >= len => return Ok(memory),
            Some(too_short) => self.workers.forget(&too_short),
            None => (),
        }
        let (len, name) = (Bytes(len), "tierfeed-transform");
        let request = Request { len, locality: Locality::Anywhere, name, pages: Pages::Small };
        let region = Region::reserve(&request);
        region.map(Arc::new).map_err(|error| format!("no memory for {len}: {error}"))
    }
}
