//! Makes the layout of a dataset: list it, measure what was listed, check what was measured.

use std::path::{self, PathBuf};

use super::{Format, IndexError, image_folder, kind, layout::Layout, measure, raw};
use crate::job::Dataset;

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Files listed or measured so far.
    pub done: u64,
    /// Files in all, or `None` while they are being listed.
    pub total: Option<u64>,
}

/// What is done to the files of a dataset, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading directories.
    Listing,
    /// Asking for the size and time of each file.
    Measuring,
}

pub(super) fn layout(
    dataset: &Dataset,
    progress: &mut dyn FnMut(Progress),
) -> Result<Layout, IndexError> {
    let root = root_of(dataset)?;
    let format = Format::of(dataset)?;
    let mut layout = match format {
        Format::ImageFolder => image_folder::list(root, progress)?,
        Format::Raw { record_bytes } => raw::list(root, record_bytes, progress)?,
    };
    for (object, measured) in measure::objects(&layout, progress)?.into_iter().enumerate() {
        layout.objects[object].size = measured.size;
        layout.objects[object].mtime_ns = measured.mtime_ns;
    }
    if let Format::Raw { record_bytes } = format {
        raw::refuse_partial_records(&layout, record_bytes)?;
    }
    Ok(layout)
}

/// The source as indexes name it: absolute, without a slash at the end, links as they are.
pub(super) fn root_of(dataset: &Dataset) -> Result<PathBuf, IndexError> {
    let source_path = kind::path_of(dataset)?;
    let unreadable = |source| IndexError::Unreadable { path: source_path.to_owned(), source };
    let absolute = path::absolute(source_path).map_err(unreadable)?;
    Ok(absolute.components().collect())
}
