//! Reads one object of a bucket by ranges.

use std::{
    fmt, io,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tierfeed_object_stores::{
    RangeError, Version,
    object_store::{self, ObjectStore, path::Path},
    read_range,
};
use tokio::task::JoinHandle;

use super::{
    Connection,
    window::{LEN_MAX, Windows},
};
use crate::{
    read_at::ReadAt,
    source::{Listed, Opened, SourceError},
};

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

/// A part that is requested ahead of its use.
#[derive(Debug)]
struct Ahead {
    range: Range<u64>,
    request: JoinHandle<Result<Vec<u8>, RangeError>>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.request.abort();
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

    fn fetch(&self, reading: &mut Reading, offset: u64, len: u64) -> Result<(), RangeError> {
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
    ) -> impl Future<Output = Result<Vec<u8>, RangeError>> + Send + 'static {
        let store = Arc::clone(self.connection.client.store());
        let version = self.version.clone();
        async move {
            // Exactly the expected length: a part is not longer than the request.
            let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let mut bytes = vec![0; len];
            fetch_into(&*store, &version, range, &mut bytes).await?;
            Ok(bytes)
        }
    }

    fn explain(&self, error: RangeError) -> SourceError {
        let place = self.place();
        match error {
            RangeError::Client(error) => {
                self.connection.client.explain_object(&error, place).into()
            }
            RangeError::Length { expected, found } => {
                SourceError::Length { place, expected, found }
            }
            // It existed when it was listed.
            _ => {
                self.has_changed.store(true, Ordering::Relaxed);
                SourceError::Changed { place }
            }
        }
    }

    fn place(&self) -> String {
        self.connection.client.place_of(&self.path)
    }

    fn read(&self, into: &mut [u8], offset: u64) -> Result<(), RangeError> {
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
        self.read(into, offset).map_err(|error| io::Error::other(self.explain(error)))
    }
}

impl Opened for OpenedObject {
    /// Sends no request: every read checked that its answer is of the listed version.
    fn verify(&self) -> Result<(), SourceError> {
        if self.has_changed.load(Ordering::Relaxed) {
            return Err(SourceError::Changed { place: self.place() });
        }
        Ok(())
    }
}

async fn fetch_into(
    store: &dyn ObjectStore,
    version: &Version,
    range: Range<u64>,
    into: &mut [u8],
) -> Result<(), RangeError> {
    read_range(store, version, range, |place, piece| {
        let start = usize::try_from(place).expect("it is a place in memory");
        into[start..start + piece.len()].copy_from_slice(piece);
    })
    .await
}

fn lost(source: tokio::task::JoinError) -> RangeError {
    RangeError::Client(object_store::Error::JoinError { source })
}
