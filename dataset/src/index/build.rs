//! Builds an index: lists the source, chooses and orders its objects, finds the samples in each.

use std::path::{self, PathBuf};

use super::{
    Index, IndexError,
    choose::{self, Chosen, PassedOver},
    draft::{Contents, Draft, SourceKind},
    parse::{self, Known},
    progress::{Progress, Stage},
};
use crate::{
    Dataset,
    format::{Files, objects::Objects},
    source::{self, Location, SourceError, Store},
};

pub(super) fn draft(
    dataset: &Dataset,
    previous: Option<&Index>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Draft, Vec<String>), IndexError> {
    let store = source::open(&dataset.source)?;
    let chosen = chosen(dataset, &*store, progress)?;
    if chosen.objects.listing.objects.is_empty() {
        return Err(choose::no_samples(dataset, &chosen.passed_over));
    }
    let known = || Known::of(dataset, previous);
    let parsed = parse::samples(&dataset.format, &*store, &chosen, known, progress)?;
    let (kind, root) = root_of(&dataset.source)?;
    let format = format_text(dataset, chosen.manifest);
    let Objects { listing, classes, sidecars, mut notes } = chosen.objects;
    let columns = sidecars.columns().map(<[_]>::to_vec);
    let contents = Contents { columns, stated: parsed.stated };
    notes.extend(parsed.notes);
    let samples = parsed.samples;
    Ok((Draft { root, kind, format, contents, classes, listing, samples }, notes))
}

pub(super) fn chosen(
    dataset: &Dataset,
    store: &dyn Store,
    progress: &mut dyn FnMut(Progress),
) -> Result<Chosen, IndexError> {
    let passed_over = PassedOver::default();
    let selection = choose::selection(dataset, &passed_over)?;
    let mut listed = |done| progress(Progress { stage: Stage::Listing, done, total: None });
    let listing = store.list(&*selection, &mut listed);
    drop(selection);
    match (listing, dataset.files()) {
        (Err(SourceError::CannotList { .. }), Some(Files::Manifest(path))) => {
            choose::look_up(dataset, path, store, progress)
        }
        (listing, _) => {
            let listing = listing?;
            listed(listing.objects.len() as u64);
            choose::choose(dataset, store, listing, passed_over)
        }
    }
}

/// The format as indexes store it: its text, and the hash of a manifest.
pub(super) fn format_of(dataset: &Dataset) -> Result<String, IndexError> {
    let manifest = match dataset.files() {
        Some(Files::Manifest(path)) => Some(choose::manifest_hash(path)?),
        _ => None,
    };
    Ok(format_text(dataset, manifest))
}

fn format_text(dataset: &Dataset, manifest: Option<u64>) -> String {
    let picked = dataset.picked.iter().map(|picked| format!(", {picked}"));
    let hash = manifest.into_iter().map(|hash| format!(", as of {hash:016x}"));
    std::iter::once(dataset.format.to_string()).chain(picked).chain(hash).collect()
}

/// The source as indexes store it: a URL, or an absolute path without a slash at the end and with
/// unresolved links.
pub(super) fn root_of(location: &Location) -> Result<(SourceKind, Vec<u8>), IndexError> {
    use std::os::unix::ffi::OsStringExt as _;
    match location {
        Location::Bucket(bucket) => {
            Ok((SourceKind::Bucket, bucket.url.trim_end_matches('/').as_bytes().to_vec()))
        }
        Location::Path(path) => {
            let unreadable = |source| IndexError::Unreadable { path: path.clone(), source };
            let absolute: PathBuf =
                path::absolute(path).map_err(unreadable)?.components().collect();
            Ok((SourceKind::FileSystem, absolute.into_os_string().into_vec()))
        }
    }
}
