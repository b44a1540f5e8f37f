//! Samples in objects of a bucket, or of a web server.
//!
//! A read is one request for one range, of the version that was indexed (`If-Match`); what arrives is
//! copied to its place piece by piece, and nothing is kept. The threads of the data plane wait for their
//! requests; sockets and TLS run on a few threads of their own, however many requests are in flight.
//!
//! Deliberately absent: several requests for one sample, and asking twice for what comes late.

use std::{io, ops::Range, os::unix::ffi::OsStrExt as _, path::PathBuf, sync::Arc};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_numa_memory::Region;
use tierfeed_object_stores::{
    Client, RangeError, Version as Listed, mtime_ns,
    object_store::{self, ObjectStoreExt as _},
    read_range,
};
use tierfeed_workload_analyzer::{
    Extent, Index,
    format::{Encoding, npz},
};
use tokio::{
    runtime::{self, Handle, Runtime},
    sync::watch,
};

use crate::source::{ReadError, Source, Version};

/// Threads that the network and TLS get; a thread of an ordinary server decrypts some gigabytes a second.
const THREADS: usize = 4;

/// Reads the samples of an index from an object store.
#[derive(Debug)]
pub struct ObjectSource {
    index: Arc<Index>,
    client: Client,
    /// Taken when this is dropped, which may be where nobody may wait.
    runtime: Option<Runtime>,
    requests: Handle,
    is_stopped: watch::Sender<bool>,
}

impl ObjectSource {
    /// Reads the samples of `index`, which is one of what `client` reads.
    ///
    /// # Errors
    ///
    /// If the threads for the network cannot be started.
    pub fn new(index: Arc<Index>, client: Client) -> io::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("tierfeed-objects")
            .enable_all()
            .build()?;
        let requests = runtime.handle().clone();
        let (runtime, is_stopped) = (Some(runtime), watch::Sender::new(false));
        Ok(Self { index, client, runtime, requests, is_stopped })
    }

    /// The index that says where the samples lie.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Reads all bytes of `sample` into `buffer`, which must be exactly as long.
    ///
    /// For a process without a data plane: no staging memory.
    ///
    /// # Errors
    ///
    /// A [`ReadError`]; `buffer` then holds garbage.
    pub fn read_into(&self, sample: SampleId, buffer: &mut [u8]) -> Result<(), ReadError> {
        self.read_with(sample, Bytes(buffer.len() as u64), |place, piece| {
            let start = usize::try_from(place).unwrap_or(usize::MAX);
            let rest = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..piece.len()));
            rest.ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(piece);
            Ok(())
        })
    }

    /// Gives the bytes of `sample`, which shall be `len` long, to `put`, each piece with its place among
    /// them.
    fn read_with(
        &self,
        sample: SampleId,
        len: Bytes,
        mut put: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), ReadError> {
        let extent = self.extent(sample, len)?;
        let written = match extent.encoding {
            Encoding::Plain => {
                let mut written = Ok(());
                self.read_extent(&extent, |place, piece| {
                    if written.is_ok() {
                        written = put(place, piece);
                    }
                })?;
                written
            }
            Encoding::Deflate { len, crc32 } => put(0, &self.inflated(&extent, len, crc32)?),
        };
        written.map_err(|source| ReadError::Io { path: self.path(&extent), source })
    }

    /// Where `sample` lies, which shall be `place` long.
    fn extent(&self, sample: SampleId, place: Bytes) -> Result<Extent, ReadError> {
        let samples = self.index.len();
        if sample.0 >= samples {
            return Err(ReadError::Unknown { sample, samples });
        }
        let extent = self.index.extent(sample);
        let indexed = Bytes(extent.len);
        if indexed == place {
            Ok(extent)
        } else {
            Err(ReadError::WrongLength { sample, indexed, place })
        }
    }

    /// The bytes of a deflated sample.
    fn inflated(&self, extent: &Extent, len: u64, crc32: u32) -> Result<Vec<u8>, ReadError> {
        let memory = |bytes: u64| usize::try_from(bytes).expect("a sample fits in memory");
        let mut stored = Vec::with_capacity(memory(extent.stored_len));
        self.read_extent(extent, |_, piece| stored.extend_from_slice(piece))?;
        let mut bytes = vec![0; memory(len)];
        let damaged = |source| ReadError::Damaged { path: self.path(extent), source };
        npz::inflate(&stored, len, crc32, &mut bytes).map_err(damaged)?;
        Ok(bytes)
    }

    fn path(&self, extent: &Extent) -> PathBuf {
        PathBuf::from(self.client.place_of(extent.path.as_os_str().as_bytes()))
    }

    /// Finds the object of an extent and gives its stored bytes to `take`, each with its place among them.
    fn read_extent(&self, extent: &Extent, take: impl FnMut(u64, &[u8])) -> Result<(), ReadError> {
        let below = extent.path.as_os_str().as_bytes();
        let place = self.client.place_of(below);
        let path = PathBuf::from(&place);
        let Some(key) = self.client.key(below) else { return Err(ReadError::Vanished { path }) };
        let object = Listed {
            key,
            size: extent.object_size,
            mtime_ns: extent.object_mtime_ns,
            etag: extent.etag.clone(),
        };
        let end = extent.offset + extent.stored_len;
        match self.wait(self.request(&object, extent.offset..end, take)) {
            None => Err(ReadError::Io { path, source: io::ErrorKind::Interrupted.into() }),
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(self.explain(error, &object, place)),
        }
    }

    async fn request(
        &self,
        object: &Listed,
        range: Range<u64>,
        take: impl FnMut(u64, &[u8]),
    ) -> Result<(), RangeError> {
        if !range.is_empty() {
            return read_range(&**self.client.store(), object, range, take).await;
        }
        // No server sends an empty range; that the object is the same is asked for all the same.
        let found = self.client.store().head(&object.key).await?;
        if object.is(&found) { Ok(()) } else { Err(RangeError::Changed) }
    }

    /// Returns none if the data plane stops first.
    fn wait<T>(&self, request: impl Future<Output = T>) -> Option<T> {
        let mut stopped = self.is_stopped.subscribe();
        self.requests.block_on(async {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_stopped| *is_stopped) => None,
                outcome = request => Some(outcome),
            }
        })
    }

    fn explain(&self, error: RangeError, object: &Listed, place: String) -> ReadError {
        let path = PathBuf::from(&place);
        match error {
            RangeError::Gone => ReadError::Vanished { path },
            RangeError::Changed => self.change(object, path),
            RangeError::Client(error) => {
                let source = io::Error::other(self.client.explain_object(&error, place));
                ReadError::Io { path, source }
            }
            error => ReadError::Io { path, source: io::Error::other(error) },
        }
    }

    /// Asks what there is now.
    fn change(&self, object: &Listed, path: PathBuf) -> ReadError {
        let indexed = Version { size: Bytes(object.size), mtime_ns: object.mtime_ns };
        match self.wait(self.client.store().head(&object.key)) {
            Some(Ok(found)) => {
                let found = Version { size: Bytes(found.size), mtime_ns: mtime_ns(&found) };
                ReadError::Changed { path, indexed, found }
            }
            Some(Err(object_store::Error::NotFound { .. })) => ReadError::Vanished { path },
            Some(Err(error)) => {
                let place = path.display().to_string();
                let source = io::Error::other(self.client.explain_object(&error, place));
                ReadError::Io { path, source }
            }
            None => ReadError::Io { path, source: io::ErrorKind::Interrupted.into() },
        }
    }
}

impl Drop for ObjectSource {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Source for ObjectSource {
    fn read(
        &self,
        sample: SampleId,
        to: &Region,
        offset: Bytes,
        len: Bytes,
    ) -> Result<(), ReadError> {
        self.read_with(sample, len, |place, piece| {
            to.write(Bytes(offset.0.saturating_add(place)), piece).map_err(io::Error::other)
        })
    }

    fn stop(&self) {
        self.is_stopped.send_replace(true);
    }
}

#[cfg(test)]
mod tests;
