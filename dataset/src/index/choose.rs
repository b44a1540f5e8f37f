//! Chooses the objects of a source that belong to a dataset, and their order.
//!
//! Image folders are ordered as in torchvision, manifests and `index.json` define their order,
//! everything else is ordered directory by directory by path, and in each directory by name.

mod image_folder;
mod manifest;
mod saved_dataset;
mod shards;
mod splits;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use globset::{GlobBuilder, GlobMatcher};
use tierfeed_transform::container::Column;

use super::{IndexError, Progress, draft::Classes, lossy};
use crate::{
    Dataset, Format,
    format::{Files, FormatError, ReadAt, litdata, mds},
    source::{Listed, Listing, Location, Selection, Store, names::is_image},
};

pub(super) use image_folder::{class_of, classes_at};
pub(super) use manifest::hash as manifest_hash;

/// The objects of a dataset in the order of its samples.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) place: String,
    pub(super) listing: Listing,
    pub(super) classes: Classes,
    /// The hash of the manifest, if there is one.
    pub(super) manifest: Option<u64>,
    pub(super) sidecars: Sidecars,
    pub(super) notes: Vec<String>,
    pub(super) passed_over: PassedOver,
}

impl Chosen {
    pub(super) fn broken(&self, number: usize, source: FormatError) -> IndexError {
        self.broken_at(&self.listing.listed(number), source)
    }

    pub(super) fn broken_at(&self, listed: &Listed, source: FormatError) -> IndexError {
        IndexError::Format { object: self.place_at(listed), source }
    }

    pub(super) fn place_of(&self, number: usize) -> String {
        self.place_at(&self.listing.listed(number))
    }

    fn place_at(&self, listed: &Listed) -> String {
        match listed.path.as_slice() {
            b"" => self.place.clone(),
            path => format!("{}/{}", self.place, lossy(path)),
        }
    }
}

/// Data that a format keeps about an object outside of it.
#[derive(Debug)]
pub(super) enum Sidecars {
    Nothing,
    /// An index that another tool wrote, for the objects that have one.
    Index(Vec<Option<Listed>>),
    Mds(Vec<mds::Shard>),
    LitData(litdata::Index),
}

impl Sidecars {
    pub(super) fn columns(&self) -> Option<&[Column]> {
        match self {
            Self::Mds(shards) => mds::columns_of(shards),
            Self::LitData(index) => index.leaves.as_deref(),
            Self::Nothing | Self::Index(_) => None,
        }
    }

    pub(super) fn is_of(&self, number: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Index(indexes) => indexes[number].is_some(),
            Self::Mds(_) | Self::LitData(_) => true,
        }
    }
}

/// The objects of a source that a dataset uses. Files that are not taken are noted in `passed_over`.
pub(super) fn selection<'a>(
    dataset: &Dataset,
    passed_over: &'a PassedOver,
) -> Result<Box<dyn Selection + 'a>, IndexError> {
    let format = &dataset.format;
    let pattern = match dataset.files() {
        Some(Files::Manifest(_)) => return Ok(Box::new(Everything)),
        Some(Files::Glob(pattern)) => Some(Pattern::new(pattern)?),
        None => None,
    };
    let selection: Box<dyn Selection + 'a> = match (format, pattern) {
        (Format::ImageFolder, pattern) => Box::new(image_folder::Images { pattern }),
        (Format::Files(_), Some(pattern)) => Box::new(pattern),
        (_, pattern) => Box::new(Visible { names: names(format), pattern, passed_over }),
    };
    Ok(selection)
}

/// The test whether a name is one that the format uses for samples.
pub(crate) fn ends(format: &Format) -> fn(&[u8]) -> bool {
    names(format).0
}

/// Whether a name is one of samples, and whether it is one of files that are read beside them.
type Names = (fn(&[u8]) -> bool, fn(&[u8]) -> bool);

fn names(format: &Format) -> Names {
    let none: fn(&[u8]) -> bool = |_| false;
    match format {
        Format::ImageFolder => (is_image, none),
        Format::Files(_) | Format::Raw(_) | Format::Mds | Format::LitData { .. } => {
            (|_| true, none)
        }
        Format::TfRecord(_) => (is_tfrecord, is_index),
        Format::WebDataset => (|name| ends_in(name, &[".tar"]), is_index),
        Format::Megatron => (|name| ends_in(name, &[".bin"]), is_index),
        Format::Npy => (|name| ends_in(name, &[".npy"]), none),
        Format::Npz { .. } => (|name| ends_in(name, &[".npz"]), none),
        Format::Parquet(_) => (is_parquet, none),
        Format::Arrow => (
            |name| ends_in(name, &[".arrow", ".arrows", ".feather", ".ipc"]),
            saved_dataset::is_beside,
        ),
        Format::Hdf5 { .. } => {
            (|name| ends_in(name, &[".h5", ".hdf5", ".hdf", ".he5", ".nc"]), none)
        }
        Format::Lmdb => {
            (|name| ends_in(name, &[".mdb", ".lmdb"]) && !name.ends_with(b"lock.mdb"), none)
        }
        Format::Ffcv => (|name| ends_in(name, &[".beton", ".ffcv"]), none),
    }
}

/// Puts a listing into the order of the dataset.
pub(super) fn choose(
    dataset: &Dataset,
    store: &dyn Store,
    listing: Listing,
    passed_over: PassedOver,
) -> Result<Chosen, IndexError> {
    let place = without_slash(&dataset.source);
    let (mut classes, mut sidecars, mut notes) = (Classes::None, Sidecars::Nothing, Vec::new());
    let (listing, full, manifest) = match dataset.files() {
        Some(Files::Manifest(path)) => {
            let (objects, hash) = manifest::choose(path, &listing)?;
            (objects, Some(listing), Some(hash))
        }
        _ => (listing, None, None),
    };
    let listing = match &dataset.format {
        Format::ImageFolder => {
            classes = Classes::Directories;
            let is_picked = dataset.picked.is_some();
            image_folder::choose(&place, listing, is_picked, &mut notes)?
        }
        Format::TfRecord(_) | Format::WebDataset | Format::Megatron => {
            let objects = without_indexes(&listing);
            sidecars = Sidecars::Index(indexes_beside(full.as_ref().unwrap_or(&listing), &objects));
            objects
        }
        Format::Arrow if manifest.is_none() => {
            let is_picked = dataset.picked.is_some();
            saved_dataset::choose(&place, store, &listing, is_picked)?
        }
        Format::Mds => {
            let (objects, shards) = shards::mds(&place, store, &listing)?;
            sidecars = Sidecars::Mds(shards);
            objects
        }
        Format::LitData { .. } => {
            let (objects, index) = shards::litdata(&place, store, &listing)?;
            sidecars = Sidecars::LitData(index);
            objects
        }
        _ => listing,
    };
    if !matches!(sidecars, Sidecars::Mds(_) | Sidecars::LitData(_)) {
        splits::check(dataset, &place, &listing, &mut notes)?;
    }
    notes.extend(passed_over.note(&place, &dataset.format));
    Ok(Chosen { place, listing, classes, manifest, sidecars, notes, passed_over })
}

/// The objects that a manifest names, for a source that cannot be listed.
pub(super) fn look_up(
    dataset: &Dataset,
    manifest: &Path,
    store: &dyn Store,
    progress: &mut dyn FnMut(Progress),
) -> Result<Chosen, IndexError> {
    let (listing, hash) = manifest::look_up(manifest, store, progress)?;
    Ok(Chosen {
        place: without_slash(&dataset.source),
        listing,
        classes: Classes::None,
        manifest: Some(hash),
        sidecars: Sidecars::Nothing,
        notes: Vec::new(),
        passed_over: PassedOver::default(),
    })
}

struct Visible<'a> {
    /// Those of samples, and those beside them.
    names: Names,
    pattern: Option<Pattern>,
    passed_over: &'a PassedOver,
}

impl Selection for Visible<'_> {
    fn enters(&self, path: &[u8]) -> bool {
        !is_hidden(path)
    }

    fn takes(&self, path: &[u8]) -> bool {
        let (of_samples, beside) = self.names;
        let name = name_of(path);
        if is_hidden(path) {
            return false;
        }
        if beside(name) {
            return true;
        }
        match &self.pattern {
            Some(pattern) => pattern.takes(path) && (pattern.names_files || of_samples(name)),
            None if of_samples(name) => true,
            None => {
                self.passed_over.add(path);
                false
            }
        }
    }
}

/// The files of a source that are not taken because of their names, without hidden ones: the first that were
/// seen, at most [`PASSED_OVER_MAX`].
#[derive(Debug, Default)]
pub(super) struct PassedOver(Mutex<BTreeSet<Vec<u8>>>);

const PASSED_OVER_MAX: usize = 1_000;

impl PassedOver {
    fn paths(&self) -> MutexGuard<'_, BTreeSet<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, path: &[u8]) {
        let mut paths = self.paths();
        if paths.len() < PASSED_OVER_MAX {
            paths.insert(path.to_vec());
        }
    }

    /// The end of a sentence about a source without samples.
    fn said(&self) -> String {
        let paths = self.paths();
        let Some(first) = paths.first() else { return String::new() };
        let is_compressed = ends_in(first, &[".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2"]);
        let advice = if is_compressed {
            "; samples of a tar that is compressed as a whole cannot be read alone: decompress it"
        } else {
            ""
        };
        format!(", and there are other files, such as `{}`{advice}", lossy(first))
    }

    /// A note on files whose names are similar to those of samples.
    fn note(&self, place: &str, format: &Format) -> Option<String> {
        let word = alike(format)?.as_bytes();
        let is_alike = |path: &&Vec<u8>| {
            name_of(path).windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
        };
        let paths = self.paths();
        let mut alike = paths.iter().filter(is_alike);
        let first = lossy(alike.next()?);
        let others = match alike.count() {
            0 => String::new(),
            count => format!(" and {count} more like it"),
        };
        let format = format.name();
        Some(format!(
            "{place}: passes over `{first}`{others}, because format {format} takes other names; a `manifest` takes any"
        ))
    }
}

/// A part of the names of a format: a file that is passed over and has it may be meant as a sample.
fn alike(format: &Format) -> Option<&'static str> {
    Some(match format {
        Format::TfRecord(_) => "tfrec",
        Format::WebDataset => ".tar",
        Format::Npy => ".npy",
        Format::Npz { .. } => ".npz",
        Format::Parquet(_) => ".parq",
        Format::Arrow => ".arrow",
        Format::Hdf5 { .. } => ".h5",
        Format::Lmdb => ".lmdb",
        Format::Ffcv => ".beton",
        Format::ImageFolder
        | Format::Files(_)
        | Format::Raw(_)
        | Format::Mds
        | Format::LitData { .. }
        | Format::Megatron => return None,
    })
}

/// All files, hidden or not: a manifest selects among them.
pub(crate) struct Everything;

impl Selection for Everything {
    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    fn takes(&self, _path: &[u8]) -> bool {
        true
    }
}

/// Files by a pattern, hidden or not.
struct Pattern {
    matcher: GlobMatcher,
    /// Whether the last part is more than `*` or `**`: then the pattern selects files of any ending.
    names_files: bool,
}

impl Pattern {
    fn new(pattern: &str) -> Result<Self, IndexError> {
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let glob =
            glob.map_err(|source| IndexError::Glob { pattern: pattern.to_owned(), source })?;
        let last = pattern.rsplit('/').next().unwrap_or_default();
        let names_files = !last.bytes().all(|byte| byte == b'*');
        Ok(Self { matcher: glob.compile_matcher(), names_files })
    }
}

impl Selection for Pattern {
    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    fn takes(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        self.matcher.is_match(std::ffi::OsStr::from_bytes(path))
    }
}

/// The endings that writers of Parquet use, and pandas with a compression.
fn is_parquet(name: &[u8]) -> bool {
    ends_in(name, &[".parquet", ".parq", ".pq"])
        || [".gzip", ".gz", ".snappy", ".zstd", ".brotli", ".br", ".lz4"].iter().any(|end| {
            let start = name.len().checked_sub(end.len());
            start.is_some_and(|at| {
                ends_in(&name[at..], &[*end]) && ends_in(&name[..at], &[".parquet"])
            })
        })
}

/// The naming conventions of TFDS, `tf.io` and the scripts of `MLPerf`.
fn is_tfrecord(name: &[u8]) -> bool {
    if ends_in(name, &[".bak", ".tmp", ".json", ".txt", ".md", ".md5", ".sha256", "~"]) {
        return false;
    }
    let is_numbered = |part: &[u8]| {
        let [before, middle @ .., after] = part else { return false };
        before.is_ascii_digit() && middle == b"-of-" && after.is_ascii_digit()
    };
    let is_called = name.windows(8).any(|part| part.eq_ignore_ascii_case(b"tfrecord"));
    is_called
        || name.windows(6).any(is_numbered)
        || ends_in(name, &[".tfrec", ".tfr", ".record", ".records"])
}

/// The usual names of the output of `tfrecord2idx` and `wds2idx`.
pub(crate) fn is_index(name: &[u8]) -> bool {
    ends_in(name, &[".idx", ".index"])
}

/// Ignores upper and lower case, as torchvision does for the endings of images.
fn ends_in(name: &[u8], ends: &[&str]) -> bool {
    ends.iter().any(|end| {
        let start = name.len().checked_sub(end.len());
        start.is_some_and(|start| name[start..].eq_ignore_ascii_case(end.as_bytes()))
    })
}

fn is_hidden(path: &[u8]) -> bool {
    name_of(path).starts_with(b".")
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The objects of a listing that are no indexes of others.
fn without_indexes(listing: &Listing) -> Listing {
    let mut chosen = Listing::default();
    for (number, directory) in listing.directories.iter().enumerate() {
        for object in listing.objects_of(number) {
            if !is_index(listing.name_of(object).0) {
                listing.copy_object(object, directory, &mut chosen);
            }
        }
    }
    listing.copy_other_directories(&mut chosen);
    chosen
}

/// For each object of `chosen` the index beside it in `listing`: the one with the same name, with or without
/// its extension.
fn indexes_beside(listing: &Listing, chosen: &Listing) -> Vec<Option<Listed>> {
    let mut indexes: BTreeMap<(&[u8], &[u8]), usize> = BTreeMap::new();
    for (number, directory) in listing.directories.iter().enumerate() {
        for object in listing.objects_of(number) {
            let name = listing.name_of(object).0;
            if is_index(name) {
                indexes.insert((directory.name.as_slice(), stem_of(name)), object);
            }
        }
    }
    let mut found = Vec::with_capacity(chosen.objects.len());
    for (number, directory) in chosen.directories.iter().enumerate() {
        for object in chosen.objects_of(number) {
            let (name, _) = chosen.name_of(object);
            let of = |name| indexes.get(&(directory.name.as_slice(), name));
            found.push(of(name).or_else(|| of(stem_of(name))).map(|it| listing.listed(*it)));
        }
    }
    found
}

fn stem_of(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'.').map_or(name, |dot| &name[..dot])
}

pub(super) fn no_samples(dataset: &Dataset, passed_over: &PassedOver) -> IndexError {
    let looked_for = match &dataset.format {
        Format::ImageFolder => "images below the directories of classes",
        Format::Files(Files::Glob(_)) => "files that match its pattern",
        Format::Files(Files::Manifest(_)) => "the files that its manifest names",
        Format::Raw(_) => "files that no dot hides, with at least one record in them",
        Format::TfRecord(_) => {
            "files with `tfrecord` or `00000-of-00001` in their names, .tfrec, .tfr, .record, .records"
        }
        Format::WebDataset => ".tar",
        Format::Mds => "the shards in its index.json",
        Format::LitData { sequence_length: Some(_) } => {
            "chunks in its index.json that have as many tokens as `sequence_length`"
        }
        Format::LitData { sequence_length: None } => "the chunks in its index.json",
        Format::Megatron => ".bin with an .idx beside",
        Format::Npy => ".npy",
        Format::Npz { .. } => ".npz",
        Format::Parquet(_) => ".parquet, .parq, .pq",
        Format::Arrow => ".arrow, .arrows, .feather, .ipc",
        Format::Hdf5 { .. } => ".h5, .hdf5, .hdf, .he5, .nc",
        Format::Lmdb => ".mdb, .lmdb",
        Format::Ffcv => ".beton, .ffcv",
    };
    let (root, format) = (dataset.source.to_string(), dataset.format.name());
    let picked = dataset.picked.iter().map(|picked| format!(", {picked}"));
    let others = picked.chain([passed_over.said()]).collect();
    IndexError::NoSamples { root, format, looked_for, others }
}

/// The prefix of the paths of objects in messages.
fn without_slash(source: &Location) -> String {
    source.to_string().trim_end_matches('/').to_owned()
}

/// Largest index of another tool, in bytes; it has some hundred bytes for each shard of some MiB.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// All bytes of an index that another tool wrote beside the data.
pub(super) fn read_index(object: &dyn ReadAt) -> Result<Vec<u8>, FormatError> {
    if object.len() > INDEX_BYTES_MAX {
        return Err(FormatError::Malformed {
            what: "the index",
            at: 0,
            found: format!("{} B long", object.len()),
            right: "an index that some tool wrote is shorter than 1 GiB",
        });
    }
    let len = usize::try_from(object.len()).expect("less than 1 GiB fits in memory");
    let mut bytes = vec![0; len];
    object.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
