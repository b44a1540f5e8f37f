//! Tells whether a dataset still is what its index says.

use std::{fs, io};

use super::{
    Format, IndexError, Progress, build, image_folder,
    layout::Layout,
    measure::{self, mtime_ns},
};
use crate::job::Dataset;

/// Compares source and format, then the time of each directory. Without directories the dataset is
/// one file, and that is looked at instead.
pub(super) fn check(layout: &Layout, dataset: &Dataset) -> Result<(), IndexError> {
    let root = build::root_of(dataset)?;
    let format = Format::of(dataset)?;
    if root != layout.root || format != layout.format {
        return Err(IndexError::OtherDataset {
            indexed: layout.root.clone(),
            indexed_format: layout.format,
            root,
            format,
        });
    }
    if layout.directories.is_empty() {
        return compare_objects(layout, &mut |_| ());
    }
    for directory in &layout.directories {
        let path = layout.path_below(&directory.name);
        match fs::metadata(&path) {
            Ok(metadata) if mtime_ns(&metadata) == directory.mtime_ns => (),
            Ok(_) if directory.name.is_empty() && has_same_classes(layout)? => (),
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(IndexError::Unreadable { path, source });
            }
            _ => return Err(IndexError::Stale { path }),
        }
    }
    Ok(())
}

/// The root of an image folder counts by its directories alone; a file that comes there, perhaps the
/// index itself, changes nothing.
fn has_same_classes(layout: &Layout) -> Result<bool, IndexError> {
    match layout.format {
        Format::Raw { .. } => Ok(false),
        Format::ImageFolder => {
            let found = image_folder::class_names(&layout.root)?;
            Ok(found.iter().eq(layout.classes.iter().map(|class| &class.name)))
        }
    }
}

/// [`check`], then one `stat` per file.
pub(super) fn verify(
    layout: &Layout,
    dataset: &Dataset,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), IndexError> {
    check(layout, dataset)?;
    compare_objects(layout, progress)
}

fn compare_objects(layout: &Layout, progress: &mut dyn FnMut(Progress)) -> Result<(), IndexError> {
    let measured = measure::objects(layout, progress)?;
    let differs = layout.objects.iter().zip(&measured).position(|(object, measured)| {
        (object.size, object.mtime_ns) != (measured.size, measured.mtime_ns)
    });
    match differs {
        None => Ok(()),
        Some(object) => Err(IndexError::Stale { path: layout.path_of(object) }),
    }
}
