//! Reads samples for a trainer without an agent, in a process of its own; see `tierfeed_client::reader`.

mod serve;
#[cfg(test)]
mod tests;

use std::{
    io::{self, BufRead, Write},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use tierfeed_client::reader::{Asked, READS, ReadFault, ReadTask};
use tierfeed_core::session::Fault;
use tierfeed_dataset::{
    Index,
    index::IndexError,
    read::{self, FileSource},
    source::Address,
};
use tierfeed_object_stores::{Client, Environment, OpenError};
use tierfeed_prefetcher::{
    fetcher::{ObjectFetcher, ObjectSettings, ObjectSource},
    transforms::{Rows, TransformError},
};
use tierfeed_transform::{Pipeline, worker_process::Program, worker_protocol::Setup};

pub use self::serve::ServeError;

/// Files with many samples that stay open between reads.
const OPEN_FILES_MAX: usize = 64;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    #[error("no task came; `tierfeed` starts this command itself: {0}")]
    NoTask(#[source] io::Error),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("{} was indexed again since the job started; restart the job", .0.display())]
    IndexedAgain(PathBuf),
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
        matches!(
            self,
            Self::NoTask(_)
                | Self::Index(_)
                | Self::IndexedAgain(_)
                | Self::Bucket(BucketError::Open(_))
        )
    }
}

/// Answers the requests from `input` on `output` until `input` ends. `worker` is the program that transforms
/// samples.
///
/// # Errors
///
/// If no task comes, its index or bucket cannot be opened, or a pipe to the trainer fails. A sample that
/// cannot be read is an answer, not an error.
pub fn read(
    mut input: impl BufRead + Send,
    output: impl Write,
    worker: Program,
) -> Result<(), ReadError> {
    let mut line = String::new();
    input.read_line(&mut line).map_err(ReadError::NoTask)?;
    let task = serde_json::from_str(&line).map_err(|error| ReadError::NoTask(error.into()))?;
    let samples = Samples::open(task, worker)?;
    Ok(serve::serve(|asked| samples.read(asked), input, output)?)
}

/// The samples of an index, as a trainer gets them.
struct Samples {
    index: Arc<Index>,
    source: Source,
    rows: Option<RowsOf>,
}

enum Source {
    Files(FileSource),
    Objects(Box<ObjectSource>),
}

struct RowsOf {
    /// Or why no worker starts.
    workers: Result<Rows, String>,
    /// Whether the stored bytes of a sample follow its row: other fields are in them.
    has_fields: bool,
}

impl Samples {
    fn open(task: ReadTask, worker: Program) -> Result<Self, ReadError> {
        let index = Arc::new(Index::read(&task.index)?);
        if index.fingerprint() != task.fingerprint {
            return Err(ReadError::IndexedAgain(task.index));
        }
        let place = index.source();
        let source = if Path::new(&place).is_absolute() {
            Source::Files(FileSource::new(Arc::clone(&index), OPEN_FILES_MAX))
        } else {
            let address = Address { url: place, access: task.bucket.unwrap_or_default() };
            Source::Objects(Box::new(objects(&address, &index)?))
        };
        let rows = task.transform.map(|pipeline| RowsOf::start(&pipeline, task.seed, worker));
        Ok(Self { index, source, rows })
    }

    fn read(&self, Asked { sample, epoch }: Asked) -> Result<Vec<u8>, ReadFault> {
        let samples = self.index.len();
        if sample.0 >= samples {
            return Err(read::ReadError::Unknown { sample, samples }.into());
        }
        let len = usize::try_from(self.index.size(sample).0).expect("a sample fits in memory");
        let mut stored = vec![0; len];
        match &self.source {
            Source::Files(files) => files.read_into(sample, &mut stored),
            Source::Objects(objects) => objects.read_into(sample, &mut stored),
        }?;
        let Some(RowsOf { workers, has_fields }) = &self.rows else { return Ok(stored) };
        let failed = |fault, message| ReadFault { fault, errno: None, message };
        let workers = workers.as_ref().map_err(|why| failed(Fault::NoWorker, why.clone()))?;
        let row = workers.of_sample_blocking(sample, epoch, &stored);
        let mut row = row.map_err(|error| match error {
            TransformError::Untransformable(defect) => {
                failed(Fault::Untransformable, defect.message)
            }
            other => failed(other.fault(), other.to_string()),
        })?;
        if *has_fields {
            row.append(&mut stored);
        }
        Ok(row)
    }
}

impl RowsOf {
    fn start(pipeline: &Pipeline, seed: u64, worker: Program) -> Self {
        let callers = NonZeroUsize::new(READS).expect("there are some");
        let (setup, row_len) = (Setup::of(pipeline, seed), pipeline.row_bytes());
        let workers = Rows::start_blocking(worker, setup, row_len, callers);
        let has_fields = pipeline.container().is_some();
        Self { workers: workers.map_err(|error| error.to_string()), has_fields }
    }
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
