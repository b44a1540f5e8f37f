//! Where a dataset lies: lists its objects and reads them, on a file system or in a bucket.
//!
//! 1. A listing depends on what is there alone, not on the timing of threads or pages.
//! 2. Names are bytes below the source, parted by `/`; none leads out of it.
//! 3. What is read from an opened object is of the version that was listed, or an error.

use std::{fmt, path::PathBuf};

use crate::format::ReadAt;

pub mod names;

/// Where the samples of a job are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A directory or a file, absolute.
    Path(PathBuf),
    /// Objects behind a URL.
    Bucket(Bucket),
}

/// A part of an object store.
///
/// Credentials are not here: they come from the environment, as the store's own tools take them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, or `https://host/prefix`.
    pub url: String,
    /// The server, if it is not the usual one of the scheme, such as `http://127.0.0.1:9000`.
    pub endpoint: Option<String>,
    /// The region, if the environment does not say it.
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

    /// Opens an object for reading.
    ///
    /// # Errors
    ///
    /// If it is not there, or is not what was listed.
    fn open(&self, object: &Listed) -> Result<Box<dyn Opened>, SourceError>;
}

/// An object that was opened.
pub trait Opened: ReadAt + Send {
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
    /// A file or directory cannot be read.
    #[error("{}: cannot be read: {source}", .path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// An object was written while it was looked at.
    #[error("{place}: changed while it was indexed; index it when nobody writes")]
    Changed {
        /// The object.
        place: String,
    },
}
