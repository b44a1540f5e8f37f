//! Makes the layout of a dataset: list it, measure what was listed, check what was measured.

use std::path::{self, PathBuf};

use super::{IndexError, image_folder, layout::Layout, measure, raw};
use crate::job::{Dataset, Format};

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
    let mut layout = match dataset.format {
        Format::ImageFolder => image_folder::list(root, progress)?,
        Format::Raw { record_bytes } => raw::list(root, record_bytes, progress)?,
    };
    for (object, measured) in measure::objects(&layout, progress)?.into_iter().enumerate() {
        layout.objects[object].size = measured.size;
        layout.objects[object].mtime_ns = measured.mtime_ns;
    }
    if let Format::Raw { record_bytes } = dataset.format {
        raw::refuse_partial_records(&layout, record_bytes)?;
    }
    Ok(layout)
}

/// The source as indexes name it: absolute, without a slash at the end, links as they are.
pub(super) fn root_of(dataset: &Dataset) -> Result<PathBuf, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: dataset.source.clone(), source };
    let absolute = path::absolute(&dataset.source).map_err(unreadable)?;
    Ok(absolute.components().collect())
}
