//! Which objects of a source are those of a dataset, in which order, and what lies beside them.

use std::{collections::BTreeMap, fmt};

use tierfeed_transform::container::Column;

use super::{Checksums, FormatError, Parsed, piece::malformed};
use crate::{
    read_at::ReadAt,
    source::{
        Listed, Listing, SourceError, Store,
        names::{ends_in, parted, stem_of},
    },
};

/// The files of a source that may be objects of a dataset.
pub(crate) struct Candidates<'a> {
    /// The source, in messages.
    pub(crate) place: &'a str,
    pub(crate) store: &'a dyn Store,
    pub(crate) listing: Listing,
    /// What was listed before a manifest selected from it.
    pub(crate) before_manifest: Option<&'a Listing>,
    /// Whether the user selected files.
    pub(crate) is_picked: bool,
}

/// The objects of a dataset in the order of its samples.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) listing: Listing,
    pub(crate) classes: Classes,
    pub(crate) sidecars: Sidecars,
    pub(crate) notes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Classes {
    /// The samples have labels of their own, or none.
    None,
    /// The top-level directories are the classes.
    Directories,
}

/// Data that a format keeps about an object outside of it.
#[derive(Debug)]
pub(crate) enum Sidecars {
    Nothing,
    /// An index that another tool wrote, for the objects that have one.
    Index(Vec<Option<Listed>>),
    Shards(Box<dyn Shards>),
}

/// What an `index.json` says about the shards of a dataset.
pub(crate) trait Shards: fmt::Debug + Send + Sync {
    /// The paths of the shards below the folder of the index, in the order of their samples.
    fn paths(&self) -> Vec<&str>;

    /// The reason why a shard is missing, if the index knows one.
    fn why_missing(&self, _number: usize) -> Option<FormatError> {
        None
    }

    /// The columns of each sample; `None` if shards differ in them.
    fn columns(&self) -> Option<&[Column]>;

    fn parse(&self, shard: &dyn ReadAt, number: usize) -> Result<Parsed, FormatError>;

    /// Compares a shard with its checksums.
    fn check(&self, _shard: &dyn ReadAt, _number: usize) -> Result<Checksums, FormatError> {
        Ok(Checksums::None)
    }
}

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectsError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("{object}: {source}")]
    Format { object: String, source: FormatError },
    #[error("{root}: not a directory; an image folder has one directory per class")]
    NotADirectory { root: String },
    #[error("{root}: no class directory; an image folder has one directory per class")]
    NoClasses { root: String },
    /// torchvision refuses such a class too.
    #[error(
        "{root}: no image for the class `{class}`{}; remove the directory or put a file there that ends \
         in .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp",
        and_others(*.others)
    )]
    EmptyClass { root: String, class: String, others: usize },
    #[error("{index}: names `{name}`, which is not there; bring the whole dataset")]
    ShardMissing { index: String, name: String },
    #[error("{root}: no index.json{}; the source is the directory that has one", elsewhere(.found.as_ref()))]
    NoShardIndex { root: String, found: Option<String> },
    #[error(
        "{root}: a DatasetDict with the splits {splits}, and a training would read all of them; the source is one of \
         these directories, or pick files with `glob`, for example `{pattern}`"
    )]
    DatasetDict { root: String, splits: String, pattern: String },
}

fn elsewhere(found: Option<&String>) -> String {
    found.map_or_else(String::new, |place| format!(" there, but in {place}"))
}

fn and_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => " and 1 other".to_owned(),
        _ => format!(" and {others} others"),
    }
}

impl From<Listing> for Objects {
    fn from(listing: Listing) -> Self {
        let (classes, sidecars) = (Classes::None, Sidecars::Nothing);
        Self { listing, classes, sidecars, notes: Vec::new() }
    }
}

impl Sidecars {
    pub(crate) fn columns(&self) -> Option<&[Column]> {
        match self {
            Self::Shards(shards) => shards.columns(),
            Self::Nothing | Self::Index(_) => None,
        }
    }

    pub(crate) fn is_of(&self, number: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::Index(indexes) => indexes[number].is_some(),
            Self::Shards(_) => true,
        }
    }
}

impl Candidates<'_> {
    /// All but the indexes of other tools, each with its index: the one with the same name, with or without
    /// its extension.
    pub(crate) fn with_indexes(self) -> Objects {
        let name_of = |object: &usize| self.listing.name_of(*object).0;
        let objects = 0..self.listing.objects.len();
        let listing = self.listing.chosen(objects.filter(|object| !is_index(name_of(object))));
        let all = self.before_manifest.unwrap_or(&self.listing);
        let mut indexes: BTreeMap<(&[u8], &[u8]), usize> = BTreeMap::new();
        for (number, directory) in all.directories.iter().enumerate() {
            for object in all.objects_of(number) {
                let name = all.name_of(object).0;
                if is_index(name) {
                    indexes.insert((directory.name.as_slice(), stem_of(name)), object);
                }
            }
        }
        let index_of = |object| {
            let path = listing.listed(object).path;
            let (directory, name) = parted(&path);
            let index = indexes.get(&(directory, name));
            index.or_else(|| indexes.get(&(directory, stem_of(name)))).map(|it| all.listed(*it))
        };
        let beside = (0..listing.objects.len()).map(index_of).collect();
        Objects { sidecars: Sidecars::Index(beside), ..listing.into() }
    }

    /// All bytes of an object, which is an index that another tool wrote.
    pub(crate) fn read_index(
        &self,
        object: usize,
    ) -> Result<Result<Vec<u8>, FormatError>, SourceError> {
        let opened = self.store.open(&self.listing.listed(object))?;
        let text = read_index(&*opened);
        opened.verify()?;
        Ok(text)
    }
}

/// The usual names of the output of `tfrecord2idx` and `wds2idx`.
pub(crate) fn is_index(name: &[u8]) -> bool {
    ends_in(name, &[".idx", ".index"])
}

/// Largest index of another tool, in bytes; it has some hundred bytes for each shard of some MiB.
const INDEX_BYTES_MAX: u64 = 1 << 30;

/// All bytes of an index that another tool wrote beside the data.
pub(crate) fn read_index(object: &dyn ReadAt) -> Result<Vec<u8>, FormatError> {
    if object.len() > INDEX_BYTES_MAX {
        let found = format!("{} B long", object.len());
        let right = "an index that some tool wrote is shorter than 1 GiB";
        return Err(malformed("the index", 0, found, right));
    }
    let len = usize::try_from(object.len()).expect("less than 1 GiB fits in memory");
    let mut bytes = vec![0; len];
    object.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
