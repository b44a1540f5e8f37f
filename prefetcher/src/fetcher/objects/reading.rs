//! Reads samples by requests for the indexed version of an object; retries failures and hedges late
//! requests within limits.
//!
//! 1. Each byte of the target of a sample is written once, in order within a part.
//! 2. A request is repeated at most [`Patience::retries`] times within [`Patience::retry_time`]; then it
//!    fails.
//! 3. Beyond their [`Share`], retries are delayed and hedges are not sent.
//!
//! [`Patience::retries`]: tierfeed_object_stores::Patience::retries
//! [`Patience::retry_time`]: tierfeed_object_stores::Patience::retry_time
//! [`Share`]: super::Share

use std::{io, ops::Range, os::unix::ffi::OsStrExt as _, path::PathBuf, sync::Arc};

use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_dataset::{
    Extent,
    format::{Encoding, npz},
};
use tierfeed_object_stores::{
    RangeError, Version as Listed, mtime_ns,
    object_store::{self, ObjectStoreExt as _},
};
use tokio::time::{Instant, sleep};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{
    ObjectSettings, Requests,
    race::{FetchError, Race},
    range_writer::{Put, RangeWriter},
};
use tierfeed_dataset::read::{ReadError, Version, extent_of};

#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(super) extent: Extent,
    pub(super) object: Arc<Listed>,
    name: String,
}

impl Requests {
    /// Reads all bytes of `sample`, which must be `len` long, by one request at a time.
    ///
    /// # Errors
    ///
    /// Some bytes may have been written.
    pub(crate) async fn read(
        &self,
        sample: SampleId,
        len: Bytes,
        put: Put<'_>,
    ) -> Result<(), ReadError> {
        let located = self.locate(sample, len)?;
        let outcome = self.read_located(&located, put).await;
        self.explained(&located, outcome).await
    }

    /// Reads a part of the object of `sample`, which must be one of the sample.
    ///
    /// # Errors
    ///
    /// Some bytes may have been written.
    pub(crate) async fn read_part(
        &self,
        sample: SampleId,
        part: Range<u64>,
        put: Put<'_>,
    ) -> Result<(), ReadError> {
        let located = self.locate(sample, self.index.size(sample))?;
        let _slot = self.slots.acquire().await;
        let outcome = self.fetch_range(&located, part, put).await;
        self.explained(&located, outcome).await
    }

    /// Finds the object of `sample`, which must be `len` long.
    ///
    /// # Errors
    ///
    /// If there is no such sample, or no such object in the store.
    pub(super) fn locate(&self, sample: SampleId, len: Bytes) -> Result<Located, ReadError> {
        let extent = extent_of(&self.index, sample, len)?;
        let below = extent.path.as_os_str().as_bytes();
        let name = self.client.place_of(below);
        let Some(key) = self.client.key(below) else {
            return Err(ReadError::Vanished { path: PathBuf::from(name) });
        };
        let object = Arc::new(Listed {
            key,
            size: extent.object_size,
            mtime_ns: extent.object_mtime_ns,
            etag: extent.etag.clone(),
        });
        Ok(Located { extent, object, name })
    }

    /// Reads a sample by one request at a time, not in parts.
    pub(super) async fn read_located(
        &self,
        located: &Located,
        put: Put<'_>,
    ) -> Result<(), FetchError> {
        let _slot = self.slots.acquire().await;
        match located.extent.encoding {
            Encoding::Plain => self.fetch_range(located, located.range(), put).await,
            Encoding::Deflate { len, crc32 } => {
                let bytes = self.inflated(located, len, crc32).await?;
                put(0, &bytes).map_err(FetchError::Target)
            }
        }
    }

    async fn inflated(
        &self,
        located: &Located,
        len: u64,
        crc32: u32,
    ) -> Result<Vec<u8>, FetchError> {
        let mut stored = Vec::new();
        let mut put = |_, piece: &[u8]| {
            stored.extend_from_slice(piece);
            Ok(())
        };
        self.fetch_range(located, located.range(), &mut put).await?;
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_large())?];
        npz::inflate(&stored, len, crc32, &mut bytes).map_err(FetchError::Damaged)?;
        Ok(bytes)
    }

    /// Reads a range of the stored bytes of a sample by one request, with retries.
    pub(super) async fn fetch_range(
        &self,
        located: &Located,
        range: Range<u64>,
        put: Put<'_>,
    ) -> Result<(), FetchError> {
        let object = &located.object;
        let mut retries = Retries::new(self, object, range.start);
        if range.is_empty() {
            return self.check_version(object, retries).await;
        }
        let mut writer = RangeWriter::new(range, located.extent.offset, put);
        loop {
            match Race::new(self, object).run(&mut writer).await {
                Err(FetchError::Store(error)) => retries.wait(error).await?,
                outcome => return outcome,
            }
            if object.strong_etag().is_none() {
                let discarded = writer.restart();
                self.counters.count(|figures| figures.discarded.0 += discarded);
            }
        }
    }

    /// Compares the version of the object instead of reading an empty range, which no server sends.
    async fn check_version(
        &self,
        object: &Listed,
        mut retries: Retries<'_>,
    ) -> Result<(), FetchError> {
        loop {
            self.count_needed();
            self.counters.count(|figures| figures.requests += 1);
            match self.client.store().head(&object.key).await {
                Ok(found) if object.is(&found) => return Ok(()),
                Ok(_) => return Err(RangeError::Changed.into()),
                Err(error) => retries.wait(error.into()).await?,
            }
        }
    }

    pub(super) async fn explained(
        &self,
        located: &Located,
        outcome: Result<(), FetchError>,
    ) -> Result<(), ReadError> {
        let path = PathBuf::from(&located.name);
        let Err(error) = outcome else { return Ok(()) };
        Err(match error {
            FetchError::Store(RangeError::Gone) => ReadError::Vanished { path },
            FetchError::Store(RangeError::Changed) => self.change_error(located).await,
            FetchError::Store(RangeError::Client(error)) => self.client_error(located, &error),
            FetchError::Store(error) => ReadError::Io { path, source: io::Error::other(error) },
            FetchError::Target(source) => ReadError::Io { path, source },
            FetchError::Damaged(source) => ReadError::Damaged { path, source },
        })
    }

    fn client_error(&self, located: &Located, error: &object_store::Error) -> ReadError {
        let source = self.client.explain_object(error, located.name.clone());
        let is_refusal = source.is_refusal();
        let kind = if is_refusal { io::ErrorKind::PermissionDenied } else { io::ErrorKind::Other };
        ReadError::Io { path: PathBuf::from(&located.name), source: io::Error::new(kind, source) }
    }

    async fn change_error(&self, located: &Located) -> ReadError {
        let (object, path) = (&located.object, PathBuf::from(&located.name));
        let indexed = Version { size: Bytes(object.size), mtime_ns: object.mtime_ns };
        match self.client.store().head(&object.key).await {
            Ok(found) => {
                let found = Version { size: Bytes(found.size), mtime_ns: mtime_ns(&found) };
                ReadError::Changed { path, indexed, found }
            }
            Err(object_store::Error::NotFound { .. }) => ReadError::Vanished { path },
            Err(error) => self.client_error(located, &error),
        }
    }
}

impl Located {
    /// The range of the stored bytes in the object.
    pub(super) fn range(&self) -> Range<u64> {
        let Extent { offset, stored_len, .. } = self.extent;
        offset..offset.saturating_add(stored_len)
    }
}

fn too_large() -> FetchError {
    FetchError::Target(io::ErrorKind::OutOfMemory.into())
}

struct Retries<'a> {
    requests: &'a Requests,
    began: Instant,
    made: u32,
    /// Jitter: differs between parts, so that they are not repeated at the same time.
    seed: u64,
}

impl<'a> Retries<'a> {
    fn new(requests: &'a Requests, object: &Listed, start: u64) -> Self {
        let seed = xxh3_64_with_seed(object.key.as_ref().as_bytes(), start);
        Self { requests, began: Instant::now(), made: 0, seed }
    }

    /// Waits until the request may be repeated.
    ///
    /// # Errors
    ///
    /// The given error if it is permanent or the retries are used up.
    async fn wait(&mut self, error: RangeError) -> Result<(), RangeError> {
        let Self { requests, began, made, seed } = self;
        let ObjectSettings { patience, .. } = requests.settings;
        let is_enough = usize::try_from(*made).is_ok_and(|made| made >= patience.retries)
            || began.elapsed() >= patience.retry_time;
        if is_enough || !error.is_temporary() {
            return Err(error);
        }
        *made += 1;
        requests.counters.count(|figures| figures.retries += 1);
        let is_quick = requests.count_retry();
        let chance = seed.wrapping_add(u64::from(*made).wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32;
        sleep(requests.settings.pause(*made, is_quick, chance)).await;
        Ok(())
    }
}
