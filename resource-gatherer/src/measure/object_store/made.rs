//! Makes objects to read where there are none, and removes them.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher as _, Hasher as _},
};

use fastrand::Rng;
use object_store::{ObjectStoreExt as _, PutPayload, path::Path};
use tierfeed_core::units::Bytes;

use super::{
    bucket::{Object, OpenBucket},
    error::Failure,
};

/// Enough that no cache of a server needs to hold all.
const COUNT: u64 = 4;
/// Above this, stores ask for uploads in parts.
const LEN_MAX: u64 = 64 << 20;

/// Objects that were made and are not removed yet.
#[derive(Debug, Default)]
pub(super) struct Made(Vec<Path>);

impl Made {
    /// Makes objects of random bytes that hold `budget` together at most, in a folder of their
    /// own.
    pub(super) async fn make(
        &mut self,
        bucket: &OpenBucket,
        budget: Bytes,
    ) -> Result<Vec<Object>, Failure> {
        let count = COUNT.min(budget.0);
        let len = (budget.0 / count).min(LEN_MAX);
        let seed = RandomState::new().build_hasher().finish();
        let folder = bucket.prefix.clone().join(format!("tierfeed-probe-{seed:016x}"));
        let mut random = Rng::with_seed(seed);
        let mut objects = Vec::new();
        for index in 0..count {
            let path = folder.clone().join(index.to_string());
            // Before the request: one that seems to fail may have arrived.
            self.0.push(path.clone());
            bucket.store.put(&path, payload(len, &mut random)).await?;
            objects.push(Object { path, len });
        }
        Ok(objects)
    }

    /// Removes everything; returns what is left behind.
    pub(super) async fn remove(&mut self, bucket: &OpenBucket) -> Vec<String> {
        let mut remarks = Vec::new();
        while let Some(path) = self.0.last() {
            match bucket.store.delete(path).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => (),
                Err(error) => remarks.push(left(bucket, path, &bucket.scrubbed(&error))),
            }
            self.0.pop();
        }
        remarks
    }

    /// Names of what could not be removed in time.
    pub(super) fn left(&self, bucket: &OpenBucket) -> Vec<String> {
        self.0.iter().map(|path| left(bucket, path, "no answer in time")).collect()
    }
}

fn left(bucket: &OpenBucket, path: &Path, why: &str) -> String {
    format!("{path} was made in the store of {} and could not be removed: {why}", bucket.place())
}

fn payload(len: u64, random: &mut Rng) -> PutPayload {
    let words = (0..len.div_ceil(8)).flat_map(|_| random.u64(..).to_ne_bytes());
    let mut bytes: Vec<u8> = words.collect();
    bytes.truncate(usize::try_from(len).expect("it is at most 64 MiB"));
    bytes.into()
}
