//! Locks memory into main memory, or returns why the kernel refused.

use std::io;

use memmap2::MmapRaw;
use nix::sys::resource::{Resource, getrlimit};
use tierfeed_units::Bytes;

/// Why no memory was locked. The memory stays usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockRefusal {
    /// The process may lock less.
    #[error(
        "this process may lock {limit} in all, which {wanted} more would exceed; \
        raise `ulimit -l` or grant CAP_IPC_LOCK"
    )]
    Limit {
        /// Bytes that should be locked.
        wanted: Bytes,
        /// Bytes that the process may lock in total.
        limit: Bytes,
    },
    /// The process may lock nothing.
    #[error("this process may lock no memory: raise `ulimit -l` or grant CAP_IPC_LOCK")]
    Denied,
    /// Another error of `mlock(2)`.
    #[error("cannot lock {wanted} of memory")]
    System {
        /// Bytes that should be locked.
        wanted: Bytes,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
}

/// Locks a whole mapping.
pub(crate) fn lock(raw: &MmapRaw) -> Result<(), LockRefusal> {
    let wanted = Bytes(raw.len() as u64);
    raw.lock().map_err(|source| {
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK).map_or(u64::MAX, |(soft, _)| soft);
        refusal(source, wanted, Bytes(limit))
    })
}

fn refusal(source: io::Error, wanted: Bytes, limit: Bytes) -> LockRefusal {
    match source.raw_os_error() {
        Some(libc::EPERM) => LockRefusal::Denied,
        // The other meaning of `ENOMEM`, a hole in the range, is impossible: it is one mapping.
        // Without a limit the kernel had too many mappings.
        Some(libc::ENOMEM) if limit != Bytes(libc::RLIM_INFINITY) => {
            LockRefusal::Limit { wanted, limit }
        }
        _ => LockRefusal::System { wanted, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(errno: i32, limit: u64) -> LockRefusal {
        refusal(io::Error::from_raw_os_error(errno), Bytes::mib(10), Bytes(limit))
    }

    #[test]
    fn a_refusal_names_the_limit_where_that_is_the_reason() {
        let limit = refused(libc::ENOMEM, 8 << 20);
        assert!(matches!(limit, LockRefusal::Limit { limit, .. } if limit == Bytes::mib(8)));
        assert!(limit.to_string().contains("8 MiB"), "{limit}");
        let unlimited = refused(libc::ENOMEM, libc::RLIM_INFINITY);
        assert!(matches!(unlimited, LockRefusal::System { .. }));
        assert!(matches!(refused(libc::EPERM, 0), LockRefusal::Denied));
        assert!(matches!(refused(libc::EAGAIN, 8 << 20), LockRefusal::System { .. }));
    }
}
