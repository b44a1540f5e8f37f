//! Reads a range of an object, only of the expected version.

use std::{
    error::Error,
    fmt,
    future::poll_fn,
    ops::Range,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, path::Path};
use tokio_stream::Stream;

const SECOND_NS: i64 = 1_000_000_000;

/// An object as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The store's key of the object.
    pub key: Path,
    /// Size of the object, in bytes.
    pub size: u64,
    /// Time of the last write, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The store's identifier of the version, if it has one.
    pub etag: Option<String>,
}

impl Version {
    /// Whether an answer is about this version.
    ///
    /// Without an `ETag` the times are compared, which answers give in seconds.
    pub fn is(&self, answer: &ObjectMeta) -> bool {
        let is_same = match (&self.etag, &answer.e_tag) {
            (Some(expected), Some(found)) => expected == found,
            _ => mtime_ns(answer).div_euclid(SECOND_NS) == self.mtime_ns.div_euclid(SECOND_NS),
        };
        is_same && answer.size == self.size
    }

    /// The `ETag` that a request can require; parts of several answers then belong together.
    ///
    /// `None` without an `ETag`, or with a weak one, which matches nothing, not even itself (RFC
    /// 9110, section 13.1.1).
    pub fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }
}

/// Time of the last write of an object, in nanoseconds since 1970; 0 for years that 64 bits cannot
/// represent.
pub fn mtime_ns(meta: &ObjectMeta) -> i64 {
    meta.last_modified.timestamp_nanos_opt().unwrap_or(0)
}

/// Why a range could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The object no longer exists.
    #[error("the object is gone")]
    Gone,
    /// The object has another version.
    #[error("the object is of another version than expected")]
    Changed,
    /// The server sent less or more than was asked for.
    #[error("{found} B came instead of {expected} B; check the server and what lies before it")]
    Length {
        /// Requested length, in bytes.
        expected: u64,
        /// Received length, in bytes.
        found: u64,
    },
    /// Too little data came for too long; the caller reports this, not the client.
    #[error(
        "less than {least} B came within {silence:?}; check the network and the load of the store"
    )]
    Silent {
        /// The time that was waited.
        silence: Duration,
        /// The required amount, in bytes.
        least: u64,
    },
    /// Another error; [`crate::Client::explain_object`] turns it into a message without secrets.
    #[error("the request failed")]
    Client(object_store::Error),
}

impl From<object_store::Error> for RangeError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::Precondition { .. } => Self::Changed,
            // Without its bucket no object says anything about itself.
            object_store::Error::NotFound { ref source, .. } if !is_about_bucket(&**source) => {
                Self::Gone
            }
            error => Self::Client(error),
        }
    }
}

/// Whether an answer says that the whole bucket is missing.
fn is_about_bucket(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |it| (*it).source());
    causes.any(|it| it.to_string().contains("NoSuchBucket"))
}

/// The body of an answer, which is one range of one version.
pub struct RangeBody {
    pieces: Pin<Box<dyn Stream<Item = object_store::Result<Bytes>> + Send>>,
    expected: u64,
    found: u64,
}

impl fmt::Debug for RangeBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { expected, found, .. } = self;
        f.debug_struct("RangeBody")
            .field("expected", expected)
            .field("found", found)
            .finish_non_exhaustive()
    }
}

/// Requests a range and returns when the answer begins.
///
/// # Errors
///
/// See [`RangeError`].
pub async fn open_range(
    store: &dyn ObjectStore,
    version: &Version,
    range: Range<u64>,
) -> Result<RangeBody, RangeError> {
    let expected = range.end.saturating_sub(range.start);
    let options = GetOptions {
        range: Some(GetRange::Bounded(range)),
        if_match: version.strong_etag().map(str::to_owned),
        ..GetOptions::default()
    };
    let answer = store.get_opts(&version.key, options).await?;
    if version.is(&answer.meta) {
        Ok(RangeBody { pieces: answer.into_stream(), expected, found: 0 })
    } else {
        Err(RangeError::Changed)
    }
}

impl RangeBody {
    /// The next piece; `None` at the end, if the length is right. Cancelling the wait loses no
    /// data.
    ///
    /// # Errors
    ///
    /// [`RangeError::Length`], or [`RangeError::Client`] if the connection breaks.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, RangeError> {
        poll_fn(|context| self.poll_piece(context)).await
    }

    /// As [`Self::piece`], in the form of a poll function.
    ///
    /// # Errors
    ///
    /// As [`Self::piece`].
    pub fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, RangeError>> {
        let piece = ready!(self.pieces.as_mut().poll_next(context)).transpose()?;
        self.found += piece.as_ref().map_or(0, |piece| piece.len() as u64);
        let Self { expected, found, .. } = *self;
        let is_wrong = if piece.is_some() { found > expected } else { found != expected };
        Poll::Ready(if is_wrong { Err(RangeError::Length { expected, found }) } else { Ok(piece) })
    }
}

/// Reads a range piece by piece: `take` gets each with its offset in the range, in order, and never
/// more than the range has. If a body ends too soon the rest is requested again, if the store has
/// versions.
///
/// # Errors
///
/// See [`RangeError`]; `take` has got a part then.
pub async fn read_range(
    store: &dyn ObjectStore,
    version: &Version,
    range: Range<u64>,
    mut take: impl FnMut(u64, &[u8]),
) -> Result<(), RangeError> {
    let mut body = open_range(store, version, range).await?;
    let mut place = 0;
    while let Some(piece) = body.piece().await? {
        take(place, &piece);
        place += piece.len() as u64;
    }
    Ok(())
}
