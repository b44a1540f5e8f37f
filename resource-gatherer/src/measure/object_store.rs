//! Measures a bucket: how long a request takes, and how much arrives with several in flight.
//!
//! 1. No more bytes are read than [`Request::budget`] allows, nothing is written unless asked for, and
//!    no more than allowed. What was made is removed again, also after a failure.
//! 2. Nothing that came from the options, and no query of a URL, is ever printed: both may hold
//!    credentials. Texts of the client library are scrubbed.
//! 3. Every wait has an end ([`ObjectStoreError::NoAnswer`]).
//!
//! Everything runs on the calling thread, in a runtime of its own, so that the CPU that HTTP and TLS take
//! is that of one thread, as in an agent that fetches with one. The environment is not read: the
//! caller passes what belongs to the bucket as options.
//!
//! Deliberately absent: `~/.aws` and other files of command-line tools. Credentials come from the
//! options, or from the metadata service of the machine.

mod bucket;
mod error;
mod made;
mod run;

use std::time::Duration;

use tierfeed_core::units::{Bytes, Nanoseconds};
pub use tierfeed_object_stores::{Identity, OpenError, Options, RequestError, RequestFault};
use tokio::{runtime, time};

pub use self::error::ObjectStoreError;
use self::{
    bucket::{Object, OpenBucket},
    error::Failure,
    made::Made,
    run::Run,
};
use super::limits::Limits;
use crate::figures::ObjectStore;

/// A bucket to measure.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or the URL of one object on
    /// a web server. Without credentials.
    pub url: String,
    pub options: Options,
    pub identity: Identity,
    /// The most that may be written if there is nothing to read; zero for nothing.
    pub writes: Bytes,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub bucket: Bucket,
    pub budget: Bytes,
    /// Time for each measurement: request latency, and each number of requests in flight.
    pub time: Nanoseconds,
    /// Time beside that: for listing and making objects, and again as much for removing them.
    pub patience: Nanoseconds,
}

impl Request {
    /// Takes time of its own, beside that of [`Limits::total`]: a network may be slow, and the figures of
    /// memory shall not suffer for it.
    pub(crate) fn of(bucket: &Bucket, limits: &Limits) -> Self {
        const TIME_MAX: Nanoseconds = Nanoseconds(5_000_000_000);
        Self {
            bucket: bucket.clone(),
            budget: limits.file,
            time: limits.cell.min(TIME_MAX),
            patience: Nanoseconds(10_000_000_000),
        }
    }
}

/// # Errors
///
/// The URL names no bucket, the bucket cannot be read or holds nothing to read, or it does not answer.
pub fn measure(request: &Request) -> Result<ObjectStore, ObjectStoreError> {
    let bucket = OpenBucket::open(&request.bucket)?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(ObjectStoreError::Runtime)?.block_on(measure_within(&bucket, request))
}

async fn measure_within(
    bucket: &OpenBucket,
    request: &Request,
) -> Result<ObjectStore, ObjectStoreError> {
    let measurements = 1 + u32::try_from(run::REQUESTS.len()).unwrap_or(u32::MAX);
    let stretched = request.time.0.saturating_mul(u64::from(measurements) * run::STRETCH);
    let patience = Nanoseconds(request.patience.0.saturating_add(stretched));
    let duration = |it: Nanoseconds| Duration::from_nanos(it.0);
    let mut made = Made::default();
    let outcome = time::timeout(duration(patience), measure_all(bucket, request, &mut made)).await;
    // Invariant 1.
    let left = time::timeout(duration(request.patience), made.remove(bucket)).await;
    let left = left.unwrap_or_else(|_| made.left(bucket));
    let measured = outcome.map_err(|_| ObjectStoreError::NoAnswer(bucket.place(), patience))?;
    let mut report = measured.map_err(|failure| bucket.explain(failure))?;
    report.remarks.extend(left);
    Ok(report)
}

async fn measure_all(
    bucket: &OpenBucket,
    request: &Request,
    made: &mut Made,
) -> Result<ObjectStore, Failure> {
    let mut objects = bucket.find().await?;
    let mut written = Bytes(0);
    if objects.is_empty() {
        if request.bucket.writes == Bytes(0) {
            return Err(Failure::Empty);
        }
        objects = made.make(bucket, request.bucket.writes).await?;
        written = Bytes(objects.iter().map(|object| object.len).sum());
    }
    let mut run = Run::new(bucket, &objects, request.budget, request.time);
    let request_latency = run.latency().await?;
    let mut throughput = Vec::new();
    for requests in run::REQUESTS {
        throughput.extend(run.throughput(requests).await?);
    }
    Ok(ObjectStore {
        url: bucket.place(),
        object_bytes: longest(&objects),
        made_objects: written > Bytes(0),
        request_latency,
        transferred_bytes: run.transferred().0 + written.0,
        remarks: run::remarks(&throughput, request.budget),
        throughput,
    })
}

fn longest(objects: &[Object]) -> u64 {
    objects.iter().map(|object| object.len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::limits::Budget;

    fn refusal(url: &str) -> ObjectStoreError {
        let bucket = Bucket {
            url: url.to_owned(),
            options: Options::default(),
            identity: Identity::Anonymous,
            writes: Bytes(0),
        };
        measure(&Request::of(&bucket, &Budget::Quick.limits())).expect_err(url)
    }

    #[test]
    fn what_names_no_bucket_is_wrong_input() {
        for url in ["no url", "s3://key:secret@bucket", "file:///tmp", "ftp://x/y"] {
            let error = refusal(url);
            assert!(error.is_wrong_input() && !error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_bucket_that_does_not_answer_is_no_wrong_input_and_says_why() {
        // Nothing listens on the port for discarded bytes.
        let error = refusal("http://127.0.0.1:9/object");
        assert!(!error.is_wrong_input() && error.to_string().contains("127.0.0.1"), "{error}");
    }
}
