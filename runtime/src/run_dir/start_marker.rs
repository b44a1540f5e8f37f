//! The marker that a job has started: with which job file and which indexes.
//!
//! The agents' order follows from the indexes of all datasets, so a restarted manager needs the same, even if a
//! dataset has changed since. The marker is created when the first node joins and removed when the job is
//! known to have ended: by `tierfeed drain`, or because the command of `tierfeed run` succeeded. A job that
//! was killed, stopped or failed may be continued.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::whole_file;

/// An upper bound of the file's length.
const FILE_BYTES_MAX: u64 = 4096;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StartMarker {
    /// The xxh3-64 of the text of the job file.
    job: u64,
    /// The fingerprint of the index of each dataset, that of the first one first.
    indexes: Vec<u64>,
}

impl StartMarker {
    #[must_use]
    pub fn new(job_text: &str, indexes: Vec<u64>) -> Self {
        Self { job: xxh3_64(job_text.as_bytes()), indexes }
    }

    /// The fingerprints of the indexes that the job of this text started with, by the marker at `path`; `None`
    /// if there is no marker, or it is that of another job.
    #[must_use]
    pub fn indexes_of(path: &Path, job_text: &str) -> Option<Vec<u64>> {
        let marker = match read(path) {
            Ok(marker) => marker,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "not a start marker of a job; ignored");
                return None;
            }
        };
        (marker.job == xxh3_64(job_text.as_bytes())).then_some(marker.indexes)
    }

    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        whole_file::write(path, serde_json::to_vec(self)?)
    }
}

fn read(path: &Path) -> io::Result<StartMarker> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_note_is_that_of_one_job_file_until_it_is_struck() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        assert_eq!(StartMarker::indexes_of(&path, "job"), None);
        StartMarker::new("job", vec![u64::MAX, 2]).write(&path).unwrap();
        assert_eq!(StartMarker::indexes_of(&path, "job"), Some(vec![u64::MAX, 2]));
        assert_eq!(StartMarker::indexes_of(&path, "another job"), None);
        whole_file::remove(&path).unwrap();
        assert_eq!(StartMarker::indexes_of(&path, "job"), None);
    }

    #[test]
    fn nonsense_is_no_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("begun");
        let right = serde_json::to_string(&StartMarker::new("job", vec![1])).unwrap();
        for text in ["", "{}", "{\"job\":1}"] {
            fs::write(&path, text).unwrap();
            assert_eq!(StartMarker::indexes_of(&path, "job"), None, "{text}");
        }
        let late = format!("{}{}}}", right.trim_end_matches('}'), " ".repeat(5000));
        fs::write(&path, late).unwrap();
        assert_eq!(StartMarker::indexes_of(&path, "job"), None, "no note is so long");
        fs::write(&path, right).unwrap();
        assert_eq!(StartMarker::indexes_of(&path, "job"), Some(vec![1]));
    }
}
