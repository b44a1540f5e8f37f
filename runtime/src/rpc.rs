//! Calls between manager, agents and commands: the messages, and the end that calls.

pub mod client;
pub mod wire;

use std::path::PathBuf;

/// A job as text, so that agents need no file of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobText {
    /// The name of the job.
    pub name: String,
    /// The content of the job file.
    pub text: String,
    /// Where the file is; relative paths in it start at its directory. Absolute.
    pub file: PathBuf,
    /// Of the dataset's index.
    pub index_fingerprint: u64,
}
