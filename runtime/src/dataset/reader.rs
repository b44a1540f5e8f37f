//! Reads samples for a trainer without an agent, in a process of its own; see `tierfeed_dataset::reader`.

use std::{
    io::{self, Read, Write},
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
};

use tierfeed_dataset::{
    Index,
    index::IndexError,
    source::{Access, Address},
};
use tierfeed_dataset::{
    read::FileSource,
    reader::{self, ServeError},
};
use tierfeed_object_stores::{Client, Environment, OpenError};
use tierfeed_prefetcher::fetcher::{ObjectFetcher, ObjectSettings, ObjectSource};

/// Files with many samples that stay open between reads.
const OPEN_FILES_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Serve(#[from] ServeError),
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BucketError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("no threads for the network: {0}")]
    Network(#[source] io::Error),
}

impl ReadError {
    /// Whether the input must change; else another attempt may succeed.
    #[must_use]
    pub fn is_input(&self) -> bool {
        matches!(self, Self::Index(_) | Self::Bucket(BucketError::Open(_)))
    }
}

/// Reads sample ids from `input` and writes the bytes of the samples to `output` until `input` ends.
/// `access` says how to reach the bucket of the index, if it has one.
///
/// # Errors
///
/// If the index or its bucket cannot be opened, or a pipe to the trainer fails. A sample that cannot be
/// read is an answer, not an error.
pub fn read(
    index: &Path,
    access: Access,
    input: impl Read + Send,
    output: impl Write,
) -> Result<(), ReadError> {
    let index = Arc::new(Index::read(index)?);
    let place = index.source();
    if Path::new(&place).is_absolute() {
        let files = FileSource::new(Arc::clone(&index), OPEN_FILES_MAX);
        let read = |sample, buffer: &mut [u8]| files.read_into(sample, buffer);
        return Ok(reader::serve(&index, read, input, output)?);
    }
    let objects = objects(&Address { url: place, access }, &index)?;
    let read = |sample, buffer: &mut [u8]| objects.read_into(sample, buffer);
    Ok(reader::serve(&index, read, input, output)?)
}

/// A source that reads the samples of an index from its bucket, with the credentials of this process.
pub(crate) fn objects(address: &Address, index: &Arc<Index>) -> Result<ObjectSource, BucketError> {
    let settings = ObjectSettings::default();
    let client = client(address, settings)?;
    ObjectSource::new(Arc::clone(index), client, settings).map_err(BucketError::Network)
}

/// A fetcher of the samples of an index from its bucket, with the credentials of this process.
pub(crate) fn object_fetcher(
    address: &Address,
    index: &Arc<Index>,
    fetches_max: NonZeroUsize,
) -> Result<ObjectFetcher, BucketError> {
    let settings = ObjectSettings::default();
    let client = client(address, settings)?;
    ObjectFetcher::start(Arc::clone(index), client, settings, fetches_max)
        .map_err(BucketError::Network)
}

/// A client without retries: its callers retry.
fn client(address: &Address, settings: ObjectSettings) -> Result<Client, OpenError> {
    let environment = Environment::of_process();
    let patience = settings.patience.without_retries();
    Client::open_in(&environment, address, &patience)
}
