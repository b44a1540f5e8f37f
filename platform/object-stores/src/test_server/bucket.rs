//! The content of the bucket, and the operations on it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io,
    ops::{Bound, Range},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use hyper::body::Bytes;
use s3s::{
    Body, S3, S3Error, S3Request, S3Response, S3Result,
    dto::{
        CommonPrefix, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
        DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
        HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, Object,
        PutObjectInput, PutObjectOutput, StreamingBlob, Timestamp,
    },
    s3_error,
};
use tokio_stream::StreamExt as _;

use super::{BUCKET, locked};

/// The page size of S3.
const PAGE_MAX: usize = 1_000;

#[derive(Clone)]
pub(super) struct Stored {
    content: Content,
    version: u64,
}

/// Where the bytes of an object are.
#[derive(Clone)]
enum Content {
    Memory(Bytes),
    File { path: PathBuf, len: usize },
}

pub(super) struct Shared {
    objects: Mutex<BTreeMap<String, Stored>>,
    versions: AtomicU64,
    pub(super) page: AtomicUsize,
}

impl Default for Shared {
    fn default() -> Self {
        let page = AtomicUsize::new(PAGE_MAX);
        Self { objects: Mutex::default(), versions: AtomicU64::new(0), page }
    }
}

impl Shared {
    pub(super) fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Stored>> {
        locked(&self.objects)
    }

    pub(super) fn put(&self, key: String, bytes: Bytes) -> ETag {
        self.store(key, Content::Memory(bytes))
    }

    pub(super) fn put_file(&self, key: String, path: PathBuf) -> io::Result<()> {
        let len = usize::try_from(path.metadata()?.len()).map_err(io::Error::other)?;
        self.store(key, Content::File { path, len });
        Ok(())
    }

    fn store(&self, key: String, content: Content) -> ETag {
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        let stored = Stored { content, version };
        let etag = stored.etag();
        self.objects().insert(key, stored);
        etag
    }

    pub(super) fn remove(&self, key: &str) {
        self.objects().remove(key);
    }

    fn get(&self, bucket: &str, key: &str, if_match: Option<&ETagCondition>) -> S3Result<Stored> {
        there(bucket)?;
        let stored = self.objects().get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey))?;
        let expected = if_match.and_then(ETagCondition::as_etag);
        if expected.is_some_and(|it| *it != stored.etag()) {
            return Err(s3_error!(PreconditionFailed));
        }
        Ok(stored)
    }
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    fn slice(&self, range: Range<usize>) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.slice(range)),
            Self::File { path, .. } => {
                let mut bytes = vec![0; range.len()];
                File::open(path)?.read_exact_at(&mut bytes, range.start as u64)?;
                Ok(bytes.into())
            }
        }
    }
}

impl Stored {
    fn etag(&self) -> ETag {
        ETag::Strong(format!("version-{}", self.version))
    }

    /// A time in 2024, different for each version.
    fn modified(&self) -> Timestamp {
        let since = Duration::from_secs(1_717_171_717 + self.version);
        Timestamp::from(SystemTime::UNIX_EPOCH + since)
    }

    fn len(&self) -> i64 {
        i64::try_from(self.content.len()).expect("its length is one of memory")
    }
}

fn there(bucket: &str) -> Result<(), S3Error> {
    if bucket == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
}

/// Implements the S3 operations for the server library.
pub(super) struct Backend(pub(super) std::sync::Arc<Shared>);

#[async_trait::async_trait]
impl S3 for Backend {
    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        there(&input.bucket)?;
        let asked = input.max_keys.and_then(|it| usize::try_from(it).ok()).unwrap_or(PAGE_MAX);
        let page = Page {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone(),
            after: input.continuation_token.clone().or(input.start_after).unwrap_or_default(),
            keys_max: asked.min(self.0.page.load(Ordering::Relaxed)),
        };
        let (objects, prefixes, last) = page.of(&self.0.objects());
        let prefixes = prefixes.into_iter().map(|prefix| CommonPrefix { prefix: Some(prefix) });
        Ok(S3Response::new(ListObjectsV2Output {
            name: Some(input.bucket),
            prefix: input.prefix,
            is_truncated: Some(last.is_some()),
            next_continuation_token: last,
            contents: Some(objects),
            common_prefixes: Some(prefixes.collect()),
            ..ListObjectsV2Output::default()
        }))
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let stored = self.0.get(&input.bucket, &input.key, input.if_match.as_ref())?;
        let whole = stored.content.len();
        let range = input.range.map(|range| range.check(whole as u64)).transpose()?;
        let place = |at: u64| usize::try_from(at).expect("its length is one of memory");
        let wanted = range.as_ref().map_or(0..whole, |range| place(range.start)..place(range.end));
        let bytes = stored.content.slice(wanted).map_err(S3Error::internal_error)?;
        let described =
            range.map(|range| format!("bytes {}-{}/{whole}", range.start, range.end - 1));
        Ok(S3Response::new(GetObjectOutput {
            content_length: i64::try_from(bytes.len()).ok(),
            body: Some(StreamingBlob::from(Body::from(bytes))),
            content_range: described,
            e_tag: Some(stored.etag()),
            last_modified: Some(stored.modified()),
            ..GetObjectOutput::default()
        }))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let stored = self.0.get(&input.bucket, &input.key, input.if_match.as_ref())?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(stored.len()),
            e_tag: Some(stored.etag()),
            last_modified: Some(stored.modified()),
            ..HeadObjectOutput::default()
        }))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        there(&input.bucket)?;
        let mut bytes = Vec::new();
        let mut body = input.body.ok_or_else(|| s3_error!(IncompleteBody))?;
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece.map_err(|_| s3_error!(IncompleteBody))?);
        }
        let e_tag = Some(self.0.put(input.key, bytes.into()));
        Ok(S3Response::new(PutObjectOutput { e_tag, ..PutObjectOutput::default() }))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.0.remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let keys = request.input.delete.objects.into_iter().map(|it| it.key);
        let removed = keys.map(|key| {
            self.0.remove(&key);
            DeletedObject { key: Some(key), ..DeletedObject::default() }
        });
        let deleted = Some(removed.collect());
        Ok(S3Response::new(DeleteObjectsOutput { deleted, ..DeleteObjectsOutput::default() }))
    }
}

/// The parameters of a listing.
struct Page {
    prefix: String,
    delimiter: Option<String>,
    after: String,
    keys_max: usize,
}

impl Page {
    /// Objects, common prefixes, and the start of the next page if there is one.
    fn of(
        &self,
        stored: &BTreeMap<String, Stored>,
    ) -> (Vec<Object>, BTreeSet<String>, Option<String>) {
        let mut objects = Vec::new();
        let mut prefixes = BTreeSet::new();
        let mut last = None;
        let start = if self.after.is_empty() {
            Bound::Included(self.prefix.clone())
        } else {
            Bound::Excluded(self.after.clone().max(self.prefix.clone()))
        };
        let keys = stored.range::<String, _>((start, Bound::Unbounded));
        for (key, object) in keys.take_while(|(key, _)| key.starts_with(&self.prefix)) {
            let common = self.common(key);
            // All keys below a prefix were on the previous page, if that ended with the prefix.
            if common.as_ref().is_some_and(|it| prefixes.contains(it) || *it == self.after) {
                continue;
            }
            if objects.len() + prefixes.len() == self.keys_max {
                return (objects, prefixes, last);
            }
            last = Some(common.clone().unwrap_or_else(|| key.clone()));
            if let Some(common) = common {
                prefixes.insert(common);
            } else {
                objects.push(listed(key, object));
            }
        }
        (objects, prefixes, None)
    }

    fn common(&self, key: &str) -> Option<String> {
        let delimiter = self.delimiter.as_ref()?;
        let end = key[self.prefix.len()..].find(delimiter)? + delimiter.len();
        Some(key[..self.prefix.len() + end].to_owned())
    }
}

fn listed(key: &str, stored: &Stored) -> Object {
    Object {
        key: Some(key.to_owned()),
        size: Some(stored.len()),
        e_tag: Some(stored.etag()),
        last_modified: Some(stored.modified()),
        ..Object::default()
    }
}
