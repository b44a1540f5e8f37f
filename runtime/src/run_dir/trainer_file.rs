//! The trainer file: what a trainer on this node needs to find its agent. `tierfeed exec` reads it from the
//! run directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::whole_file;

/// The content of the file. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerFile {
    pub socket: PathBuf,
    /// The job file, as the manager read it; it may lie on another host.
    pub job: PathBuf,
    pub index: PathBuf,
    pub node: u32,
    /// A directory for the trainer's own files, if the job has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; is an agent running in this run directory?", .path.display())]
pub struct TrainerFileError {
    pub path: PathBuf,
    pub source: io::Error,
}

impl TrainerFile {
    pub fn read(path: &Path) -> Result<Self, TrainerFileError> {
        let failed = |source| TrainerFileError { path: path.to_owned(), source };
        let text = fs::read(path).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|error| failed(error.into()))
    }

    pub fn write(&self, path: &Path) -> Result<(), TrainerFileError> {
        let failed = |source| TrainerFileError { path: path.to_owned(), source };
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        whole_file::write(path, text).map_err(failed)
    }

    /// Removes the file of an agent that has ended.
    pub fn remove(path: &Path) -> Result<(), TrainerFileError> {
        whole_file::remove(path)
            .map_err(|source| TrainerFileError { path: path.to_owned(), source })
    }
}
