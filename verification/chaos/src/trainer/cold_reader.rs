//! Reads the cold store as a trainer does without an agent: files, or objects of a bucket.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, sync::Arc, time::Duration};

use tierfeed_core::id::SampleId;
use tierfeed_dataset::read::FileSource;
use tierfeed_dataset::{
    Index,
    source::{BucketStore, Listed, Location, Store as _},
};
use tierfeed_object_stores::{Environment, Patience};

const OPEN_FILES_MAX: usize = 64;

/// A request without an answer for this time is made again: injected faults stall the store.
const SILENCE: Duration = Duration::from_secs(3);

pub(crate) enum ColdReader {
    Files(FileSource),
    Bucket(BucketStore, Arc<Index>),
}

impl ColdReader {
    pub(crate) fn open(location: &Location, index: Arc<Index>) -> anyhow::Result<Self> {
        Ok(match location {
            Location::Path(_) => Self::Files(FileSource::new(index, OPEN_FILES_MAX)),
            Location::Bucket(bucket) => {
                let patience = Patience { silence: SILENCE, ..Patience::default() };
                // The caller retries, and so notices at once when the store is back.
                let patience = patience.without_retries();
                let store = BucketStore::open(bucket, &Environment::of_process(), &patience)?;
                Self::Bucket(store, index)
            }
        })
    }

    /// Fails if the object of the sample is not the one that was indexed.
    pub(crate) fn read(&self, sample: SampleId) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Files(files) => {
                let mut bytes = vec![0; usize::try_from(files.index().size(sample).0)?];
                files.read_into(sample, &mut bytes)?;
                Ok(bytes)
            }
            Self::Bucket(store, index) => {
                let extent = index.extent(sample);
                let object = store.open(&Listed {
                    path: OsStr::as_bytes(extent.path.as_os_str()).to_vec(),
                    size: extent.object_size,
                    mtime_ns: extent.object_mtime_ns,
                    etag: extent.etag,
                })?;
                let mut bytes = vec![0; usize::try_from(extent.len)?];
                object.read_exact_at(&mut bytes, extent.offset)?;
                object.verify()?;
                Ok(bytes)
            }
        }
    }
}
