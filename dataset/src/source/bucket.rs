//! Lists and opens the objects of a bucket, or opens those of a web server.
//!
//! 1. No more than [`REQUESTS_MAX`] requests are in flight for a listing.
//! 2. Every read requires the listed version (`If-Match`), and the answer is checked again: not
//!    every server supports the condition.
//! 3. Every wait is limited by [`Patience`].
//!
//! Methods block. They run requests in a runtime of their own, so none may be called inside of
//! another runtime.
//!
//! Deliberately absent: keys that begin with a `/`, or have an empty part or one that is `.` or
//! `..`. The client cannot request them; the last two are an error of the listing.

mod list;
mod opened;
mod window;

use std::{sync::Arc, time::Duration};

use tierfeed_object_stores::{
    Client, Environment, Patience, mtime_ns,
    object_store::{self, ObjectMeta, ObjectStoreExt as _, path::Path},
};
use tokio::runtime::{self, Runtime};

use self::{list::Crawl, opened::OpenedObject};
use super::{
    Address, Listed, Listing, Opened, Selection, SourceError, Store,
    arranged::{Filled, Found, listing},
    listing::entry,
};

/// Enough requests to hide the latency of a store; a listing of many folders is limited by it.
const REQUESTS_MAX: usize = 16;

/// Threads wait for the network; TLS and XML need some CPU time.
const THREADS: usize = 2;

#[derive(Debug)]
pub struct BucketStore {
    connection: Arc<Connection>,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    runtime: Runtime,
}

impl BucketStore {
    /// Sets up a client. Sends no request yet.
    ///
    /// # Errors
    ///
    /// If `address` names no object store, or `environment` does not fit it.
    pub fn open(
        address: &Address,
        environment: &Environment,
        patience: &Patience,
    ) -> Result<Self, SourceError> {
        let client = Client::open_in(environment, address, patience)?;
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("tierfeed-objects")
            // Threads for name look-ups end soon when they are not needed.
            .thread_keep_alive(Duration::from_secs(1))
            .enable_all()
            .build()
            .map_err(SourceError::Runtime)?;
        Ok(Self { connection: Arc::new(Connection { client, runtime }) })
    }
}

impl Store for BucketStore {
    fn list(
        &self,
        selection: &dyn Selection,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Listing, SourceError> {
        let client = &self.connection.client;
        let pages = client.pages().ok_or_else(|| SourceError::CannotList { place: client.place() });
        let crawl = Crawl::new(client, Arc::clone(pages?), selection);
        let listed = self.connection.runtime.block_on(crawl.run(progress));
        if let Some(directories) = listed.map_err(|error| client.explain(&error))? {
            return Ok(listing(directories));
        }
        // As a prefix it is empty; it may be an object.
        let object = self.stat(b"")?;
        progress(1);
        let mut found = Found::default();
        found.push(&entry(b"", object.etag.as_deref()), object.size, object.mtime_ns);
        Ok(listing(vec![Filled { name: Vec::new(), mtime_ns: None, found }]))
    }

    fn stat(&self, path: &[u8]) -> Result<Listed, SourceError> {
        let Connection { client, runtime } = &*self.connection;
        let key = self.connection.key(path)?;
        let asked = runtime.block_on(client.store().head(&key));
        let place = client.place_of(path);
        let meta = asked.map_err(|error| client.explain_object(&error, place))?;
        Ok(listed(path, &meta))
    }

    fn open(&self, object: &Listed) -> Result<Box<dyn Opened>, SourceError> {
        let key = self.connection.key(&object.path)?;
        Ok(Box::new(OpenedObject::new(Arc::clone(&self.connection), key, object)))
    }
}

impl Connection {
    fn key(&self, path: &[u8]) -> Result<Path, SourceError> {
        let outside = || SourceError::Outside { name: String::from_utf8_lossy(path).into_owned() };
        self.client.key(path).ok_or_else(outside)
    }
}

fn listed(path: &[u8], meta: &ObjectMeta) -> Listed {
    Listed {
        path: path.to_vec(),
        size: meta.size,
        mtime_ns: mtime_ns(meta),
        etag: meta.e_tag.clone(),
    }
}

fn is_not_found(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. })
}
