//! Reads one object of a bucket by ranges.

use std::{
    fmt, io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tierfeed_object_stores::object_store::{self, GetOptions, GetRange, ObjectStore, path::Path};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;

use super::{
    Connection, is_not_found, mtime_ns,
    window::{LEN_MAX, Windows},
};
use crate::{
    format::ReadAt,
    source::{Listed, Opened, SourceError},
};

const SECOND_NS: i64 = 1_000_000_000;

pub(super) struct OpenedObject {
    connection: Arc<Connection>,
    version: Version,
    path: Vec<u8>,
    reading: Mutex<Reading>,
    has_changed: AtomicBool,
}

#[derive(Debug, Default)]
struct Reading {
    windows: Windows,
    ahead: Option<Ahead>,
}

/// A part that is on its way before anybody asked for it.
#[derive(Debug)]
struct Ahead {
    range: Range<u64>,
    request: JoinHandle<Result<Vec<u8>, Fault>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.request.abort();
    }
}

/// What is read, as it was listed.
#[derive(Debug, Clone)]
struct Version {
    key: Path,
    size: u64,
    mtime_ns: i64,
    etag: Option<String>,
}

/// Why a range did not come.
#[derive(Debug)]
enum Fault {
    Client(object_store::Error),
    Changed,
    Length { expected: u64, found: u64 },
}

impl From<object_store::Error> for Fault {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::Precondition { .. } => Self::Changed,
            // It was there when it was listed.
            error if is_not_found(&error) => Self::Changed,
            error => Self::Client(error),
        }
    }
}

impl fmt::Debug for OpenedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenedObject").field("version", &self.version).finish_non_exhaustive()
    }
}

impl OpenedObject {
    pub(super) fn new(connection: Arc<Connection>, key: Path, object: &Listed) -> Self {
        let Listed { path, size, mtime_ns, etag } = object.clone();
        Self {
            connection,
            version: Version { key, size, mtime_ns, etag },
            path,
            reading: Mutex::default(),
            has_changed: AtomicBool::new(false),
        }
    }

    /// Fetches the part that `offset` lies in.
    fn fetch(&self, reading: &mut Reading, offset: u64, len: u64) -> Result<(), Fault> {
        let ahead = reading.ahead.take().filter(|it| it.range.contains(&offset));
        let (start, bytes) = if let Some(mut ahead) = ahead {
            let fetched = self.connection.runtime.block_on(&mut ahead.request);
            reading.windows.go_on(ahead.range.clone());
            (ahead.range.start, fetched.map_err(lost)??)
        } else {
            let range = reading.windows.plan(offset, len, self.version.size);
            let start = range.start;
            (start, self.connection.runtime.block_on(self.request(range))?)
        };
        reading.windows.keep(start, bytes);
        reading.ahead = reading.windows.next(self.version.size).map(|range| {
            let request = self.connection.runtime.spawn(self.request(range.clone()));
            Ahead { range, request }
        });
        Ok(())
    }

    fn request(
        &self,
        range: Range<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, Fault>> + Send + 'static {
        let store = Arc::clone(self.connection.client.store());
        let version = self.version.clone();
        async move {
            // As much as is expected and no more: a part is not longer than what was asked for.
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let mut bytes = vec![0; len];
            fetch_into(&*store, &version, range, &mut bytes).await?;
            Ok(bytes)
        }
    }

    fn explain(&self, fault: Fault) -> SourceError {
        let place = self.connection.place(&self.path);
        match fault {
            Fault::Client(error) => self.connection.client.explain_object(&error, place).into(),
            Fault::Length { expected, found } => SourceError::Length { place, expected, found },
            Fault::Changed => {
                self.has_changed.store(true, Ordering::Relaxed);
                SourceError::Changed { place }
            }
        }
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), Fault> {
        let end = offset + into.len() as u64;
        if into.len() as u64 >= LEN_MAX {
            let store = Arc::clone(self.connection.client.store());
            let request = fetch_into(&*store, &self.version, offset..end, into);
            return self.connection.runtime.block_on(request);
        }
        let mut reading = self.reading();
        let mut done = 0;
        while done < into.len() {
            let place = offset + done as u64;
            let copied = reading.windows.copy(&mut into[done..], place);
            done += copied;
            if copied == 0 {
                self.fetch(&mut reading, place, end - place)?;
            }
        }
        Ok(())
    }

    fn reading(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadAt for OpenedObject {
    fn len(&self) -> u64 {
        self.version.size
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.version.size);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.read(into, offset).map_err(|fault| io::Error::other(self.explain(fault)))
    }
}

impl Opened for OpenedObject {
    /// Sends nothing: all that was read was of the version that was listed, or this object knows.
    fn verify(&self) -> Result<(), SourceError> {
        if self.has_changed.load(Ordering::Relaxed) {
            return Err(SourceError::Changed { place: self.connection.place(&self.path) });
        }
        Ok(())
    }
}

async fn fetch_into(
    store: &dyn ObjectStore,
    version: &Version,
    range: Range<u64>,
    into: &mut [u8],
) -> Result<(), Fault> {
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        // A weak one matches nothing, not even itself (RFC 9110, section 13.1.1).
        if_match: version.etag.clone().filter(|etag| !etag.starts_with("W/")),
        ..GetOptions::default()
    };
    let answer = store.get_opts(&version.key, options).await?;
    if !version.is(&answer.meta) {
        return Err(Fault::Changed);
    }
    let expected = into.len() as u64;
    let mut body = answer.into_stream();
    let mut done = 0;
    while let Some(piece) = body.next().await {
        let piece = piece?;
        let end = done + piece.len();
        let Some(place) = into.get_mut(done..end) else {
            return Err(Fault::Length { expected, found: end as u64 });
        };
        place.copy_from_slice(&piece);
        done = end;
    }
    if done < into.len() { Err(Fault::Length { expected, found: done as u64 }) } else { Ok(()) }
}

impl Version {
    /// Without a name for the version there is the time, which answers give in seconds.
    fn is(&self, answer: &object_store::ObjectMeta) -> bool {
        let is_same = match (&self.etag, &answer.e_tag) {
            (Some(expected), Some(found)) => expected == found,
            _ => mtime_ns(answer).div_euclid(SECOND_NS) == self.mtime_ns.div_euclid(SECOND_NS),
        };
        is_same && answer.size == self.size
    }
}

fn lost(source: tokio::task::JoinError) -> Fault {
    Fault::Client(object_store::Error::JoinError { source })
}
