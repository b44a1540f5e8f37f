//! Recognizes datasets by the names of files alone, for users who have not said what theirs is.
//!
//! What names do not tell, such as the size of a record, is not guessed: files that end in `.bin` without an
//! index beside them are no dataset here.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Format,
    format::{KINDS, Kind, Told, objects::is_index},
    source::{
        self, Everything, Location, SourceError,
        names::{HELD_OUT, is_image, is_one_of, parted, stem_of},
    },
};

/// Number of directories of one format beside one another up to which each is a dataset of its own.
const ALIKE_MAX: usize = 8;

/// Directories of images, beside which others hold what belongs to them.
const IMAGES: [&str; 5] = ["image", "images", "img", "imgs", "jpegimages"];

/// Directories of what belongs to images of the same names.
const PARTS: [&str; 9] =
    ["mask", "masks", "label", "labels", "annotation", "annotations", "gt", "groundtruth", "depth"];

/// The names of the files of one directory, without those of directories below.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directory {
    /// The path below the place that is looked at; empty for the place itself.
    pub path: Vec<u8>,
    pub files: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognized {
    /// The path below the place that was looked at; empty for the place itself.
    pub path: Vec<u8>,
    pub format: &'static str,
    pub files: usize,
}

/// Why directories with images are no classes, though they lie beside one another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsuited {
    /// They are parts of a dataset, such as `train2017` and `val2017`.
    #[error("{0} holds a part of a dataset, and no class; name the part to train on")]
    Splits(String),
    /// They hold parts of the same samples, such as images and masks.
    #[error(
        "{0} holds a part of each sample, and no class; a sample is one file: put the parts together, as \
         WebDataset does"
    )]
    Parts(String),
    /// They hold samples of several files.
    #[error(
        "in {0} one item is several files, and a sample is one: put them together, as WebDataset does"
    )]
    Items(String),
}

/// The datasets in a place, those with most files first.
#[must_use]
pub fn recognize(directories: &[Directory]) -> Vec<Recognized> {
    let (mut found, _) = image_folders(directories);
    let mut others: BTreeMap<(&[u8], &str), Vec<Recognized>> = BTreeMap::new();
    for directory in directories {
        let found = format_of(&directory.files);
        let is_of_arrays = |format: &str| ["npy", "npz"].contains(&format);
        let is_whole = |(format, _): &(&str, _)| !is_of_arrays(format) || !is_of_items(directory);
        if let Some((format, files)) = found.filter(is_whole) {
            let found = Recognized { path: directory.path.clone(), format, files };
            others.entry((parted(&directory.path).0, format)).or_default().push(found);
        }
    }
    for ((parent, format), alike) in others {
        // Directories of one format by the dozen are parts of what lies in the one above.
        if alike.len() > ALIKE_MAX {
            let files = alike.iter().map(|it| it.files).sum();
            found.push(Recognized { path: parent.to_vec(), format, files });
        } else {
            found.extend(alike);
        }
    }
    found.sort_by(|left, right| {
        right.files.cmp(&left.files).then_with(|| left.path.cmp(&right.path))
    });
    found
}

/// The reason why images below a place are not recognized as an image folder, if there is one.
#[must_use]
pub fn unsuited(directories: &[Directory]) -> Option<Unsuited> {
    image_folders(directories).1.into_iter().next()
}

/// Whether a word of a name says that data is held out from training: `val2017`, `test`.
#[must_use]
pub fn is_held_out(word: &[u8]) -> bool {
    is_one_of(word, &HELD_OUT)
}

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

/// Directories whose subdirectories hold images, and the reasons why others are no image folders. Of
/// directories inside one another, that with most images is taken.
fn image_folders(directories: &[Directory]) -> (Vec<Recognized>, Vec<Unsuited>) {
    let mut roots: BTreeMap<&[u8], Vec<&Directory>> = BTreeMap::new();
    for directory in directories.iter().filter(|directory| !directory.path.is_empty()) {
        if directory.files.iter().any(|name| is_image(name)) {
            roots.entry(parted(&directory.path).0).or_default().push(directory);
        }
    }
    let unsuited: BTreeMap<&[u8], Unsuited> =
        roots.iter().filter_map(|(path, classes)| Some((*path, no_classes(classes)?))).collect();
    roots.retain(|path, _| !unsuited.contains_key(path));
    // Pictures of documentation are no classes; a folder with only one class may be one.
    let has_classes = roots.values().any(|classes| classes.len() > 1);
    roots.retain(|_, classes| classes.len() > 1 || !has_classes);
    let files =
        |classes: &Vec<&Directory>| -> usize { classes.iter().map(|it| images_in(it)).sum() };
    let is_best = |path: &[u8], count: usize| {
        let related = |other: &[u8]| other != path && (is_in(other, path) || is_in(path, other));
        !roots.iter().any(|(other, classes)| related(other) && files(classes) > count)
    };
    let format = Format::ImageFolder.name();
    let best = roots.iter().map(|(path, classes)| (path, files(classes)));
    let best = best.filter(|(path, files)| is_best(path, *files));
    let best =
        best.map(|(path, files)| Recognized { path: path.to_vec(), format, files }).collect();
    (best, unsuited.into_values().collect())
}

fn no_classes(directories: &[&Directory]) -> Option<Unsuited> {
    let shown = |it: &Directory| String::from_utf8_lossy(&it.path).into_owned();
    let of_items: Vec<_> = directories.iter().filter(|it| is_of_items(it)).collect();
    if 2 * of_items.len() > directories.len() {
        return of_items.first().map(|it| Unsuited::Items(shown(it)));
    }
    if directories.len() < 2 {
        return None;
    }
    let named =
        |is_so: &dyn Fn(&[u8]) -> bool| directories.iter().find(|it| is_so(parted(&it.path).1));
    let is_split = |name: &[u8]| {
        let letters = name.iter().position(|it| !it.is_ascii_alphabetic()).unwrap_or(name.len());
        is_held_out(name) || is_called(&name[..letters], "train")
    };
    let is_named =
        |names: &'static [&str]| move |name: &[u8]| names.iter().any(|it| is_called(name, it));
    let stems = |it: &Directory| -> BTreeSet<Vec<u8>> {
        it.files.iter().filter(|name| is_image(name)).map(|name| stem_of(name).to_vec()).collect()
    };
    let is_beside = |part: &Directory| {
        let own = stems(part);
        directories
            .iter()
            .filter(|it| it.path != part.path)
            .any(|it| 2 * stems(it).intersection(&own).count() >= own.len())
    };
    if let Some(split) = named(&is_split) {
        return Some(Unsuited::Splits(shown(split)));
    }
    let parts =
        named(&is_named(&IMAGES)).or_else(|| named(&is_named(&PARTS)).filter(|it| is_beside(it)));
    parts.map(|it| Unsuited::Parts(shown(it)))
}

/// Whether a sample of a directory is several files: there are as many other files as images, or more, or
/// files with the same names as arrays.
fn is_of_items(directory: &Directory) -> bool {
    let names = || directory.files.iter().filter(|name| !name.starts_with(b"."));
    let (images, all) = (images_in(directory), names().count());
    if images > 0 && 2 * images <= all {
        return true;
    }
    let is_array = |name: &&Vec<u8>| name.ends_with(b".npy") || name.ends_with(b".npz");
    let arrays: BTreeSet<&[u8]> = names().filter(is_array).map(|name| stem_of(name)).collect();
    let others = names().filter(|name| !is_array(name) && arrays.contains(stem_of(name))).count();
    others > 0 && 2 * others >= arrays.len()
}

fn images_in(directory: &Directory) -> usize {
    directory.files.iter().filter(|name| is_image(name)).count()
}

/// The format of the files of one directory, and their number. Files that belong together tell more than each
/// name; of formats with as many files, the first is taken, and arrays last, which hold a mean or labels of others.
fn format_of(names: &[Vec<u8>]) -> Option<(&'static str, usize)> {
    let together = |kind: &&Kind| match kind.told {
        Told::Together(count) => Some((kind.name, count(names))).filter(|(_, count)| *count > 0),
        Told::Alone(_) | Told::Otherwise => None,
    };
    let alone = |kind: &&Kind| match kind.told {
        Told::Alone(is_sample) => {
            let is_object =
                |name: &&Vec<u8>| !is_index(name) && !name.starts_with(b".") && is_sample(name);
            Some((kind.name, names.iter().filter(is_object).count()))
        }
        Told::Together(_) | Told::Otherwise => None,
    };
    let counts = KINDS.iter().rev().filter_map(alone).filter(|(_, count)| *count > 0);
    KINDS
        .iter()
        .find_map(together)
        .or_else(|| counts.max_by_key(|(name, count)| (*count, !["npy", "npz"].contains(name))))
}

fn is_called(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
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
    fn the_ending_of_a_name_decides_before_the_count_of_shards_in_it() {
        for (format, name) in [
            (Some("parquet"), "train-00000-of-00002.parquet"),
            (Some("arrow"), "data-00000-of-00003.arrow"),
            (Some("webdataset"), "shard-00000-of-00010.tar"),
            (Some("npy"), "x-00000-of-00002.npy"),
            (Some("tfrecord"), "m-train.tfrecord-00000-of-00001"),
            (Some("tfrecord"), "train-00000-of-01024"),
            (Some("tfrecord"), "train.00000-of-01024"),
            (None, "c4-train.00000-of-01024.json.gz"),
            (None, "part-00000-of-00002.csv"),
            (None, "model-00001-of-00002.safetensors"),
            (None, "x.array_record-00000-of-00001"),
            (None, "x.riegeli-00000-of-00001"),
        ] {
            let told = found(&[directory("set", &[name])]);
            assert_eq!(told.first().map(|it| it.1), format, "{name}");
        }
    }

    #[test]
    fn folders_of_parts_and_of_items_of_several_files_are_no_classes() {
        let images = ["1.png", "2.png"];
        for (first, second) in [
            ("data/images", "data/masks"),
            ("data/rgb", "data/depth"),
            ("images/train2017", "images/val2017"),
            ("images/train", "images/test"),
        ] {
            let places = [directory(first, &images), directory(second, &images)];
            assert_eq!(found(&places), [], "{first}");
            assert!(unsuited(&places).is_some(), "{first}");
        }
        let beside = [directory("", &["logo.png", "README.md", "x.parquet"])];
        assert_eq!(found(&beside), [(String::new(), "parquet", 1)]);
        let items: Vec<_> = (0..20)
            .map(|item| directory(&format!("scans/{item}"), &["scan.npz", "meta.json", "mask.png"]))
            .collect();
        assert_eq!(found(&items), []);
        assert_eq!(unsuited(&items), Some(Unsuited::Items("scans/0".to_owned())));
        // Classes may number their images alike, and be called like what is no part here.
        for (first, second) in [("a", "b"), ("mask", "no_mask"), ("valley", "testudo")] {
            let second = directory(second, &["7.png", "8.png"]);
            let told = found(&[directory(first, &images), second]);
            assert_eq!(told, [(String::new(), "image-folder", 4)], "{first}");
        }
        assert_eq!(found(&[directory("a", &images), directory("b", &images)])[0].1, "image-folder");
    }

    #[test]
    fn an_array_beside_a_file_of_another_format_is_no_dataset() {
        for (format, name) in [("hdf5", "train.h5"), ("parquet", "train.parquet")] {
            let told = found(&[directory("", &[name, "train.npy"])]);
            assert_eq!(told, [(String::new(), format, 1)]);
        }
    }

    #[test]
    fn many_folders_of_one_format_are_parts_of_the_one_above() {
        let parts: Vec<_> =
            (0..20).map(|part| directory(&format!("set/{part}"), &["x.npy"])).collect();
        assert_eq!(found(&parts), [("set".to_owned(), "npy", 20)]);
    }

    #[test]
    fn the_pattern_of_files_is_that_of_most() {
        let places = [directory("a", &["1.wav", "README"]), directory("b", &["2.wav", "list.txt"])];
        assert_eq!(pattern(&places), Some("**/*.wav".to_owned()));
        assert_eq!(pattern(&[directory("", &["README", "a.b c"])]), None);
    }
}
