//! Reads datasets: defines a sample, finds its position, and reads it.
//!
//! [`mod@format`] finds the samples in an object, [`source`] lists the objects of a dataset, and
//! [`Index`] keeps the position of every sample; a [`Catalog`] has those of all datasets of a job.
//! [`mod@read`] reads samples of files. [`recognition`] says by names which datasets lie in a place. [`pace`] and [`throttle`] slow reads down to
//! the speed of an emulated store.
//!
//! Deliberately absent: jobs and tiers.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod format;
pub mod index;
pub mod pace;
pub mod read;
mod read_at;
pub mod recognition;
pub mod source;
pub mod throttle;

pub use catalog::Catalog;
use format::Files;
pub use format::{Format, keys};
pub use index::{Extent, Index};
use source::Location;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dataset {
    pub source: Location,
    pub format: Format,
    /// The selection of objects; `None` for all that the format takes. Not used with [`Format::Files`], which
    /// holds a selection itself.
    pub picked: Option<Files>,
}

impl Dataset {
    #[must_use]
    pub const fn new(source: Location, format: Format) -> Self {
        Self { source, format, picked: None }
    }

    #[must_use]
    pub fn picking(self, picked: Option<Files>) -> Self {
        Self { picked, ..self }
    }

    /// The selection of objects, from the format or from `picked`.
    pub(crate) fn files(&self) -> Option<&Files> {
        match &self.format {
            Format::Files(files) => Some(files),
            _ => self.picked.as_ref(),
        }
    }
}
