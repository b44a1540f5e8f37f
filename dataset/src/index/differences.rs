//! Finds the objects of a dataset that differ from its index.
//!
//! It serves a job that has begun: the job continues with its index after any change of the dataset, so
//! nothing here fails, and an object that cannot be checked is a difference itself. The times of directories
//! show which objects to check, as when an index is opened. Of objects that were written in place only a
//! sample is found here; the others are found when they are read. Objects are checked and not opened, so that
//! a pipe cannot block. A bucket is not queried, because its store may be unreachable.

use std::{ffi::OsStr, fs, io, ops::Range, os::unix::ffi::OsStrExt as _, path::Path};

use super::{Index, draft::SourceKind, mtime_ns};
use crate::source::names::below;

/// Number of objects that are checked: some seconds on a slow file server.
const LOOKED_AT_MAX: u64 = 10_000;

/// Number of objects that are checked in directories without a change: if one object in a hundred was written
/// in place, one of them is found with a probability of 87 %.
pub(super) const SAMPLED: usize = 200;

const NAMED_MAX: usize = 8;

#[derive(Debug, Default)]
pub struct Differences {
    /// The first objects that differ, in the order of the index.
    pub named: Vec<Difference>,
    pub count: u64,
    /// Number of directories that changed, or cannot be checked.
    pub directories: u64,
    /// Number of objects in such directories that were not checked, because of the limit.
    pub unseen: u64,
}

#[derive(Debug, thiserror::Error)]
#[error("{place}: {what}")]
pub struct Difference {
    pub place: String,
    pub what: DifferenceKind,
}

#[derive(Debug, thiserror::Error)]
pub enum DifferenceKind {
    #[error("not a regular file")]
    NoFile,
    #[error("another size or time")]
    Changed,
    #[error("{0}")]
    Unreadable(io::Error),
}

impl Differences {
    /// Whether no difference was found, as far as directories and the checked objects show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.directories == 0 && self.count == 0
    }

    fn look_at(&mut self, index: &Index, root: &Path, object: usize, looked_at: u64) {
        if looked_at >= LOOKED_AT_MAX {
            self.unseen += 1;
            return;
        }
        let path = below(root, &index.image.object_path(object));
        if let Some(what) = difference_at(&path, index, object) {
            self.count += 1;
            if self.named.len() < NAMED_MAX {
                self.named.push(Difference { place: path.display().to_string(), what });
            }
        }
    }
}

pub(super) fn of(index: &Index) -> Differences {
    let image = &index.image;
    let mut found = Differences::default();
    if image.header.source_kind() == SourceKind::Bucket {
        return found;
    }
    let root = Path::new(OsStr::from_bytes(image.source()));
    let mut looked_at = 0;
    let mut unchanged = Vec::new();
    for number in 0..image.directories() {
        let expected = image.directory_mtime_ns(number);
        let path = below(root, image.directory_name(number));
        let is_same = |expected| fs::metadata(&path).is_ok_and(|it| mtime_ns(&it) == expected);
        if expected.is_some_and(is_same) {
            unchanged.push(image.objects_of(number));
            continue;
        }
        // A source that is one file has no directory whose time could show a change.
        found.directories += u64::from(expected.is_some());
        for object in image.objects_of(number) {
            found.look_at(index, root, object, looked_at);
            looked_at += 1;
        }
    }
    // No directory shows what was written in place.
    let is_unseen = |object: &usize| {
        let at = unchanged.partition_point(|it: &Range<usize>| it.end <= *object);
        unchanged.get(at).is_some_and(|it| it.contains(object))
    };
    for object in spread(index, SAMPLED).filter(is_unseen) {
        found.look_at(index, root, object, looked_at);
        looked_at += 1;
    }
    found
}

/// The first of `count` objects, spread over the index, that is not as it was indexed; `None` for a bucket.
pub(super) fn first_among(index: &Index, count: usize) -> Option<Difference> {
    let image = &index.image;
    if image.header.source_kind() == SourceKind::Bucket {
        return None;
    }
    let root = Path::new(OsStr::from_bytes(image.source()));
    spread(index, count).find_map(|object| {
        let path = below(root, &image.object_path(object));
        let what = difference_at(&path, index, object)?;
        Some(Difference { place: path.display().to_string(), what })
    })
}

fn spread(index: &Index, count: usize) -> impl Iterator<Item = usize> + use<> {
    let objects = index.image.objects();
    (0..objects).step_by(objects.div_ceil(count.max(1)).max(1))
}

pub(super) fn difference_at(path: &Path, index: &Index, object: usize) -> Option<DifferenceKind> {
    let row = index.image.object(object);
    match fs::metadata(path) {
        Err(error) => Some(DifferenceKind::Unreadable(error)),
        Ok(metadata) if !metadata.is_file() => Some(DifferenceKind::NoFile),
        Ok(metadata) if (metadata.len(), mtime_ns(&metadata)) != (row.size, row.mtime_ns) => {
            Some(DifferenceKind::Changed)
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf, process::Command, time::SystemTime};

    use tierfeed_core::units::Bytes;

    use super::*;
    use crate::{
        Dataset, Format,
        format::{Raw, Rest},
        source::Location,
    };

    #[test]
    fn a_few_objects_tell_another_dataset() {
        let (folder, index, cat) = dataset();
        assert!(index.has_objects_as_indexed(4) && index.has_objects_as_indexed(100));
        fs::write(cat.join("1.jpg"), "longer than before").unwrap();
        assert!(index.has_objects_as_indexed(4), "the second object is not among them");
        assert!(!index.has_objects_as_indexed(12));
        fs::remove_dir_all(folder.path().join("dog")).unwrap();
        assert!(!index.has_objects_as_indexed(6), "the first dog is among them");
    }

    /// Ten images of one class, and two of another.
    fn dataset() -> (tempfile::TempDir, Index, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for (class, count) in [("cat", 10), ("dog", 2)] {
            fs::create_dir(folder.path().join(class)).unwrap();
            for number in 0..count {
                fs::write(folder.path().join(format!("{class}/{number}.jpg")), class).unwrap();
            }
        }
        let source = Location::Path(folder.path().to_owned());
        let dataset = Dataset::new(source, Format::ImageFolder);
        let index = Index::build(&dataset, None, &mut |_| ()).unwrap();
        let cat = folder.path().join("cat");
        (folder, index, cat)
    }

    fn said(found: &Differences) -> Vec<String> {
        let name = |it: &Difference| it.to_string().rsplit_once('/').unwrap().1.to_owned();
        found.named.iter().map(name).collect()
    }

    #[test]
    fn a_whole_dataset_has_none() {
        let (_folder, index, _) = dataset();
        let found = of(&index);
        assert!(found.is_empty() && found.unseen == 0, "{found:?}");
    }

    #[test]
    fn missing_changed_and_special_files_are_named_and_a_pipe_does_not_block() {
        let (_folder, index, cat) = dataset();
        fs::remove_file(cat.join("1.jpg")).unwrap();
        fs::remove_file(cat.join("2.jpg")).unwrap();
        assert!(Command::new("mkfifo").arg(cat.join("2.jpg")).status().unwrap().success());
        fs::remove_file(cat.join("3.jpg")).unwrap();
        fs::write(cat.join("3.jpg"), "ca").unwrap();
        let found = of(&index);
        let gone = "1.jpg: No such file or directory (os error 2)";
        let others = ["2.jpg: not a regular file", "3.jpg: another size or time"];
        assert_eq!(said(&found), [&[gone][..], &others].concat());
        assert_eq!((found.count, found.directories, found.unseen), (3, 1, 0));
    }

    #[test]
    fn what_came_since_differs_from_no_object() {
        let (_folder, index, cat) = dataset();
        fs::write(cat.join("new.jpg"), "cat").unwrap();
        let found = of(&index);
        assert_eq!((found.count, found.directories), (0, 1));
        assert!(!found.is_empty());
    }

    #[test]
    fn what_was_written_in_place_shows_in_a_sample() {
        let (_folder, index, cat) = dataset();
        for number in 2..9 {
            fs::write(cat.join(format!("{number}.jpg")), "longer than before").unwrap();
        }
        let found = of(&index);
        assert_eq!((found.count, found.directories, found.named.len()), (7, 0, 7));
    }

    #[test]
    fn a_class_that_is_gone_is_counted_and_the_first_objects_are_named() {
        let (_folder, index, cat) = dataset();
        fs::remove_dir_all(cat).unwrap();
        let found = of(&index);
        assert_eq!((found.count, found.named.len()), (10, NAMED_MAX));
    }

    #[test]
    fn a_source_of_one_file_is_looked_at_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.bin");
        fs::write(&path, [7; 64]).unwrap();
        let (record_bytes, header_bytes) = (Bytes(8), Bytes(0));
        let raw = Raw { record_bytes, header_bytes, rest: Rest::Refuse };
        let dataset = Dataset::new(Location::Path(path.clone()), Format::Raw(raw));
        let index = Index::build(&dataset, None, &mut |_| ()).unwrap();
        assert!(of(&index).is_empty());
        File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!((of(&index).count, of(&index).directories), (1, 0));
    }
}
