//! Recognizes datasets by the names of files alone, for users who have not said what theirs is.
//!
//! What names do not tell, such as the size of a record, is not guessed: files that end in `.bin` without an
//! index beside them are no dataset here.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Format,
    format::{Compression, Parquet, Unit},
    index::choose::{Everything, ends, is_index},
    source::{self, Location, SourceError, names::is_image},
};

/// The names of the files of one directory, without those of directories below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// The path below the place that is looked at; empty for the place itself.
    pub path: Vec<u8>,
    /// The names.
    pub files: Vec<Vec<u8>>,
}

/// A dataset as its names show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognized {
    /// The path below the place that was looked at; empty for the place itself.
    pub path: Vec<u8>,
    /// The name of its format in job files.
    pub format: &'static str,
    /// The files that were seen of it.
    pub files: usize,
}

/// The datasets in a place, those with most files first.
#[must_use]
pub fn recognize(directories: &[Directory]) -> Vec<Recognized> {
    let mut found = image_folders(directories);
    found.extend(directories.iter().filter_map(|directory| {
        let (format, files) = format_of(&directory.files)?;
        Some(Recognized { path: directory.path.clone(), format, files })
    }));
    found.sort_by(|left, right| {
        right.files.cmp(&left.files).then_with(|| left.path.cmp(&right.path))
    });
    found
}

/// The directories of a source, with everything in them.
///
/// # Errors
///
/// If it cannot be listed.
pub fn list(
    location: &Location,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Directory>, SourceError> {
    let listing = source::open(location)?.list(&Everything, progress)?;
    let directories = listing.directories.iter().enumerate().map(|(number, directory)| Directory {
        path: directory.name.clone(),
        files: listing
            .objects_of(number)
            .map(|object| listing.name_of(object).0.to_vec())
            .collect(),
    });
    Ok(directories.collect())
}

/// A pattern for most of the files below a place, which are samples one by one; `None` if there are no files
/// whose names have an ending.
#[must_use]
pub fn pattern(directories: &[Directory]) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in directories.iter().flat_map(|directory| &directory.files) {
        let ending = str::from_utf8(name).ok().and_then(|name| name.rsplit_once('.'));
        let is_plain =
            |it: &&str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if let Some(ending) = ending.map(|(_, ending)| ending).filter(is_plain) {
            *counts.entry(ending).or_default() += 1;
        }
    }
    let (ending, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some(format!("**/*.{ending}"))
}

/// Directories whose subdirectories hold images. One inside of another is one of them: that with more images.
fn image_folders(directories: &[Directory]) -> Vec<Recognized> {
    let mut roots: BTreeMap<&[u8], (usize, usize)> = BTreeMap::new();
    for directory in directories.iter().filter(|directory| !directory.path.is_empty()) {
        let images = directory.files.iter().filter(|name| is_image(name)).count();
        if images > 0 {
            let (classes, files) = roots.entry(parent_of(&directory.path)).or_default();
            *classes += 1;
            *files += images;
        }
    }
    // Pictures of documentation are no classes; a folder with only one class may be one.
    let has_classes = roots.values().any(|(classes, _)| *classes > 1);
    roots.retain(|_, (classes, _)| *classes > 1 || !has_classes);
    let is_best = |path: &[u8], files: usize| {
        let related = |other: &[u8]| other != path && (is_in(other, path) || is_in(path, other));
        !roots.iter().any(|(other, (_, more))| related(other) && *more > files)
    };
    let best = roots.iter().filter(|(path, (_, files))| is_best(path, *files));
    let format = Format::ImageFolder.name();
    best.map(|(path, (_, files))| Recognized { path: path.to_vec(), format, files: *files })
        .collect()
}

/// What the files of one directory are together.
fn format_of(names: &[Vec<u8>]) -> Option<(&'static str, usize)> {
    let with = |start: &[u8], end: &[u8]| {
        names.iter().filter(|name| name.starts_with(start) && name.ends_with(end)).count()
    };
    let shards = names.iter().filter(|name| is_mds(name)).count();
    let chunks = with(b"chunk-", b".bin");
    match (names.iter().any(|name| name == b"index.json"), shards, chunks) {
        (true, 1.., _) => return Some((Format::Mds.name(), shards)),
        (true, _, 1..) => return Some((Format::LitData { sequence_length: None }.name(), chunks)),
        _ => {}
    }
    let stems = |end: &'static [u8]| names.iter().filter_map(move |name| name.strip_suffix(end));
    let tokens: BTreeSet<&[u8]> = stems(b".idx").collect();
    let pairs = stems(b".bin").filter(|stem| tokens.contains(stem)).count();
    if pairs > 0 {
        return Some((Format::Megatron.name(), pairs));
    }
    let counts = by_ending().map(|format| {
        let is_of = ends(&format);
        let is_object = |name: &&Vec<u8>| is_of(name) && !is_index(name) && !name.starts_with(b".");
        (format.name(), names.iter().filter(is_object).count())
    });
    counts.into_iter().filter(|(_, count)| *count > 0).max_by_key(|(_, count)| *count)
}

/// The formats that the ending of a name tells.
fn by_ending() -> [Format; 9] {
    [
        Format::Npy,
        Format::Npz { members: Vec::new() },
        Format::Ffcv,
        Format::Lmdb,
        Format::Hdf5 { dataset: String::new() },
        Format::Arrow,
        Format::Parquet(Parquet { unit: Unit::RowGroup, columns: Vec::new() }),
        Format::WebDataset,
        Format::TfRecord(Compression::None),
    ]
}

fn is_mds(name: &[u8]) -> bool {
    name.starts_with(b"shard.") && name.windows(4).any(|part| part == b".mds")
}

fn parent_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |end| &path[..end])
}

fn is_in(path: &[u8], directory: &[u8]) -> bool {
    let below = path.strip_prefix(directory);
    directory.is_empty() || below.is_some_and(|below| below.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &str, files: &[&str]) -> Directory {
        let files = files.iter().map(|name| name.as_bytes().to_vec()).collect();
        Directory { path: path.into(), files }
    }

    fn found(directories: &[Directory]) -> Vec<(String, &'static str, usize)> {
        let text = |it: Recognized| (String::from_utf8(it.path).unwrap(), it.format, it.files);
        recognize(directories).into_iter().map(text).collect()
    }

    #[test]
    fn folders_of_images_by_class_are_told_apart_by_what_holds_the_classes() {
        let places = [
            directory("", &["train.py", "logo.png"]),
            directory("docs", &["a.png"]),
            directory("data/train/cat", &["1.jpg", "2.jpg", "notes.txt"]),
            directory("data/train/dog", &["3.JPEG"]),
            directory("data/val/cat", &["4.jpg"]),
            directory("data/val/dog", &["5.jpg"]),
        ];
        assert_eq!(
            found(&places),
            [
                ("data/train".to_owned(), "image-folder", 3),
                ("data/val".to_owned(), "image-folder", 2),
            ]
        );
        let one_class = [directory("cat", &["1.jpg"])];
        assert_eq!(found(&one_class), [(String::new(), "image-folder", 1)]);
        assert_eq!(found(&[directory("", &["1.jpg"])]), [], "no directory is a class");
    }

    #[test]
    fn images_of_classes_in_classes_are_one_folder() {
        let places = [
            directory("data/cat", &["1.jpg", "2.jpg"]),
            directory("data/dog", &["3.jpg"]),
            directory("data/cat/small", &["4.jpg"]),
            directory("data/cat/large", &["5.jpg"]),
        ];
        assert_eq!(found(&places), [("data".to_owned(), "image-folder", 3)]);
    }

    #[test]
    fn each_format_is_told_by_its_names() {
        for (format, names) in [
            ("mds", &["index.json", "shard.00000.mds.zstd"][..]),
            ("litdata", &["index.json", "chunk-0-0.bin", "chunk-0-1.bin"]),
            ("megatron", &["text_document.bin", "text_document.idx"]),
            ("tfrecord", &["imagenet-train.tfrecord-00000-of-01024", "train.tfrecord.idx"]),
            ("webdataset", &["train-000.tar", "train-000.idx"]),
            ("parquet", &["part-0.parquet"]),
            ("arrow", &["data-00000.arrow", "dataset_info.json"]),
            ("hdf5", &["train.h5"]),
            ("lmdb", &["data.mdb", "lock.mdb"]),
            ("ffcv", &["train.beton"]),
            ("npz", &["case_1.npz", "case_2.npz"]),
            ("npy", &["x.npy"]),
        ] {
            let told = found(&[directory("set", names)]);
            assert_eq!(told.iter().map(|it| it.1).collect::<Vec<_>>(), [format], "{names:?}");
        }
        for names in [&["data.bin"][..], &["index.json"], &["train.py"], &[".hidden.parquet"], &[]]
        {
            assert_eq!(found(&[directory("set", names)]), [], "{names:?}");
        }
    }

    #[test]
    fn the_pattern_of_files_is_that_of_most() {
        let places = [directory("a", &["1.wav", "README"]), directory("b", &["2.wav", "list.txt"])];
        assert_eq!(pattern(&places), Some("**/*.wav".to_owned()));
        assert_eq!(pattern(&[directory("", &["README", "a.b c"])]), None);
    }
}
