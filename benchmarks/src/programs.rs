//! The programs that an experiment starts.

use std::path::PathBuf;

/// The product, and the program that trains without computing.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// The `tierfeed` binary.
    pub tierfeed: PathBuf,
    /// The `tierfeed-bench` binary: its hidden commands are trainers and hostile clients.
    pub bench: PathBuf,
}
