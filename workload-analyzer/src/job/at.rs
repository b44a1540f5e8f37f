//! Puts the place in a job file in front of what is found wrong with a key only later, when host and
//! dataset are looked at.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use super::location;

/// What is wrong with a key of a job file, with the place of the key.
#[derive(Debug, thiserror::Error)]
#[error("{}:{line}: {source}", .file.display())]
pub struct At<E: Error + 'static> {
    /// The job file.
    pub file: PathBuf,
    /// Counted from 1.
    pub line: usize,
    /// What is wrong.
    pub source: E,
}

impl<E: Error + 'static> At<E> {
    /// `error` at the place that `keys` have in `text`, the text of `file`; at their nearest parent if the
    /// text does not have them.
    #[must_use]
    pub fn in_text(text: &str, file: &Path, keys: &[&str], error: E) -> Self {
        Self { file: file.to_owned(), line: location::line_of(text, keys), source: error }
    }
}
