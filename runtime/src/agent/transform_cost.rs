//! Measures the time of a thread to transform a sample, on a few dozen samples before the agent offers what
//! it has. The form in which tiers hold samples follows from it, if the job leaves the choice.

use std::{
    num::NonZeroUsize,
    sync::{Arc, mpsc},
    time::Duration,
};

use tierfeed_core::{
    id::{Epoch, SampleId},
    retention::form::SampleTime,
    tier::Locality,
    units::{Bytes, Nanoseconds},
};
use tierfeed_dataset::{
    Index,
    read::{FileSource, Source, Target},
    source::Location,
};
use tierfeed_images::{SizeReader, SizeSearch};
use tierfeed_numa_memory::{AllocateError, Pages, Region, Request};
use tierfeed_prefetcher::transforms::{Finished, Settings, StartError, Task, Transforms};
use tierfeed_transform::{
    Pipeline, Size,
    worker_process::Program,
    worker_protocol::{AfterTransform, InputForm, Part, Setup},
};
use tierfeed_workload_analyzer::{Job, job::CachedForm};

use crate::dataset::reader::{self, BucketError};

/// Samples that are measured, at even distances in the dataset.
const SAMPLES: u32 = 32;

/// No further sample is measured after so much work.
const WORK_MAX: Duration = Duration::from_millis(500);

/// A longer prepared sample is not measured: 22 million pixels. Memory is taken of it as far as it is used.
const PREPARED_MAX: u64 = 64 << 20;

const OPEN_FILES_MAX: usize = 4;

/// The parts of the memory start on a multiple of it.
const ALIGN: u64 = 64;

#[derive(Debug, thiserror::Error)]
enum CostError {
    #[error(transparent)]
    Workers(#[from] StartError),
    #[error("no memory for samples: {0}")]
    Memory(#[from] AllocateError),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error("none of {SAMPLES} samples could be read and transformed")]
    NoSample,
}

/// The mean time of a sample and where it comes from; `None` if nothing depends on it, or it cannot be measured.
pub(super) fn measure_blocking(
    job: &Job,
    index: &Arc<Index>,
    program: &Program,
) -> Option<(SampleTime, String)> {
    let transform = job.transform.as_ref().filter(|it| it.cache == CachedForm::Auto)?;
    transform.pipeline.prepared()?;
    let measured = Bench::start_blocking(job, &transform.pipeline, index, program);
    match measured.and_then(|bench| bench.run_blocking()) {
        Ok((each, samples)) => {
            tracing::info!(prepare = %each.prepare, rest = %each.rest, samples, "time of a transform");
            Some((each, format!("{samples} samples at this start")))
        }
        Err(error) => {
            tracing::warn!(%error, "the time of a transform is not known; tiers hold stored samples");
            None
        }
    }
}

/// A worker, and memory for one sample: its row, then its bytes in either form.
struct Bench {
    workers: Transforms,
    source: Box<dyn Source>,
    index: Arc<Index>,
    memory: Arc<Region>,
    row_len: u64,
    pipeline: Pipeline,
}

impl Bench {
    fn start_blocking(
        job: &Job,
        pipeline: &Pipeline,
        index: &Arc<Index>,
        program: &Program,
    ) -> Result<Self, CostError> {
        let source: Box<dyn Source> = match &job.dataset.source {
            Location::Path(_) => Box::new(FileSource::new(Arc::clone(index), OPEN_FILES_MAX)),
            Location::Bucket(bucket) => Box::new(reader::objects(bucket, index)?),
        };
        let longest = samples(index).map(|sample| index.size(sample).0).max().unwrap_or(0);
        let row_len = pipeline.row_bytes();
        let request = Request {
            len: Bytes(
                row_len.next_multiple_of(ALIGN) + longest.max(prepared_max(pipeline)).max(1),
            ),
            locality: Locality::Anywhere,
            name: "tierfeed-transform-cost",
            pages: Pages::Small,
        };
        let memory = Arc::new(Region::reserve(&request)?);
        let workers = Transforms::start_blocking(Settings {
            program: program.clone(),
            setup: Setup::of(pipeline, job.seed),
            workers: NonZeroUsize::MIN,
            queued_max: NonZeroUsize::MIN,
        })?;
        let (index, pipeline) = (Arc::clone(index), pipeline.clone());
        Ok(Self { workers, source, index, memory, row_len, pipeline })
    }

    /// The mean of the samples that could be measured, and how many they are.
    fn run_blocking(&self) -> Result<(SampleTime, u32), CostError> {
        let (mut whole, mut rest, mut measured) = (Duration::ZERO, Duration::ZERO, 0);
        for sample in samples(&self.index) {
            if let Some((of_whole, of_rest)) = self.times_blocking(sample) {
                whole += of_whole;
                rest += of_rest;
                measured += 1;
            }
            if whole + rest > WORK_MAX {
                break;
            }
        }
        let mean = |sum: Duration| sum.checked_div(measured).ok_or(CostError::NoSample);
        let (whole, rest) = (mean(whole)?, mean(rest)?);
        let prepare = nanoseconds(whole.saturating_sub(rest));
        Ok((SampleTime { prepare, rest: nanoseconds(rest) }, measured))
    }

    /// The times from the stored form to the row, and from the prepared form to the row.
    fn times_blocking(&self, sample: SampleId) -> Option<(Duration, Duration)> {
        let len = self.index.size(sample);
        let at = Bytes(self.row_len.next_multiple_of(ALIGN));
        let target = Target::summed(Arc::clone(&self.memory), at, len);
        self.source.read(sample, &target).ok()?;
        let input_sum = target.sum()?;
        let whole = self.time_blocking(sample, len.0, InputForm::Stored, AfterTransform::Unused)?;
        let prepared = self.prepared_len(at, len)?;
        let after = AfterTransform::Prepared { len: prepared, input_sum };
        self.time_blocking(sample, len.0, InputForm::Stored, after)?;
        let (form, after) = (InputForm::Prepared, AfterTransform::Unused);
        let rest = self.time_blocking(sample, prepared, form, after)?;
        Some((whole, rest))
    }

    /// The length of the prepared form of the sample that was read; `None` if it has none for which there is room.
    fn prepared_len(&self, at: Bytes, len: Bytes) -> Option<u64> {
        if let Some(fixed) = self.pipeline.prepared()?.bytes() {
            return Some(fixed);
        }
        let mut bytes = vec![0; usize::try_from(len.0).ok()?];
        self.memory.read(at, &mut bytes).ok()?;
        let SizeSearch::Found(size) = SizeReader::default().read(&bytes) else { return None };
        let size = Size { height: size.height, width: size.width };
        self.pipeline.prepared_bytes(size).filter(|len| *len <= PREPARED_MAX)
    }

    fn time_blocking(
        &self,
        sample: SampleId,
        input_len: u64,
        form: InputForm,
        after: AfterTransform,
    ) -> Option<Duration> {
        let (ended, end) = mpsc::sync_channel(1);
        let offset = self.row_len.next_multiple_of(ALIGN);
        self.workers.submit(Task {
            sample,
            epoch: Epoch(0),
            memory: Arc::clone(&self.memory),
            slot: Part { offset, len: self.memory.len().0 - offset },
            input_len,
            form,
            after,
            row: Part { offset: 0, len: self.row_len },
            // The receiver waits for it.
            finish: Box::new(move |finished| _ = ended.send(finished)),
        });
        let Finished { outcome, worked } = end.recv().ok()?;
        outcome.is_ok().then_some(worked)
    }
}

fn prepared_max(pipeline: &Pipeline) -> u64 {
    pipeline.prepared().map_or(0, |prepared| prepared.bytes().unwrap_or(PREPARED_MAX))
}

fn samples(index: &Index) -> impl Iterator<Item = SampleId> {
    let count = index.len();
    let step = count.div_ceil(SAMPLES).max(1);
    (0..count).step_by(usize::try_from(step).unwrap_or(usize::MAX)).map(SampleId)
}

fn nanoseconds(time: Duration) -> Nanoseconds {
    Nanoseconds(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
