//! Measures the buckets that the settings name, before anything else: a URL that names none is wrong
//! input, and that should not take minutes to be said.
//!
//! It takes time of its own, beside that of [`Limits::total`]: a network may be slow, and the
//! figures of memory shall not suffer for it.

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{
    limits::Limits,
    object_store::{Identity, ObjectStoreError, Options, Request, measure},
};
use crate::figures::{ObjectStore, Skipped};

/// Time allowed in addition to the measurements.
const PATIENCE: Nanoseconds = Nanoseconds(10_000_000_000);

/// The most time that one measurement takes; there are a handful.
const TIME_MAX: Nanoseconds = Nanoseconds(5_000_000_000);

/// A bucket to measure; [`Request`] explains the fields.
#[derive(Debug, Clone)]
pub struct Bucket {
    pub url: String,
    pub options: Options,
    pub identity: Identity,
    pub writes: Bytes,
}

/// The figures of `bucket`, or why there are none.
///
/// # Errors
///
/// The URL is none of a bucket.
pub(crate) fn figures(
    bucket: &Bucket,
    limits: &Limits,
) -> Result<Result<ObjectStore, Skipped>, ObjectStoreError> {
    let request = Request {
        url: bucket.url.clone(),
        options: bucket.options.clone(),
        identity: bucket.identity,
        budget: limits.file,
        writes: bucket.writes,
        time: Nanoseconds(limits.cell.0.min(TIME_MAX.0)),
        patience: PATIENCE,
    };
    measure(&request).map(Ok).or_else(|error| {
        let skipped = || Skipped { what: "an object store".to_owned(), why: error.to_string() };
        if error.is_wrong_input() { Err(error) } else { Ok(Err(skipped())) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::limits::Budget;

    fn outcome(url: &str) -> Result<Result<ObjectStore, Skipped>, ObjectStoreError> {
        let bucket = Bucket {
            url: url.to_owned(),
            options: Options::default(),
            identity: Identity::Anonymous,
            writes: Bytes(0),
        };
        figures(&bucket, &Budget::Quick.limits())
    }

    #[test]
    fn what_names_no_bucket_is_wrong_input() {
        for url in ["no url", "s3://key:secret@bucket", "file:///tmp", "ftp://x/y"] {
            let error = outcome(url).expect_err(url);
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_bucket_that_does_not_answer_is_left_out_and_says_why() {
        // Nothing listens on the port for discarded bytes.
        let skipped = outcome("http://127.0.0.1:9/object").unwrap().unwrap_err();
        assert!(skipped.why.contains("127.0.0.1"), "{skipped:?}");
    }
}
