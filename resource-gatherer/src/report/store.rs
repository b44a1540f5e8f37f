//! Keeps a report in a file that is always whole: written beside it, then renamed over it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::{FORMAT, Report};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("cannot read the report {path}: {1}; `tierfeed tiers probe` makes one", path = .0.display())]
    Unreadable(PathBuf, #[source] io::Error),
    #[error("cannot write the report {path}: {1}", path = .0.display())]
    Unwritable(PathBuf, #[source] io::Error),
    #[error("{path} is no report: {1}; `tierfeed tiers probe` makes one", path = .0.display())]
    Malformed(PathBuf, #[source] serde_json::Error),
    #[error("{path} has format {1}, expected {FORMAT}; run `tierfeed tiers probe` again", path = .0.display())]
    OtherFormat(PathBuf, u32),
}

/// Writes `report` to `path`; a reader sees the old file or the new one, never a part.
///
/// # Errors
///
/// The directory of `path` cannot be made, or the file in it not be written.
pub fn write(report: &Report, path: &Path) -> Result<(), StoreError> {
    write_json(report, path)
}

/// Writes any document as [`write()`] does a report.
pub(crate) fn write_json(document: &impl Serialize, path: &Path) -> Result<(), StoreError> {
    let unwritable = |source| StoreError::Unwritable(path.to_owned(), source);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    fs::create_dir_all(directory).map_err(unwritable)?;
    let mut file = NamedTempFile::new_in(directory).map_err(unwritable)?;
    serde_json::to_writer_pretty(&mut file, document).map_err(|error| unwritable(error.into()))?;
    file.as_file().sync_all().map_err(unwritable)?;
    file.persist(path).map_err(|error| unwritable(error.error))?;
    Ok(())
}

/// # Errors
///
/// There is no such file, or it is no report of this format.
pub fn read(path: &Path) -> Result<Report, StoreError> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }

    let malformed = |source| StoreError::Malformed(path.to_owned(), source);
    let text = fs::read_to_string(path)
        .map_err(|source| StoreError::Unreadable(path.to_owned(), source))?;
    let Version { format } = serde_json::from_str(&text).map_err(malformed)?;
    if format != FORMAT {
        return Err(StoreError::OtherFormat(path.to_owned(), format));
    }
    serde_json::from_str(&text).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> StoreError {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.json");
        fs::write(&path, text).unwrap();
        read(&path).unwrap_err()
    }

    #[test]
    fn a_report_that_is_not_there_says_how_to_make_one() {
        let error = read(Path::new("/no/such/report.json")).unwrap_err();
        assert!(matches!(error, StoreError::Unreadable { .. }));
        assert!(error.to_string().contains("tierfeed tiers probe"), "{error}");
    }

    #[test]
    fn what_is_no_report_is_refused_with_its_name() {
        let without_figures = format!(r#"{{"format": {FORMAT}, "host": "x"}}"#);
        for text in ["", "[]", "{}", &without_figures] {
            let error = read_text(text);
            assert!(matches!(error, StoreError::Malformed { .. }), "{text}: {error}");
            assert!(error.to_string().contains("report.json"), "{error}");
        }
    }

    #[test]
    fn the_report_of_another_version_is_refused_before_its_content() {
        for other in [FORMAT - 1, FORMAT + 1] {
            let text = format!(r#"{{"format": {other}, "tiers": "of another shape"}}"#);
            let error = read_text(&text);
            assert!(matches!(error, StoreError::OtherFormat(_, found) if found == other));
            assert!(error.to_string().contains("run `tierfeed tiers probe` again"), "{error}");
        }
    }
}
