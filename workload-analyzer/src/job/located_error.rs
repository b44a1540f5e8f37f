//! Adds file and line of a key to an error that is found later, when host and dataset are examined.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use crate::yaml::location;

#[derive(Debug, thiserror::Error)]
#[error("{}:{line}: {source}", .file.display())]
pub struct LocatedError<E: Error + 'static> {
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    pub source: E,
}

impl<E: Error + 'static> LocatedError<E> {
    /// `error` at the line of `keys` in `text`, the text of `file`; at the line of their nearest parent if
    /// the text does not have them.
    #[must_use]
    pub fn in_text(text: &str, file: &Path, keys: &[&str], error: E) -> Self {
        Self { file: file.to_owned(), line: location::line_of(text, keys), source: error }
    }
}
