//! Finds what there is to read in a bucket.

use std::{sync::Arc, time::Duration};

use object_store::{ObjectStore, ObjectStoreExt as _, path::Path};
use tierfeed_object_stores::{Access, Address, Client, Patience};
use tokio_stream::StreamExt as _;

use super::{Bucket, ObjectStoreError, error::Failure};

/// The most objects that are looked at: more would only make listing longer.
const OBJECTS_MAX: usize = 256;

/// Few retries and a short wait: the real time of a request is measured, and a wrong endpoint must not cost
/// minutes.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    silence: Duration::from_secs(30),
    retries: 2,
    retry_time: Duration::from_secs(10),
    pause: Duration::from_millis(100),
};

pub(super) struct OpenBucket {
    client: Client,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
}

impl OpenBucket {
    pub(super) fn open(bucket: &Bucket) -> Result<Self, ObjectStoreError> {
        let address = Address {
            url: bucket.url.clone(),
            access: Access { identity: bucket.identity, ..Access::default() },
        };
        let client = Client::open(&address, &bucket.options, &PATIENCE)?;
        if client.pages().is_none() && client.prefix().is_root() {
            return Err(ObjectStoreError::NoObject(client.place()));
        }
        let (store, prefix) = (Arc::clone(client.store()), client.prefix().clone());
        Ok(Self { client, store, prefix })
    }

    pub(super) fn place(&self) -> String {
        self.client.place()
    }

    pub(super) fn explain(&self, failure: Failure) -> ObjectStoreError {
        failure.explain(&self.client)
    }

    pub(super) fn scrubbed(&self, error: &object_store::Error) -> String {
        self.client.scrubbed(error)
    }

    fn can_list(&self) -> bool {
        self.client.pages().is_some()
    }

    /// The objects under the prefix that hold a byte, or the one object that the prefix names.
    pub(super) async fn find(&self) -> Result<Vec<Object>, Failure> {
        let found = if self.can_list() { self.list().await? } else { Vec::new() };
        // Where something lies below it, the prefix is a folder and no object.
        let found = if found.is_empty() { self.named().await? } else { found };
        Ok(found.into_iter().filter(|object| object.len > 0).collect())
    }

    async fn list(&self) -> object_store::Result<Vec<Object>> {
        let mut objects = Vec::new();
        let mut listed = self.store.list(Some(&self.prefix)).take(OBJECTS_MAX);
        while let Some(found) = listed.next().await {
            let found = found?;
            objects.push(Object { path: found.location, len: found.size });
        }
        Ok(objects)
    }

    async fn named(&self) -> object_store::Result<Vec<Object>> {
        if self.prefix.is_root() {
            return Ok(Vec::new());
        }
        match self.store.head(&self.prefix).await {
            Ok(found) => Ok(vec![Object { path: found.location, len: found.size }]),
            // The bucket has been listed, so it is there, and empty under the prefix.
            Err(object_store::Error::NotFound { .. }) if self.can_list() => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) path: Path,
    pub(super) len: u64,
}
