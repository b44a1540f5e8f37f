//! Builds an index: lists the source, chooses and orders its objects, finds the samples in each.

use std::path::{self, PathBuf};

use super::{
    Index, IndexError,
    choose::{self, Chosen},
    draft::{Draft, SourceKind},
    parse,
    progress::{Progress, Stage},
};
use crate::{
    Dataset, Format,
    format::Files,
    source::{self, Location, SourceError, Store},
};

pub(super) fn draft(
    dataset: &Dataset,
    previous: Option<&Index>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Draft, IndexError> {
    let store = source::open(&dataset.source)?;
    let chosen = chosen(dataset, &*store, progress)?;
    if chosen.listing.objects.is_empty() {
        return Err(choose::no_samples(dataset));
    }
    let samples = parse::samples(dataset, &*store, &chosen, previous, progress)?;
    let (kind, root) = root_of(&dataset.source)?;
    let format = format_text(dataset, chosen.manifest);
    let columns = chosen.sidecars.columns().and_then(|it| serde_json::to_string(it).ok());
    let (classes, listing) = (chosen.classes, chosen.listing);
    Ok(Draft { root, kind, format, columns, classes, listing, samples })
}

/// The objects of a dataset in their present state.
pub(super) fn chosen(
    dataset: &Dataset,
    store: &dyn Store,
    progress: &mut dyn FnMut(Progress),
) -> Result<Chosen, IndexError> {
    let selection = choose::selection(&dataset.format)?;
    let mut listed = |done| progress(Progress { stage: Stage::Listing, done, total: None });
    match (store.list(&*selection, &mut listed), &dataset.format) {
        (Err(SourceError::CannotList { .. }), Format::Files(Files::Manifest(path))) => {
            Ok(choose::look_up(&dataset.source, path, store, progress)?)
        }
        (listing, _) => {
            let listing = listing?;
            listed(listing.objects.len() as u64);
            choose::choose(dataset, store, listing)
        }
    }
}

/// The format as indexes store it: its text, and the hash of a manifest.
pub(super) fn format_of(dataset: &Dataset) -> Result<String, IndexError> {
    let manifest = match &dataset.format {
        Format::Files(Files::Manifest(path)) => Some(choose::manifest_hash(path)?),
        _ => None,
    };
    Ok(format_text(dataset, manifest))
}

fn format_text(dataset: &Dataset, manifest: Option<u64>) -> String {
    let format = &dataset.format;
    manifest.map_or_else(|| format.to_string(), |hash| format!("{format}, as of {hash:016x}"))
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
