//! Calls between manager, agents and commands: the messages and the client.

pub mod client;
pub mod wire;

use std::path::PathBuf;

use tierfeed_core::order::World;

/// A job as text: agents need no copy of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobText {
    /// The name of the job.
    pub name: String,
    /// The content of the job file.
    pub text: String,
    /// The absolute path of the file; relative paths in it start at its directory.
    pub file: PathBuf,
    /// The fingerprint of the dataset's index.
    pub index_fingerprint: u64,
    /// Those of the datasets beside it.
    pub further_fingerprints: Vec<u64>,
    /// Its world, of which the text may leave out what the launcher of the manager tells.
    pub world: World,
}

impl JobText {
    /// The fingerprints of the indexes of all datasets, that of the first one first.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<u64> {
        [self.index_fingerprint]
            .into_iter()
            .chain(self.further_fingerprints.iter().copied())
            .collect()
    }
}
