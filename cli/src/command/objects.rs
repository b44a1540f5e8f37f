//! `tierfeed objects`: lists buckets and reads ranges of their objects, for a Python process that has
//! neither threads nor a network client of its own.
//!
//! A question is a line of JSON on standard input, the answer a line of JSON on standard output. Behind the
//! answer to `read` come the bytes of all ranges of the objects that could be read, in their order. Answers
//! come in the order of the questions, one at a time; the ranges of one question are read at once, at most
//! [`REQUESTS_MAX`] at a time. A reader ends with its input, so it does not outlive the process that asks.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead, Write},
    ops::Range,
    sync::Arc,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tierfeed_object_stores::{
    Access, Address, Client, Environment, Patience, RangeError, Version, mtime_ns,
    object_store::{Error, ObjectMeta, ObjectStoreExt as _, path::Path},
    read_range,
};
use tokio::{runtime::Runtime, sync::Semaphore, task::JoinHandle};

use super::dataset_keys::BucketOptions;
use crate::failure::Failure;

/// Requests in flight: enough to hide the latency of a store.
const REQUESTS_MAX: usize = 32;

/// Bytes of one answer, which lies in memory before it is written.
const ANSWER_BYTES_MAX: u64 = 1 << 30;

/// Reads of a range before it counts as failed. Those of a request that does not begin are the client's.
const TRIES: usize = 3;

#[derive(Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
enum Question {
    Stat {
        bucket: String,
        key: String,
    },
    /// The contents of a directory, whose key has no slash at its end.
    List {
        bucket: String,
        key: String,
    },
    Read {
        bucket: String,
        objects: Vec<Wanted>,
    },
}

/// The bytes of an object from each start to its end, if it is of this version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    key: String,
    size: u64,
    mtime_ns: i64,
    etag: Option<String>,
    ranges: Vec<(u64, u64)>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Found { objects: Vec<Object>, directories: Vec<String> },
    Read(Vec<Outcome>),
    Failed(Refusal),
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// The number of its bytes that follow.
    Bytes(u64),
    Failed(Refusal),
}

#[derive(Serialize)]
struct Object {
    key: String,
    size: u64,
    mtime_ns: i64,
    etag: Option<String>,
}

#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    NotFound,
    Denied,
    Changed,
    Failed,
}

type Reads = Vec<JoinHandle<Result<Vec<u8>, RangeError>>>;

#[derive(Serialize)]
struct Refusal {
    kind: Kind,
    message: String,
}

pub(crate) fn run(options: &BucketOptions) -> Result<(), Failure> {
    let mut stores = Stores {
        runtime: super::runtime()?,
        environment: Environment::of_process(),
        access: options.access(),
        clients: BTreeMap::new(),
    };
    let (input, mut output) = (io::stdin().lock(), io::stdout().lock());
    for line in input.lines() {
        let line = line.context("cannot read a question")?;
        let question = serde_json::from_str(&line).map_err(Failure::input)?;
        let (answer, bytes) = stores.answer(question);
        let mut header = serde_json::to_vec(&answer)?;
        header.push(b'\n');
        let written = output.write_all(&header).and_then(|()| {
            bytes.iter().try_for_each(|range| output.write_all(range))?;
            output.flush()
        });
        written.context("cannot answer")?;
    }
    Ok(())
}

struct Stores {
    runtime: Runtime,
    environment: Environment,
    access: Access,
    /// By the URL of the bucket. As many as one process names.
    clients: BTreeMap<String, Client>,
}

impl Stores {
    fn answer(&mut self, question: Question) -> (Answer, Vec<Vec<u8>>) {
        let answered = match question {
            Question::Stat { bucket, key } => self.stat(&bucket, &key).map(|it| (it, Vec::new())),
            Question::List { bucket, key } => self.list(&bucket, &key).map(|it| (it, Vec::new())),
            Question::Read { bucket, objects } => self.client(&bucket).map(|client| {
                let (outcomes, bytes) = self.runtime.block_on(read_all(&client, objects));
                (Answer::Read(outcomes), bytes)
            }),
        };
        answered.unwrap_or_else(|refusal| (Answer::Failed(refusal), Vec::new()))
    }

    fn client(&mut self, bucket: &str) -> Result<Client, Refusal> {
        if let Some(client) = self.clients.get(bucket) {
            return Ok(client.clone());
        }
        let address = Address { url: bucket.to_owned(), access: self.access.clone() };
        let client = Client::open_in(&self.environment, &address, &Patience::default())
            .map_err(|error| refusal(Kind::Failed, &error))?;
        self.clients.insert(bucket.to_owned(), client.clone());
        Ok(client)
    }

    fn stat(&mut self, bucket: &str, key: &str) -> Result<Answer, Refusal> {
        let client = self.client(bucket)?;
        let asked = self.runtime.block_on(client.store().head(&path(&client, key)?));
        let meta = asked.map_err(|error| explained(&client, key, &error.into()))?;
        Ok(Answer::Found { objects: vec![object(meta)], directories: Vec::new() })
    }

    fn list(&mut self, bucket: &str, key: &str) -> Result<Answer, Refusal> {
        let client = self.client(bucket)?;
        let within = path(&client, key)?;
        let asked = self.runtime.block_on(client.store().list_with_delimiter(Some(&within)));
        let found = asked.map_err(|error| explained(&client, key, &error.into()))?;
        Ok(Answer::Found {
            objects: found.objects.into_iter().map(object).collect(),
            directories: found.common_prefixes.into_iter().map(String::from).collect(),
        })
    }
}

/// The outcome of each object, and the bytes of the ranges of those that could be read.
async fn read_all(client: &Client, objects: Vec<Wanted>) -> (Vec<Outcome>, Vec<Vec<u8>>) {
    let permits = Arc::new(Semaphore::new(REQUESTS_MAX));
    let mut room = ANSWER_BYTES_MAX;
    let started: Vec<_> = objects
        .into_iter()
        .map(|wanted| (wanted.key.clone(), start(client, wanted, &mut room, &permits)))
        .collect();
    let (mut outcomes, mut bytes) = (Vec::new(), Vec::new());
    for (key, started) in started {
        let read = match started {
            Ok(reads) => finish(client, &key, reads).await,
            Err(refusal) => Err(refusal),
        };
        outcomes.push(match read {
            Ok(ranges) => {
                let len = ranges.iter().map(|range| range.len() as u64).sum();
                bytes.extend(ranges);
                Outcome::Bytes(len)
            }
            Err(refusal) => Outcome::Failed(refusal),
        });
    }
    (outcomes, bytes)
}

/// Starts to read the ranges of an object; takes what they need from `room`.
fn start(
    client: &Client,
    wanted: Wanted,
    room: &mut u64,
    permits: &Arc<Semaphore>,
) -> Result<Reads, Refusal> {
    let Wanted { key, size, mtime_ns, etag, ranges } = wanted;
    let version = Arc::new(Version { key: path(client, &key)?, size, mtime_ns, etag });
    let lens = ranges.iter().map(|(start, end)| end.checked_sub(*start));
    let left = lens.sum::<Option<u64>>().and_then(|whole| room.checked_sub(whole));
    let (Some(left), true) = (left, ranges.iter().all(|(_, end)| *end <= size)) else {
        let message = format!("ranges outside of the {size} B of {key}, or too many of them");
        return Err(refusal(Kind::Failed, &message));
    };
    *room = left;
    let reads = ranges.into_iter().map(|(start, end)| {
        let (client, version) = (client.clone(), Arc::clone(&version));
        let permits = Arc::clone(permits);
        tokio::spawn(async move {
            let _permit = permits.acquire().await;
            read_one(&client, &version, start..end).await
        })
    });
    Ok(reads.collect())
}

async fn finish(client: &Client, key: &str, reads: Reads) -> Result<Vec<Vec<u8>>, Refusal> {
    let mut ranges = Vec::with_capacity(reads.len());
    for read in reads {
        let read = read.await.map_err(|error| refusal(Kind::Failed, &error))?;
        ranges.push(read.map_err(|error| explained(client, key, &error))?);
    }
    Ok(ranges)
}

async fn read_one(
    client: &Client,
    version: &Version,
    range: Range<u64>,
) -> Result<Vec<u8>, RangeError> {
    if range.is_empty() {
        return Ok(Vec::new());
    }
    let len = usize::try_from(range.end - range.start).unwrap_or(0);
    let mut last = None;
    for _ in 0..TRIES {
        let mut bytes = Vec::with_capacity(len);
        let take = |_, piece: &[u8]| bytes.extend_from_slice(piece);
        match read_range(client.store().as_ref(), version, range.clone(), take).await {
            Ok(()) => return Ok(bytes),
            Err(error @ (RangeError::Gone | RangeError::Changed)) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or(RangeError::Gone))
}

fn path(client: &Client, key: &str) -> Result<Path, Refusal> {
    let unknown = || refusal(Kind::NotFound, &format!("{} has no object {key:?}", client.place()));
    client.key(key.as_bytes()).ok_or_else(unknown)
}

fn object(meta: ObjectMeta) -> Object {
    Object {
        mtime_ns: mtime_ns(&meta),
        key: meta.location.into(),
        size: meta.size,
        etag: meta.e_tag,
    }
}

fn refusal(kind: Kind, message: &dyn fmt::Display) -> Refusal {
    Refusal { kind, message: message.to_string() }
}

/// The reason why an object could not be read, without secrets.
fn explained(client: &Client, key: &str, error: &RangeError) -> Refusal {
    let place = client.place_of(key.as_bytes());
    match error {
        RangeError::Gone => refusal(Kind::NotFound, &format!("{place} does not exist")),
        RangeError::Changed => {
            refusal(Kind::Changed, &format!("{place} was written or replaced while it was read"))
        }
        RangeError::Client(cause) => {
            let is_denied =
                matches!(cause, Error::PermissionDenied { .. } | Error::Unauthenticated { .. });
            let kind = if is_denied { Kind::Denied } else { Kind::Failed };
            refusal(kind, &client.explain_object(cause, place))
        }
        _ => refusal(Kind::Failed, &format!("{place}: {error}")),
    }
}
