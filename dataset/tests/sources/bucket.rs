//! Buckets, on a real S3 server on loopback.

mod failures;
mod lists;
mod reads;

use std::time::Duration;

use tierfeed_dataset::source::{Address, BucketStore, SourceError};
use tierfeed_object_stores::{Environment, Options, Patience, test_server::Server};

/// Short, so that a test that waits for its end is fast.
pub(crate) const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(5),
    silence: Duration::from_millis(200),
    retries: 3,
    retry_time: Duration::from_secs(10),
    pause: Duration::from_millis(1),
};

pub(crate) fn bucket(url: &str) -> Address {
    url.to_owned().into()
}

pub(crate) fn environment(variables: Options) -> Environment {
    Environment { variables, home: None }
}

/// With limits for a busy machine.
pub(crate) fn store(server: &Server, url: &str) -> BucketStore {
    let patience = Patience { silence: Duration::from_secs(20), ..PATIENCE };
    BucketStore::open(&bucket(url), &environment(server.options()), &patience).unwrap()
}

pub(crate) fn impatient(server: &Server, url: &str) -> BucketStore {
    BucketStore::open(&bucket(url), &environment(server.options()), &PATIENCE).unwrap()
}

pub(crate) fn cause(error: &std::io::Error) -> &SourceError {
    error.get_ref().unwrap().downcast_ref().unwrap()
}
