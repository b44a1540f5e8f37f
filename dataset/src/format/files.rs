//! Files that the user picks: each is a sample.

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Taken,
    keys::{Files, GLOB, Given, KeyError},
};

pub(super) static KIND: Kind = Kind {
    taken: Taken::Picked,
    ..Kind::new("files", of_keys, |_| true, "files that match its pattern")
};

fn of_keys(given: &Given<'_>) -> Result<Format, KeyError> {
    let what =
        "which files are samples, for example `**/*.npz`; or `manifest`, a file that lists them";
    given.files()?.map(Format::Files).ok_or_else(|| given.needs(&GLOB, what))
}

impl DatasetFormat for Files {
    fn settings(&self) -> String {
        self.to_string()
    }

    fn looked_for(&self) -> Option<&'static str> {
        match self {
            Self::Glob(_) => None,
            Self::Manifest(_) => Some("the files that its manifest names"),
        }
    }

    fn of_size(&self, _size: u64) -> Result<Option<Found>, FormatError> {
        Ok(Some(Found::Whole))
    }
}
