//! The limit of open file descriptors of this process (`RLIMIT_NOFILE`).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the soft limit to the hard one. Every chunk, open file and connection is a descriptor, and the
/// usual soft limit is 1024.
pub(crate) fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}
