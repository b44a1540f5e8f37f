//! The `index.json` of datasets that are folders of shards: MDS and LitData.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::{
    FormatError,
    objects::{Candidates, Objects, ObjectsError, Shards, Sidecars},
};
use crate::source::{Listing, names::lossy};

const INDEX: &str = "index.json";

/// Whether the index is among the files of a directory.
pub(super) fn has_index(names: &[Vec<u8>]) -> bool {
    names.iter().any(|name| name == INDEX.as_bytes())
}

/// The shards that the index names, in its order.
pub(super) fn choose<S: Shards + 'static>(
    found: &Candidates<'_>,
    parse: impl FnOnce(&[u8]) -> Result<S, FormatError>,
) -> Result<Objects, ObjectsError> {
    let Candidates { place, listing, .. } = found;
    let Some(object) = listing.find(INDEX.as_bytes()) else {
        let found = directory_with_index(listing);
        return Err(ObjectsError::NoShardIndex { root: (*place).to_owned(), found });
    };
    let index = format!("{place}/{INDEX}");
    let broken = |source| ObjectsError::Format { object: index.clone(), source };
    let text = found.read_index(object)?;
    let shards = text.and_then(|text| parse(&text)).map_err(broken)?;
    let mut objects = Vec::new();
    for (number, path) in shards.paths().into_iter().enumerate() {
        objects.push(listing.find(path.as_bytes()).ok_or_else(|| {
            let missing =
                || ObjectsError::ShardMissing { index: index.clone(), name: path.to_owned() };
            shards.why_missing(number).map_or_else(missing, broken)
        })?);
    }
    let listing = listing.chosen(objects);
    Ok(Objects { sidecars: Sidecars::Shards(Box::new(shards)), ..listing.into() })
}

fn directory_with_index(listing: &Listing) -> Option<String> {
    let is_index = |object: &usize| listing.name_of(*object).0 == INDEX.as_bytes();
    let object = (0..listing.objects.len()).find(is_index)?;
    Some(lossy(&listing.directories[listing.directory_of(object)].name))
}

/// Parses an index; `right` describes a valid one.
pub(super) fn parse<T: DeserializeOwned>(
    json: &[u8],
    right: &'static str,
) -> Result<T, FormatError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let place = match error.path().to_string() {
            top if matches!(top.as_str(), "." | "?") => "index.json".to_owned(),
            key => key,
        };
        FormatError::Index { place, found: format!("wrong ({})", error.inner()), right }
    })
}

/// The error for the value `found` at the key `place` of an index.
pub(super) fn wrong(place: String, found: impl Into<String>, right: &'static str) -> FormatError {
    FormatError::Index { place, found: found.into(), right }
}

/// The names of the objects of one index.
#[derive(Default)]
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// Adds the name that the index has at the key `place`.
    ///
    /// It must refer to a file below the folder of the index, which no other name refers to.
    pub(super) fn take(&mut self, name: &str, place: String) -> Result<(), FormatError> {
        let below = |part: &str| !matches!(part, "" | "." | "..");
        if !name.split('/').all(below) || name.contains(['\\', '\0']) {
            let right = "a name must lead to a file below the folder of index.json";
            return Err(wrong(place, format!("{name:?}"), right));
        }
        if !self.0.insert(name.to_owned()) {
            return Err(wrong(place, format!("{name:?} again"), "each file may come once"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_folder() {
        let mut names = Names::default();
        for name in ["shard.00000.mds", "0/shard.00000.mds", "a/b/c", "..a", "ü"] {
            assert!(names.take(name, String::new()).is_ok(), "{name:?}");
        }
        let bad =
            ["", "/etc/passwd", "../a", "a/../b", "a/..", "./a", "a//b", "a/", "a\\b", "a\0b"];
        for name in bad {
            assert!(names.take(name, String::new()).is_err(), "{name:?}");
        }
        assert!(names.take("a/b/c", String::new()).is_err(), "twice");
    }
}
