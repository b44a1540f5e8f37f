//! The `index.json` of datasets that are folders of shards: MDS and LitData.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::FormatError;

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
