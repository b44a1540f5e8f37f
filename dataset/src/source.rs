//! Where a dataset lies: lists its objects and reads them, on a file system or in a bucket.
//!
//! 1. A listing depends on what is there alone, not on the timing of threads or pages.
//! 2. Names are bytes below the source, parted by `/`; none leads out of it.
//! 3. What is read from an opened object is of the version that was listed, or an error.

use std::{fmt, path::PathBuf};

use crate::format::ReadAt;

mod arranged;
#[cfg(feature = "object-store")]
mod bucket;
mod files;
pub mod names;

#[cfg(feature = "object-store")]
pub use self::bucket::BucketStore;
pub use self::files::FileStore;

/// Where the samples of a job are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory or a file, absolute.
    Path(PathBuf),
    /// Objects behind a URL.
    Bucket(Bucket),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Bucket(bucket) => f.write_str(&bucket.url),
        }
    }
}

/// A part of an object store.
///
/// Credentials are not here: they come from the environment, as the store's own tools take them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or `https://host/prefix`.
    pub url: String,
    /// The server, such as `http://127.0.0.1:9000`; more than what the environment says.
    pub endpoint: Option<String>,
    /// The region; more than what the environment says.
    pub region: Option<String>,
    /// Who reads.
    pub identity: Identity,
}

/// Who reads a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Whoever the environment names, else the machine.
    Configured,
    /// Nobody: requests are not signed.
    Anonymous,
}

/// What there is, grouped by directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// All directories that were entered, with or without objects, in [`names::python_order`] of their
    /// paths. A source that is one file has one, without a name and a time.
    pub directories: Vec<Directory>,
    /// Directory by directory, in [`names::python_order`] of their names.
    pub objects: Vec<Object>,
    /// The names of the objects in their directories, one after the other. In a bucket each is
    /// followed by a NUL and the `ETag`.
    pub names: Vec<u8>,
}

/// A directory, or in a bucket what stands before the last `/` of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// Below the source; empty for the source itself.
    pub name: Vec<u8>,
    /// When it last changed, in nanoseconds since 1970; `None` where nothing tells.
    pub mtime_ns: Option<i64>,
    /// The first of its objects.
    pub first_object: usize,
}

/// A file, or what a bucket has under a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object {
    /// In bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Where its name ends in [`Listing::names`]; it starts where the one before ends.
    pub name_end: u64,
}

/// An object as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Below the source; empty if the source is the object.
    pub path: Vec<u8>,
    /// In bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// What a bucket calls its version.
    pub etag: Option<String>,
}

/// Makes what lists and opens the objects at `location`.
///
/// # Errors
///
/// If nothing can read such a place. Nothing is looked at before it is listed.
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

/// Which of the things below a source belong to a dataset.
pub trait Selection: Sync {
    /// Whether to look into a directory. `path` is below the source.
    fn enters(&self, path: &[u8]) -> bool;

    /// Whether to take a file. `path` is below the source.
    fn takes(&self, path: &[u8]) -> bool;
}

/// A file system or a bucket, at one source.
pub trait Store: fmt::Debug + Send + Sync {
    /// Lists what `selection` selects. `progress` gets the number of objects so far, on this thread,
    /// now and then.
    ///
    /// # Errors
    ///
    /// If a directory or the bucket cannot be listed; one error for the whole, that which comes first in
    /// the order of the listing.
    fn list(
        &self,
        selection: &dyn Selection,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Listing, SourceError>;

    /// Asks for the size and time of one object, as a list of names leaves them out. `path` is below
    /// the source.
    ///
    /// # Errors
    ///
    /// If it is not there, or is no object.
    fn look(&self, path: &[u8]) -> Result<Listed, SourceError>;

    /// Opens an object for reading. That of a bucket sends nothing yet.
    ///
    /// # Errors
    ///
    /// If it is not there, or is not what was listed; for a bucket the first read tells.
    fn open(&self, object: &Listed) -> Result<Box<dyn Opened>, SourceError>;
}

/// An object that was opened.
pub trait Opened: ReadAt + fmt::Debug + Send {
    /// Whether it still is what was listed, after all has been read.
    ///
    /// # Errors
    ///
    /// [`SourceError::Changed`] if not.
    fn verify(&self) -> Result<(), SourceError>;
}

/// Why a source cannot be listed or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is nothing of this name.
    #[error("{}: no such file or directory; correct the source of the dataset", .path.display())]
    NoSource {
        /// The source.
        path: PathBuf,
    },
    /// A file or directory cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file or directory may not be read.
    #[error(
        "{}: permission denied; a dataset needs the rights to read its files and to read and \
         search its directories", .path.display()
    )]
    Denied {
        /// The file or directory.
        path: PathBuf,
    },
    /// A name that ought to be a file and is a directory, a pipe, a socket or a device.
    #[error("{}: not a regular file; samples lie in such files alone", .path.display())]
    NotAFile {
        /// What it is called.
        path: PathBuf,
    },
    /// A symbolic link that leads to a directory above it.
    #[error("{}: a symbolic link that leads back to {}; remove it", .path.display(), .ancestor.display())]
    LinkLoop {
        /// The link.
        path: PathBuf,
        /// Where it leads.
        ancestor: PathBuf,
    },
    /// A symbolic link that leads nowhere.
    #[error("{}: a symbolic link to nothing; remove it, or bring back what it names", .path.display())]
    DeadLink {
        /// The link.
        path: PathBuf,
    },
    /// A name that leads out of the source.
    #[error("{name}: leads out of the dataset; names are relative and have no `..` in them")]
    Outside {
        /// As given.
        name: String,
    },
    /// There is no client for a bucket.
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Bucket(#[from] tierfeed_object_stores::OpenError),
    /// A bucket does not do what it was asked for.
    #[cfg(feature = "object-store")]
    #[error(transparent)]
    Request(#[from] tierfeed_object_stores::RequestError),
    /// A web server cannot be listed.
    #[error("{place}: a web server cannot say what it has; name the objects in a manifest")]
    CannotList {
        /// The source.
        place: String,
    },
    /// An object has fewer or more bytes than its server said.
    #[error(
        "{place}: {found} B came instead of {expected} B; check the server and what lies before it"
    )]
    Length {
        /// The object.
        place: String,
        /// As asked for.
        expected: u64,
        /// As received.
        found: u64,
    },
    /// The threads for requests cannot be started.
    #[error("cannot start the threads that speak to object stores: {0}")]
    Runtime(#[source] std::io::Error),
    /// There is no client for buckets in this program.
    #[error(
        "{url}: this tierfeed was built without object stores; build it with them, or mount the bucket"
    )]
    NoObjectStores {
        /// The source.
        url: String,
    },
    /// An object was written, replaced or removed while it was looked at.
    #[error("{place}: changed while it was indexed; index it when nobody writes")]
    Changed {
        /// The object.
        place: String,
    },
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
