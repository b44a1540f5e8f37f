//! Chooses the objects of a source that belong to a dataset, and their order.
//!
//! Image folders are ordered as in torchvision, manifests and `index.json` define their order,
//! everything else is ordered directory by directory by path, and in each directory by name.

mod image_folder;
mod manifest;
mod shards;

use std::{collections::BTreeMap, path::Path};

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
    /// The name of the source in messages.
    pub(super) place: String,
    pub(super) listing: Listing,
    pub(super) classes: Classes,
    /// The hash of the manifest, if there is one.
    pub(super) manifest: Option<u64>,
    /// Data about each object from outside of it.
    pub(super) sidecars: Sidecars,
}

impl Chosen {
    /// The error of object `number`.
    pub(super) fn broken(&self, number: usize, source: FormatError) -> IndexError {
        self.broken_at(&self.listing.listed(number), source)
    }

    /// The error of an object.
    pub(super) fn broken_at(&self, listed: &Listed, source: FormatError) -> IndexError {
        let object = match listed.path.as_slice() {
            b"" => self.place.clone(),
            path => format!("{}/{}", self.place, lossy(path)),
        };
        IndexError::Format { object, source }
    }
}

/// Data that a format keeps about an object outside of it.
#[derive(Debug)]
pub(super) enum Sidecars {
    Nothing,
    /// An index that another tool wrote, for the objects that have one.
    Index(Vec<Option<Listed>>),
    /// The shards in `index.json`.
    Mds(Vec<mds::Shard>),
    /// The chunks in `index.json`.
    LitData(litdata::Index),
}

impl Sidecars {
    /// The columns that all samples have.
    pub(super) fn columns(&self) -> Option<&[Column]> {
        match self {
            Self::Mds(shards) => mds::columns_of(shards),
            Self::LitData(index) => index.leaves.as_deref(),
            Self::Nothing | Self::Index(_) => None,
        }
    }

    /// Whether there is such data about object `number`.
    pub(super) fn is_of(&self, number: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Index(indexes) => indexes[number].is_some(),
            Self::Mds(_) | Self::LitData(_) => true,
        }
    }
}

/// The objects of a source that a format uses.
pub(super) fn selection(format: &Format) -> Result<Box<dyn Selection>, IndexError> {
    match format {
        Format::ImageFolder => Ok(Box::new(image_folder::Images)),
        Format::Files(Files::Glob(pattern)) => glob(pattern),
        Format::Files(Files::Manifest(_)) => Ok(Box::new(Everything)),
        _ => Ok(Box::new(Visible { ends: ends(format) })),
    }
}

/// Whether a name is one of those that a format uses, itself or as an index beside.
pub(crate) fn ends(format: &Format) -> fn(&[u8]) -> bool {
    match format {
        Format::ImageFolder => is_image,
        Format::Files(_) | Format::Raw(_) | Format::Mds | Format::LitData { .. } => |_| true,
        Format::TfRecord(_) => |name| is_tfrecord(name) || is_index(name),
        Format::WebDataset => |name| name.ends_with(b".tar") || is_index(name),
        Format::Megatron => |name| name.ends_with(b".bin") || name.ends_with(b".idx"),
        Format::Npy => |name| name.ends_with(b".npy"),
        Format::Npz { .. } => |name| name.ends_with(b".npz"),
        Format::Parquet(_) => |name| ends_in(name, &[".parquet", ".parq", ".pq"]),
        Format::Arrow => |name| ends_in(name, &[".arrow", ".arrows", ".feather", ".ipc"]),
        Format::Hdf5 { .. } => |name| ends_in(name, &[".h5", ".hdf5", ".hdf", ".he5", ".nc"]),
        Format::Lmdb => |name| ends_in(name, &[".mdb", ".lmdb"]) && !name.ends_with(b"lock.mdb"),
        Format::Ffcv => |name| ends_in(name, &[".beton", ".ffcv"]),
    }
}

/// Puts a listing into the order of the dataset.
pub(super) fn choose(
    dataset: &Dataset,
    store: &dyn Store,
    listing: Listing,
) -> Result<Chosen, IndexError> {
    let place = without_slash(&dataset.source);
    let (mut classes, mut sidecars, mut manifest) = (Classes::None, Sidecars::Nothing, None);
    let listing = match &dataset.format {
        Format::ImageFolder => {
            classes = Classes::Directories;
            image_folder::choose(&place, listing)?
        }
        Format::Files(Files::Manifest(path)) => {
            let (objects, hash) = manifest::choose(path, &listing)?;
            manifest = Some(hash);
            objects
        }
        Format::TfRecord(_) | Format::WebDataset | Format::Megatron => {
            let (objects, indexes) = part_indexes(&listing);
            sidecars = Sidecars::Index(indexes);
            objects
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
    Ok(Chosen { place, listing, classes, manifest, sidecars })
}

/// The objects that a manifest names, for a source that cannot be listed.
pub(super) fn look_up(
    source: &Location,
    manifest: &Path,
    store: &dyn Store,
    progress: &mut dyn FnMut(Progress),
) -> Result<Chosen, IndexError> {
    let (listing, hash) = manifest::look_up(manifest, store, progress)?;
    let place = without_slash(source);
    let (classes, sidecars) = (Classes::None, Sidecars::Nothing);
    Ok(Chosen { place, listing, classes, manifest: Some(hash), sidecars })
}

/// Files by their names, without hidden ones.
struct Visible {
    ends: fn(&[u8]) -> bool,
}

impl Selection for Visible {
    fn enters(&self, path: &[u8]) -> bool {
        !is_hidden(path)
    }

    fn takes(&self, path: &[u8]) -> bool {
        !is_hidden(path) && (self.ends)(name_of(path))
    }
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
struct Matching {
    matcher: GlobMatcher,
}

impl Selection for Matching {
    fn enters(&self, _path: &[u8]) -> bool {
        true
    }

    fn takes(&self, path: &[u8]) -> bool {
        use std::os::unix::ffi::OsStrExt as _;
        self.matcher.is_match(std::ffi::OsStr::from_bytes(path))
    }
}

fn glob(pattern: &str) -> Result<Box<dyn Selection>, IndexError> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    let glob = glob.map_err(|source| IndexError::Glob { pattern: pattern.to_owned(), source })?;
    Ok(Box::new(Matching { matcher: glob.compile_matcher() }))
}

/// The naming conventions of TFDS, `tf.io` and the scripts of `MLPerf`.
fn is_tfrecord(name: &[u8]) -> bool {
    let is_numbered = |part: &[u8]| {
        let [before, middle @ .., after] = part else { return false };
        before.is_ascii_digit() && middle == b"-of-" && after.is_ascii_digit()
    };
    let is_called = name.windows(8).any(|part| part == b"tfrecord");
    is_called
        || name.windows(6).any(is_numbered)
        || ends_in(name, &[".tfrec", ".tfr", ".record", ".records"])
}

/// The usual names of the output of `tfrecord2idx` and `wds2idx`.
pub(crate) fn is_index(name: &[u8]) -> bool {
    ends_in(name, &[".idx", ".index"])
}

fn ends_in(name: &[u8], ends: &[&str]) -> bool {
    ends.iter().any(|end| name.ends_with(end.as_bytes()))
}

fn is_hidden(path: &[u8]) -> bool {
    name_of(path).starts_with(b".")
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// Separates objects from the indexes beside them. An index belongs to the object with the same
/// name, with or without its extension.
fn part_indexes(listing: &Listing) -> (Listing, Vec<Option<Listed>>) {
    let mut chosen = Listing::default();
    let mut indexes = Vec::new();
    for (number, directory) in listing.directories.iter().enumerate() {
        let is_other = |object: &usize| is_index(listing.name_of(*object).0);
        let (others, objects): (Vec<_>, Vec<_>) = listing.objects_of(number).partition(is_other);
        let others: BTreeMap<&[u8], usize> =
            others.into_iter().map(|other| (stem_of(listing.name_of(other).0), other)).collect();
        for object in objects {
            let (name, _) = listing.name_of(object);
            let beside = others.get(name).or_else(|| others.get(stem_of(name)));
            indexes.push(beside.map(|other| listing.listed(*other)));
            listing.copy_object(object, directory, &mut chosen);
        }
    }
    listing.copy_other_directories(&mut chosen);
    (chosen, indexes)
}

/// A name without its last extension.
fn stem_of(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'.').map_or(name, |dot| &name[..dot])
}

/// The error for a source without samples.
pub(super) fn no_samples(dataset: &Dataset) -> IndexError {
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
        Format::LitData { .. } => "the chunks in its index.json",
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
    IndexError::NoSamples { root, format, looked_for }
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
