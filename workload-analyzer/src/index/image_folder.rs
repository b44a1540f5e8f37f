//! Lists an image folder in the order of torchvision's `ImageFolder`.
//!
//! # Source
//!
//! `torchvision.datasets.folder`: the classes are the directories in the root, sorted; the samples of
//! a class come from `sorted(os.walk(directory, followlinks=True))`, directory by directory in the
//! order of their whole paths, and in each the image files sorted by name. A class without an image
//! is an error. Where torchvision would follow a link in a circle until the kernel stops it, we stop
//! with an error that names the link.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use super::{
    Format, IndexError, Progress, Stage,
    layout::{Class, Directory, Layout, Object},
    measure::mtime_ns,
};
use crate::source::names::{is_image, python_order};

pub(super) fn list(
    root: PathBuf,
    progress: &mut dyn FnMut(Progress),
) -> Result<Layout, IndexError> {
    let mtime_ns = mtime_of_directory(&root)?;
    let class_names = class_names(&root)?;
    if class_names.is_empty() {
        return Err(IndexError::NoClasses { root });
    }
    let mut layout = Layout {
        root,
        format: Format::ImageFolder,
        classes: Vec::new(),
        directories: vec![Directory { name: Vec::new(), mtime_ns }],
        objects: Vec::new(),
        names: Vec::new(),
    };
    let mut empty = Vec::new();
    for name in class_names {
        let first_object = layout.objects.len();
        append_class(&mut layout, &name, progress)?;
        if layout.objects.len() == first_object {
            empty.push(name);
        } else {
            let first_object = u32::try_from(first_object).map_err(|_| too_many(&layout))?;
            layout.classes.push(Class { name, first_object });
        }
    }
    refuse_empty_classes(&layout, &empty)?;
    Ok(layout)
}

/// The directories in the root, sorted.
pub(super) fn class_names(root: &Path) -> Result<Vec<Vec<u8>>, IndexError> {
    let mut names = entries(root)?.directories;
    names.sort_by(|left, right| python_order(left, right));
    Ok(names)
}

/// Appends the images below the directory of one class.
fn append_class(
    layout: &mut Layout,
    class: &[u8],
    progress: &mut dyn FnMut(Progress),
) -> Result<(), IndexError> {
    let mut listed = Vec::new();
    walk(&layout.root.join(OsStr::from_bytes(class)), &mut listed)?;
    listed.sort_by(|left, right| python_order(&left.below, &right.below));
    for Listed { below, mtime_ns, mut images } in listed {
        images.sort_by(|left, right| python_order(left, right));
        for image in images {
            append_path(&mut layout.names, &below, &image);
            layout.objects.push(Object {
                size: 0,
                mtime_ns: 0,
                name_end: layout.names.len() as u64,
            });
        }
        let mut name = Vec::new();
        append_path(&mut name, class, &below);
        layout.directories.push(Directory { name, mtime_ns });
        progress(Progress {
            stage: Stage::Listing,
            done: layout.objects.len() as u64,
            total: None,
        });
    }
    Ok(())
}

/// A directory of a class.
struct Listed {
    /// Below the directory of the class; empty for itself.
    below: Vec<u8>,
    mtime_ns: i64,
    images: Vec<Vec<u8>>,
}

enum Visit {
    Enter(Vec<u8>),
    Leave,
}

/// Lists `top` and all directories below, in no particular order, through symbolic links.
fn walk(top: &Path, listed: &mut Vec<Listed>) -> Result<(), IndexError> {
    let mut ancestors: Vec<(u64, u64, PathBuf)> = Vec::new();
    let mut visits = vec![Visit::Enter(Vec::new())];
    while let Some(visit) = visits.pop() {
        let Visit::Enter(below) = visit else {
            ancestors.pop();
            continue;
        };
        let path =
            if below.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(&below)) };
        // Before the listing, so that a file that comes while it runs makes the index stale.
        let metadata = metadata(&path)?;
        let id = (metadata.dev(), metadata.ino());
        if let Some((_, _, ancestor)) = ancestors.iter().find(|it| (it.0, it.1) == id) {
            return Err(IndexError::LinkLoop { path, ancestor: ancestor.clone() });
        }
        let Entries { directories, files } = entries(&path)?;
        ancestors.push((id.0, id.1, path));
        visits.push(Visit::Leave);
        for directory in directories {
            let mut child = Vec::new();
            append_path(&mut child, &below, &directory);
            visits.push(Visit::Enter(child));
        }
        let images = files.into_iter().filter(|name| is_image(name)).collect();
        listed.push(Listed { below, mtime_ns: mtime_ns(&metadata), images });
    }
    Ok(())
}

struct Entries {
    directories: Vec<Vec<u8>>,
    files: Vec<Vec<u8>>,
}

/// A link to a directory is one; a link to nothing is a file, as for Python's `os.walk`.
fn entries(directory: &Path) -> Result<Entries, IndexError> {
    let unreadable = |source| IndexError::Unreadable { path: directory.to_owned(), source };
    let mut entries = Entries { directories: Vec::new(), files: Vec::new() };
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let kind = entry.file_type().map_err(unreadable)?;
        let is_directory = if kind.is_symlink() {
            fs::metadata(entry.path()).is_ok_and(|target| target.is_dir())
        } else {
            kind.is_dir()
        };
        let list = if is_directory { &mut entries.directories } else { &mut entries.files };
        list.push(entry.file_name().into_vec());
    }
    Ok(entries)
}

fn mtime_of_directory(root: &Path) -> Result<i64, IndexError> {
    let metadata = metadata(root)?;
    if !metadata.is_dir() {
        return Err(IndexError::NotADirectory { path: root.to_owned() });
    }
    Ok(mtime_ns(&metadata))
}

fn metadata(path: &Path) -> Result<fs::Metadata, IndexError> {
    fs::metadata(path).map_err(|source| IndexError::Unreadable { path: path.to_owned(), source })
}

fn append_path(path: &mut Vec<u8>, directory: &[u8], name: &[u8]) {
    path.extend_from_slice(directory);
    if !directory.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}

fn refuse_empty_classes(layout: &Layout, empty: &[Vec<u8>]) -> Result<(), IndexError> {
    let Some((first, others)) = empty.split_first() else { return Ok(()) };
    Err(IndexError::EmptyClass {
        root: layout.root.clone(),
        class: super::lossy(first),
        others: others.len(),
    })
}

fn too_many(layout: &Layout) -> IndexError {
    IndexError::TooManySamples { root: layout.root.clone(), samples: layout.objects.len() as u64 }
}
