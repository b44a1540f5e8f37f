//! Reads datasets: says what a sample is, where it lies, and how to read it.
//!
//! [`mod@format`] finds the samples in an object, [`source`] lists the objects of a dataset, and [`Index`] keeps
//! where every sample lies. [`mod@read`] reads samples of files, [`reader`] those of a bucket by a child process.
//! [`pace`] and [`throttle`] slow reads down to the speed of an emulated store.
//!
//! Deliberately absent: jobs and tiers.

#![forbid(unsafe_code)]

pub mod format;
pub mod index;
pub mod pace;
pub mod read;
pub mod reader;
pub mod source;
pub mod throttle;

pub use format::Format;
pub use index::{Extent, Index};
use source::Location;

/// Where the samples are and how they are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    /// A directory, a file or a part of a bucket.
    pub source: Location,
    /// How samples lie in its objects.
    pub format: Format,
}

impl Dataset {
    /// The samples at `source`, stored as `format`.
    #[must_use]
    pub const fn new(source: Location, format: Format) -> Self {
        Self { source, format }
    }
}
