//! The location of a dataset: lists its objects and reads them, on a file system or in a bucket.
//!
//! 1. A listing depends only on the content, not on the timing of threads or pages.
//! 2. Names are bytes below the source, separated by `/`; none leads out of it.
//! 3. The bytes read from an opened object are of the listed version, or the read is an error.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::read_at::ReadAt;

mod arranged;
#[cfg(feature = "object-store")]
mod bucket;
mod files;
pub(crate) mod listing;
pub mod names;

#[cfg(feature = "object-store")]
pub use self::bucket::BucketStore;
pub use self::{
    files::FileStore,
    listing::{Directory, Listed, Listing, Object},
};
pub use tierfeed_object_stores::{Access, Address, Identity};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory or a file, absolute.
    Path(PathBuf),
    /// Objects behind a URL.
    Bucket(Address),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Bucket(bucket) => f.write_str(&bucket.url),
        }
    }
}

/// Creates the store that lists and opens the objects at `location`.
///
/// # Errors
///
/// If no store can read such a location. It is not accessed before it is listed.
pub fn open(location: &Location) -> Result<Box<dyn Store>, SourceError> {
    match location {
        Location::Path(path) => Ok(Box::new(FileStore::new(path.clone()))),
        #[cfg(feature = "object-store")]
        Location::Bucket(bucket) => Ok(Box::new(BucketStore::open(
            bucket,
            &tierfeed_object_stores::Environment::of_process(),
            &tierfeed_object_stores::Patience::default(),
        )?)),
        #[cfg(not(feature = "object-store"))]
        Location::Bucket(bucket) => Err(SourceError::NoObjectStores { url: bucket.url.clone() }),
    }
}

/// Selects the objects below a source that belong to a dataset.
pub trait Selection: Sync {
    /// `path` is below the source.
    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    /// `path` is below the source.
    fn takes(&self, path: &[u8]) -> bool;
}

/// All files, hidden or not: a manifest selects among them.
pub(crate) struct Everything;

impl Selection for Everything {
    fn takes(&self, _path: &[u8]) -> bool {
        true
    }
}

pub trait Store: fmt::Debug + Send + Sync {
    /// Lists the objects that `selection` selects. `progress` gets the number of objects so far, on
    /// this thread, at intervals.
    ///
    /// # Errors
    ///
    /// If a directory or the bucket cannot be listed; the error that comes first in the order of
    /// the listing.
    fn list(
        &self,
        selection: &dyn Selection,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Listing, SourceError>;

    /// Reads size and time of one object, which a list of names lacks. `path` is below the source.
    ///
    /// # Errors
    ///
    /// If it does not exist, or is no object.
    fn stat(&self, path: &[u8]) -> Result<Listed, SourceError>;

    /// Opens an object for reading. For a bucket no request is sent yet.
    ///
    /// # Errors
    ///
    /// If it does not exist, or differs from the listing; for a bucket the first read reports that.
    fn open(&self, object: &Listed) -> Result<Box<dyn Opened>, SourceError>;
}

pub trait Opened: ReadAt + fmt::Debug + Send {
    /// The file, for programs that open it themselves; `None` in a bucket.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Checks that it still is the listed version, after all of it has been read.
    ///
    /// # Errors
    ///
    /// [`SourceError::Changed`] if not.
    fn verify(&self) -> Result<(), SourceError>;
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    #[error("{}: no such file or directory; correct the source of the dataset", .path.display())]
    NoSource { path: PathBuf },
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error(
        "{}: permission denied; a dataset needs the rights to read its files and to read and \
         search its directories", .path.display()
    )]
    Denied { path: PathBuf },
    #[error("{}: not a regular file; samples lie in such files alone", .path.display())]
    NotAFile { path: PathBuf },
    #[error("{}: a symbolic link that leads back to {}; remove it", .path.display(), .ancestor.display())]
    LinkLoop { path: PathBuf, ancestor: PathBuf },
    #[error("{}: a symbolic link to nothing; remove it, or bring back what it names", .path.display())]
    DeadLink { path: PathBuf },
    #[error("{name}: leads out of the dataset; names are relative and have no `..` in them")]
    Outside { name: String },
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Bucket(#[from] tierfeed_object_stores::OpenError),
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Request(#[from] tierfeed_object_stores::RequestError),
    #[error("{place}: a web server cannot say what it has; name the objects in a manifest")]
    CannotList { place: String },
    #[error(
        "{place}: {found} B came instead of {expected} B; check the server and what lies before it"
    )]
    Length { place: String, expected: u64, found: u64 },
    #[error("cannot start the threads that speak to object stores: {0}")]
    Runtime(#[source] std::io::Error),
    #[error(
        "{url}: this tierfeed was built without object stores; build it with them, or mount the bucket"
    )]
    NoObjectStores { url: String },
    #[error("{place}: changed while it was indexed; index it when no process writes to it")]
    Changed { place: String },
}

impl SourceError {
    /// Whether other input would help, rather than another attempt.
    #[must_use]
    pub fn is_input(&self) -> bool {
        match self {
            #[cfg(feature = "object-store")]
            Self::Request(error) => error.is_input(),
            #[cfg(feature = "object-store")]
            Self::Runtime(_) => false,
            _ => true,
        }
    }
}
