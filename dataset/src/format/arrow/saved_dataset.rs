//! The folders that Hugging Face `datasets` saves: `state.json` names the files of the data.
//!
//! Beside them lie files of the same ending that are no data: `cache-….arrow` holds what `map`, `filter` and
//! `shuffle` computed, for each user who called them.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::{
    format::{
        FormatError,
        objects::{Candidates, Objects, ObjectsError},
    },
    source::{Listing, names::lossy},
};

const STATE: &[u8] = b"state.json";
const SPLITS: &[u8] = b"dataset_dict.json";

const DATA_FILES: &str = "_data_files";

#[derive(Deserialize)]
struct DataFile {
    filename: String,
}

/// Whether a file is read but holds no data.
pub(super) fn is_beside(name: &[u8]) -> bool {
    name == STATE || name == SPLITS
}

/// The files of the data. Those of several splits are refused unless the user picked among them.
pub(super) fn choose(found: &Candidates<'_>) -> Result<Objects, ObjectsError> {
    let Candidates { place, listing, is_picked, .. } = found;
    let mut chosen = Vec::new();
    for (number, directory) in listing.directories.iter().enumerate() {
        let name_of = |object: &usize| listing.name_of(*object).0;
        let find =
            |wanted: &[u8]| listing.objects_of(number).find(|object| name_of(object) == wanted);
        if find(SPLITS).is_some() && !is_picked {
            refuse_splits(place, listing, &directory.name)?;
        }
        let named = find(STATE).map(|state| data_files(found, state)).transpose()?.flatten();
        let is_data = |object: &usize| match (&named, name_of(object)) {
            (Some(named), name) => named.contains(name),
            (None, name) => !is_cache(name) && !is_beside(name),
        };
        chosen.extend(listing.objects_of(number).filter(is_data));
    }
    Ok(listing.chosen(chosen).into())
}

/// The names of the data files according to the object `state`; `None` if it does not name them, as a file of
/// that name from another program.
fn data_files(
    found: &Candidates<'_>,
    state: usize,
) -> Result<Option<BTreeSet<Vec<u8>>>, ObjectsError> {
    let Candidates { place, listing, is_picked, .. } = found;
    let index = format!("{place}/{}", lossy(&listing.listed(state).path));
    let text = found.read_index(state)?;
    let parsed = text.and_then(|text| {
        let files = serde_json::from_slice::<serde_json::Value>(&text).and_then(|mut state| {
            let files = state.get_mut(DATA_FILES).map(serde_json::Value::take);
            files.map(serde_json::from_value::<Vec<DataFile>>).transpose()
        });
        files.map_err(|error| FormatError::Index {
            place: "the file".to_owned(),
            found: format!("wrong ({error})"),
            right: "`save_to_disk` writes the names of the data as `_data_files`",
        })
    });
    let parsed = parsed.map_err(|source| ObjectsError::Format { object: index.clone(), source })?;
    let Some(data_files) = parsed else { return Ok(None) };
    let directory = listing.directory_of(state);
    let there: BTreeSet<&[u8]> =
        listing.objects_of(directory).map(|object| listing.name_of(object).0).collect();
    let missing = data_files.iter().find(|it| !there.contains(it.filename.as_bytes()));
    match missing.filter(|_| !is_picked) {
        Some(DataFile { filename }) => {
            Err(ObjectsError::ShardMissing { index, name: filename.clone() })
        }
        None => Ok(Some(data_files.into_iter().map(|it| it.filename.into_bytes()).collect())),
    }
}

fn refuse_splits(place: &str, listing: &Listing, directory: &[u8]) -> Result<(), ObjectsError> {
    let is_below = |name: &[u8]| {
        let below = match directory {
            b"" => Some(name),
            _ => name.strip_prefix(directory).and_then(|rest| rest.strip_prefix(b"/")),
        };
        below.filter(|below| !below.is_empty() && !below.contains(&b'/')).map(<[u8]>::to_vec)
    };
    let splits = listing.directories.iter().enumerate();
    let splits = splits.filter(|(number, _)| !listing.objects_of(*number).is_empty());
    let splits: Vec<_> = splits.filter_map(|(_, it)| is_below(&it.name)).collect();
    let [first, _, ..] = splits.as_slice() else { return Ok(()) };
    let names: Vec<_> = splits.iter().map(|name| format!("`{}`", lossy(name))).collect();
    let root = match directory {
        b"" => place.to_owned(),
        below => format!("{place}/{}", lossy(below)),
    };
    let first = splits.iter().find(|name| name.as_slice() == b"train").unwrap_or(first);
    let pattern = format!("**/{}/*", lossy(first));
    Err(ObjectsError::DatasetDict { root, splits: names.join(", "), pattern })
}

/// Whether a file of this name is a table that `datasets` computed: `cache-`, at least 16 hexadecimal digits
/// of a fingerprint, and for several processes their numbers.
fn is_cache(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b"cache-") else { return false };
    rest.len() > 16 && rest[..16].iter().all(u8::is_ascii_hexdigit)
}
