//! Reads objects of a bucket to measure its speed, by the source that trainers without an agent use, so that
//! these reads do not count as reads of the job.

use std::{fmt, io, sync::Arc};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{
    Index,
    read::{Sink, Source as _, Target},
    source::Address,
};
use tierfeed_numa_memory::Checksum;
use tierfeed_prefetcher::fetcher::ObjectSource;
use tierfeed_resource_gatherer::calibrate::{ColdReads, Progress};

use crate::dataset::reader::{self, BucketError};

/// Requests at a time: what a bucket gives shows with many.
const REQUESTS_AT_A_TIME: usize = 32;

#[derive(Debug)]
pub(super) struct ObjectReads {
    source: ObjectSource,
    index: Arc<Index>,
    samples: Vec<SampleId>,
}

impl ObjectReads {
    pub(super) fn of(
        bucket: &Address,
        index: &Arc<Index>,
        samples: Vec<SampleId>,
    ) -> Result<Self, BucketError> {
        let source = reader::objects(bucket, index)?;
        Ok(Self { source, index: Arc::clone(index), samples })
    }
}

impl ColdReads for ObjectReads {
    fn count(&self) -> usize {
        self.samples.len()
    }

    fn at_a_time(&self) -> usize {
        REQUESTS_AT_A_TIME
    }

    fn read(&self, number: usize, progress: &Arc<Progress>) -> io::Result<()> {
        let sample = self.samples[number];
        let sink: Arc<dyn Sink> = Arc::new(Counted(Arc::clone(progress)));
        let to = Target::sink(sink, self.index.size(sample));
        self.source.read(sample, &to).map_err(io::Error::other)
    }
}

/// Counts bytes and drops them.
struct Counted(Arc<Progress>);

impl Sink for Counted {
    fn write_summed(&self, _: Bytes, bytes: &[u8], _: &mut Checksum) -> io::Result<()> {
        self.0.arrived(Bytes(bytes.len() as u64))
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").finish_non_exhaustive()
    }
}
