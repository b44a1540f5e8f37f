//! Chooses the objects of a source that belong to a dataset, and their order.
//!
//! Image folders are ordered as in torchvision, manifests and `index.json` define their order,
//! everything else is ordered directory by directory by path, and in each directory by name.

mod manifest;
mod splits;

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use globset::{GlobBuilder, GlobMatcher};

use super::{IndexError, Progress};
use crate::{
    Dataset, Format,
    format::{
        Files, FormatError, Kind, Taken,
        objects::{Candidates, Objects, Sidecars},
    },
    source::{
        Everything, Listed, Listing, Location, Selection, Store,
        names::{ends_in, lossy, parted},
    },
};

pub(super) use manifest::hash as manifest_hash;

/// The objects of a dataset in the order of its samples.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) place: String,
    pub(super) objects: Objects,
    /// The hash of the manifest, if there is one.
    pub(super) manifest: Option<u64>,
    pub(super) passed_over: PassedOver,
}

impl Chosen {
    pub(super) fn broken(&self, number: usize, source: FormatError) -> IndexError {
        self.broken_at(&self.objects.listing.listed(number), source)
    }

    pub(super) fn broken_at(&self, listed: &Listed, source: FormatError) -> IndexError {
        match source {
            FormatError::NoHdf5Indexer { .. } => IndexError::NoIndexer(source),
            source => IndexError::Format { object: self.place_at(listed), source },
        }
    }

    pub(super) fn place_of(&self, number: usize) -> String {
        self.place_at(&self.objects.listing.listed(number))
    }

    fn place_at(&self, listed: &Listed) -> String {
        match listed.path.as_slice() {
            b"" => self.place.clone(),
            path => format!("{}/{}", self.place, lossy(path)),
        }
    }
}

/// The objects of a source that a dataset uses. Files that are not taken are noted in `passed_over`.
pub(super) fn selection<'a>(
    dataset: &Dataset,
    passed_over: &'a PassedOver,
) -> Result<Box<dyn Selection + 'a>, IndexError> {
    let kind = dataset.format.kind();
    let pattern = match dataset.files() {
        Some(Files::Manifest(_)) => return Ok(Box::new(Everything)),
        Some(Files::Glob(pattern)) => Some(Pattern::new(pattern)?),
        None => None,
    };
    Ok(match (kind.taken, pattern) {
        (Taken::InDirectories, pattern) => Box::new(InDirectories { kind, pattern }),
        (Taken::Picked, Some(pattern)) => Box::new(pattern),
        (_, pattern) => Box::new(Visible { kind, pattern, passed_over }),
    })
}

/// Puts a listing into the order of the dataset.
pub(super) fn choose(
    dataset: &Dataset,
    store: &dyn Store,
    listing: Listing,
    passed_over: PassedOver,
) -> Result<Chosen, IndexError> {
    let place = without_slash(&dataset.source);
    let (listing, full, manifest) = match dataset.files() {
        Some(Files::Manifest(path)) => {
            let (objects, hash) = manifest::choose(path, &listing)?;
            (objects, Some(listing), Some(hash))
        }
        _ => (listing, None, None),
    };
    let before_manifest = full.as_ref();
    let is_picked = dataset.picked.is_some();
    let found = Candidates { place: &place, store, listing, before_manifest, is_picked };
    let mut objects = dataset.format.rules().objects(found)?;
    if !matches!(objects.sidecars, Sidecars::Shards(_)) {
        splits::check(dataset, &place, &mut objects)?;
    }
    objects.notes.extend(passed_over.note(&place, &dataset.format));
    Ok(Chosen { place, objects, manifest, passed_over })
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
        objects: listing.into(),
        manifest: Some(hash),
        passed_over: PassedOver::default(),
    })
}

/// Files in directories of classes, hidden or not.
struct InDirectories {
    kind: &'static Kind,
    pattern: Option<Pattern>,
}

impl Selection for InDirectories {
    fn takes(&self, path: &[u8]) -> bool {
        let (directory, name) = parted(path);
        let is_picked = self.pattern.as_ref().is_none_or(|pattern| pattern.takes(path));
        !directory.is_empty() && (self.kind.is_sample)(name) && is_picked
    }
}

struct Visible<'a> {
    kind: &'static Kind,
    pattern: Option<Pattern>,
    passed_over: &'a PassedOver,
}

impl Selection for Visible<'_> {
    fn enters(&self, path: &[u8]) -> bool {
        !is_hidden(path)
    }

    fn takes(&self, path: &[u8]) -> bool {
        let (_, name) = parted(path);
        if is_hidden(path) {
            return false;
        }
        if (self.kind.is_beside)(name) {
            return true;
        }
        let is_sample = (self.kind.is_sample)(name);
        match &self.pattern {
            Some(pattern) => pattern.takes(path) && (pattern.names_files || is_sample),
            None if is_sample => true,
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
        let word = format.kind().alike?.as_bytes();
        let is_alike = |path: &&Vec<u8>| {
            parted(path).1.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
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
    fn takes(&self, path: &[u8]) -> bool {
        self.matcher.is_match(OsStr::from_bytes(path))
    }
}

fn is_hidden(path: &[u8]) -> bool {
    parted(path).1.starts_with(b".")
}

pub(super) fn no_samples(dataset: &Dataset, passed_over: &PassedOver) -> IndexError {
    let looked_for = dataset.format.looked_for();
    let (root, format) = (dataset.source.to_string(), dataset.format.name());
    let picked = dataset.picked.iter().map(|picked| format!(", {picked}"));
    let others = picked.chain([passed_over.said()]).collect();
    IndexError::NoSamples { root, format, looked_for, others }
}

/// The prefix of the paths of objects in messages.
fn without_slash(source: &Location) -> String {
    source.to_string().trim_end_matches('/').to_owned()
}
