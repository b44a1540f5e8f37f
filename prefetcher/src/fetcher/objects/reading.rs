//! Reads samples by requests of the version that was indexed: repeats what fails, asks twice for what is
//! late, within bounds.
//!
//! 1. Of the place of a sample each byte is written once, in order within a part.
//! 2. A request is repeated at most [`Patience::retries`] times within [`Patience::retry_time`], then it is
//!    an error.
//! 3. Repetitions and hedges beyond their [`Share`] are late, or not made.
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
    figures::count,
    landing::{Landing, Put},
    race::{Miss, Race},
};
use tierfeed_dataset::read::{ReadError, Version, extent_of};

/// A sample and the object that it lies in.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(super) extent: Extent,
    pub(super) object: Arc<Listed>,
    /// For the user.
    place: String,
}

impl Requests {
    /// Reads all bytes of `sample`, which shall be `len` long, by one request after another.
    ///
    /// # Errors
    ///
    /// A [`ReadError`]; some bytes may have been put.
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

    /// Where `sample` lies, which shall be `place` long.
    ///
    /// # Errors
    ///
    /// If there is no such sample, or no such object in the store.
    pub(super) fn locate(&self, sample: SampleId, place: Bytes) -> Result<Located, ReadError> {
        let extent = extent_of(&self.index, sample, place)?;
        let below = extent.path.as_os_str().as_bytes();
        let place = self.client.place_of(below);
        let Some(key) = self.client.key(below) else {
            return Err(ReadError::Vanished { path: PathBuf::from(place) });
        };
        let object = Arc::new(Listed {
            key,
            size: extent.object_size,
            mtime_ns: extent.object_mtime_ns,
            etag: extent.etag.clone(),
        });
        Ok(Located { extent, object, place })
    }

    /// Reads a sample that is not divided.
    pub(super) async fn read_located(&self, located: &Located, put: Put<'_>) -> Result<(), Miss> {
        let _slot = self.slots.acquire().await;
        match located.extent.encoding {
            Encoding::Plain => self.bring(located, located.range(), put).await,
            Encoding::Deflate { len, crc32 } => {
                let bytes = self.inflated(located, len, crc32).await?;
                put(0, &bytes).map_err(Miss::Place)
            }
        }
    }

    /// The bytes of a deflated sample.
    async fn inflated(&self, located: &Located, len: u64, crc32: u32) -> Result<Vec<u8>, Miss> {
        let mut stored = Vec::new();
        let mut put = |_, piece: &[u8]| {
            stored.extend_from_slice(piece);
            Ok(())
        };
        self.bring(located, located.range(), &mut put).await?;
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| too_large())?];
        npz::inflate(&stored, len, crc32, &mut bytes).map_err(Miss::Damaged)?;
        Ok(bytes)
    }

    /// Brings stored bytes of a sample by one request, repeated if it has to be.
    pub(super) async fn bring(
        &self,
        located: &Located,
        range: Range<u64>,
        put: Put<'_>,
    ) -> Result<(), Miss> {
        let object = &located.object;
        let mut tries = Tries::new(self, object, range.start);
        if range.is_empty() {
            return self.ask_after(object, tries).await;
        }
        let mut landing = Landing::new(range, located.extent.offset, put);
        loop {
            match Race::new(self, object).run(&mut landing).await {
                Err(Miss::Store(error)) => tries.again(error).await?,
                outcome => return outcome,
            }
            if object.strong_etag().is_none() {
                count(&self.counters.discarded, landing.start_over());
            }
        }
    }

    /// No server sends an empty range; that the object is the same is asked for all the same.
    async fn ask_after(&self, object: &Listed, mut tries: Tries<'_>) -> Result<(), Miss> {
        loop {
            self.earn();
            count(&self.counters.requests, 1);
            match self.client.store().head(&object.key).await {
                Ok(found) if object.is(&found) => return Ok(()),
                Ok(_) => return Err(RangeError::Changed.into()),
                Err(error) => tries.again(error.into()).await?,
            }
        }
    }

    /// What went wrong, in words for the user.
    pub(super) async fn explained(
        &self,
        located: &Located,
        outcome: Result<(), Miss>,
    ) -> Result<(), ReadError> {
        let path = PathBuf::from(&located.place);
        let Err(miss) = outcome else { return Ok(()) };
        Err(match miss {
            Miss::Store(RangeError::Gone) => ReadError::Vanished { path },
            Miss::Store(RangeError::Changed) => self.change(located).await,
            Miss::Store(RangeError::Client(error)) => self.refusal(located, &error),
            Miss::Store(error) => ReadError::Io { path, source: io::Error::other(error) },
            Miss::Place(source) => ReadError::Io { path, source },
            Miss::Damaged(source) => ReadError::Damaged { path, source },
        })
    }

    fn refusal(&self, located: &Located, error: &object_store::Error) -> ReadError {
        let place = located.place.clone();
        let source = io::Error::other(self.client.explain_object(error, place));
        ReadError::Io { path: PathBuf::from(&located.place), source }
    }

    /// Asks what there is now.
    async fn change(&self, located: &Located) -> ReadError {
        let (object, path) = (&located.object, PathBuf::from(&located.place));
        let indexed = Version { size: Bytes(object.size), mtime_ns: object.mtime_ns };
        match self.client.store().head(&object.key).await {
            Ok(found) => {
                let found = Version { size: Bytes(found.size), mtime_ns: mtime_ns(&found) };
                ReadError::Changed { path, indexed, found }
            }
            Err(object_store::Error::NotFound { .. }) => ReadError::Vanished { path },
            Err(error) => self.refusal(located, &error),
        }
    }
}

impl Located {
    /// The stored bytes.
    pub(super) fn range(&self) -> Range<u64> {
        let Extent { offset, stored_len, .. } = self.extent;
        offset..offset.saturating_add(stored_len)
    }
}

fn too_large() -> Miss {
    Miss::Place(io::ErrorKind::OutOfMemory.into())
}

/// How often something failed, and since when it is asked for.
struct Tries<'a> {
    requests: &'a Requests,
    began: Instant,
    made: u32,
    /// Differs from part to part, so that they are not repeated together.
    seed: u64,
}

impl<'a> Tries<'a> {
    fn new(requests: &'a Requests, object: &Listed, start: u64) -> Self {
        let seed = xxh3_64_with_seed(object.key.as_ref().as_bytes(), start);
        Self { requests, began: Instant::now(), made: 0, seed }
    }

    /// Waits until it may be asked again.
    ///
    /// # Errors
    ///
    /// The error, if that would not help or was done too often.
    async fn again(&mut self, error: RangeError) -> Result<(), RangeError> {
        let Self { requests, began, made, seed } = self;
        let ObjectSettings { patience, .. } = requests.settings;
        let is_enough = usize::try_from(*made).is_ok_and(|made| made >= patience.retries)
            || began.elapsed() >= patience.retry_time;
        if is_enough || !error.is_temporary() {
            return Err(error);
        }
        *made += 1;
        count(&requests.counters.retries, 1);
        let is_quick = requests.repeat();
        let chance = seed.wrapping_add(u64::from(*made).wrapping_mul(0x9E37_79B9_7F4A_7C15)) >> 32;
        sleep(requests.settings.pause(*made, is_quick, chance)).await;
        Ok(())
    }
}
