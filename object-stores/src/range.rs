//! Reads a range of an object, of the version that is expected and of no other.

use std::ops::Range;

use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, path::Path};
use tokio_stream::StreamExt as _;

const SECOND_NS: i64 = 1_000_000_000;

/// An object as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// What the store calls it.
    pub key: Path,
    /// In bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// What the store calls the version.
    pub etag: Option<String>,
}

impl Version {
    /// Whether an answer is about this version.
    ///
    /// Without a name for the version there is the time, which answers give in seconds.
    pub fn is(&self, answer: &ObjectMeta) -> bool {
        let is_same = match (&self.etag, &answer.e_tag) {
            (Some(expected), Some(found)) => expected == found,
            _ => mtime_ns(answer).div_euclid(SECOND_NS) == self.mtime_ns.div_euclid(SECOND_NS),
        };
        is_same && answer.size == self.size
    }
}

/// When an object was last written, in nanoseconds since 1970. Years in which 64 bits do not suffice are
/// nobody's.
pub fn mtime_ns(meta: &ObjectMeta) -> i64 {
    meta.last_modified.timestamp_nanos_opt().unwrap_or(0)
}

/// Why a range did not come.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// There is no such object any more.
    #[error("the object is gone")]
    Gone,
    /// There is another version of it.
    #[error("the object is of another version than expected")]
    Changed,
    /// The server sent less or more than was asked for.
    #[error("{found} B came instead of {expected} B; check the server and what lies before it")]
    Length {
        /// In bytes.
        expected: u64,
        /// In bytes.
        found: u64,
    },
    /// Anything else; [`crate::Client::explain_object`] says what it means, without a secret.
    #[error("the request failed")]
    Client(object_store::Error),
}

impl From<object_store::Error> for RangeError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::Precondition { .. } => Self::Changed,
            object_store::Error::NotFound { .. } => Self::Gone,
            error => Self::Client(error),
        }
    }
}

/// Reads a range piece by piece: `take` gets each with its place in the range, in order, and never more
/// than the range has. A body that ends too soon is asked for again from there, if the store names
/// versions.
///
/// # Errors
///
/// As [`RangeError`] says; `take` then has got a part.
pub async fn read_range(
    store: &dyn ObjectStore,
    version: &Version,
    range: Range<u64>,
    mut take: impl FnMut(u64, &[u8]),
) -> Result<(), RangeError> {
    let expected = range.end - range.start;
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        // A weak one matches nothing, not even itself (RFC 9110, section 13.1.1).
        if_match: version.etag.clone().filter(|etag| !etag.starts_with("W/")),
        ..GetOptions::default()
    };
    let answer = store.get_opts(&version.key, options).await?;
    if !version.is(&answer.meta) {
        return Err(RangeError::Changed);
    }
    let mut body = answer.into_stream();
    let mut found = 0;
    while let Some(piece) = body.next().await {
        let piece = piece?;
        let place = found;
        found += piece.len() as u64;
        if found > expected {
            break;
        }
        take(place, &piece);
    }
    if found == expected { Ok(()) } else { Err(RangeError::Length { expected, found }) }
}
