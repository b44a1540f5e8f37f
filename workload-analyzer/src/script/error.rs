//! Why a script cannot be analysed.

use std::{io, path::PathBuf};

use super::load::{FILE_BYTES_MAX, FILES_MAX};

/// Why a script cannot be analysed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Unreadable {
        /// As it was given.
        file: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A directory, a pipe or a device.
    #[error("{}: is no regular file; give the Python file that starts the training", file.display())]
    NoFile {
        /// As it was given.
        file: PathBuf,
    },
    /// A file that is no script.
    #[error("{}: is larger than {FILE_BYTES_MAX} bytes; that is no training script", file.display())]
    TooLarge {
        /// As it was given.
        file: PathBuf,
    },
    /// A file in another encoding, or no text.
    #[error("{}: byte {at} is no UTF-8; Python files are UTF-8, convert it", file.display())]
    NotUtf8 {
        /// As it was given.
        file: PathBuf,
        /// The first byte that is wrong, from 0.
        at: usize,
    },
    /// More files than are looked at.
    #[error("{given} scripts are given; at most {FILES_MAX} are analysed together")]
    TooMany {
        /// How many.
        given: usize,
    },
}
