//! Decides how operations are kept in flight: `io_uring` if this process may use it, threads
//! otherwise.
//!
//! `io_uring` is denied more often than it is missing: container runtimes filter the system call
//! (containerd since 1.7, Docker since 25), and administrators disable it by `sysctl`.

use std::fs;

use rustix::io::Errno;

use crate::ring;

/// How operations are kept in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// `io_uring` of the kernel.
    IoUring,
    /// One thread for each operation, and `pread`/`pwrite`.
    Threads,
}

impl Engine {
    /// `io_uring` if this process may use it, else threads.
    #[must_use]
    pub fn best() -> Self {
        io_uring_available().map_or(Self::Threads, |()| Self::IoUring)
    }
}

/// Why this process has no `io_uring`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The kernel was built without it, is older than Linux 5.1, or a filter answers like such a
    /// kernel.
    #[error(
        "the kernel has no io_uring, or a seccomp profile hides it; \
         use Linux 5.6 or later, built with CONFIG_IO_URING"
    )]
    NotInKernel,
    /// The administrator disabled it.
    #[error(
        "kernel.io_uring_disabled is {value}; `sysctl kernel.io_uring_disabled=0` allows it, \
         or 1 and membership in kernel.io_uring_group"
    )]
    Disabled {
        /// What `/proc/sys/kernel/io_uring_disabled` holds: 1 or 2.
        value: u32,
    },
    /// A filter of the container refuses the system call.
    #[error(
        "io_uring_setup is refused, most likely by the container's seccomp profile; \
         allow io_uring_setup, io_uring_enter and io_uring_register in it"
    )]
    Filtered,
    /// Before Linux 5.12 rings count as locked memory, and the limit is too low.
    #[error("a ring does not fit into the locked memory of this process; raise `ulimit -l`")]
    LockedMemory,
    /// The kernel has `io_uring`, but without reads and writes at an offset.
    #[error("the rings of this kernel lack the operations of Linux 5.6")]
    TooOld,
    /// The ring could not be set up for another reason.
    #[error("cannot set up a ring: {0}")]
    Setup(#[source] Errno),
}

/// Sets up a small ring and queries its operations.
///
/// # Errors
///
/// The reason why this process cannot use `io_uring`, with the fix.
pub fn io_uring_available() -> Result<(), Unavailable> {
    match ring::has_operations() {
        Ok(true) => Ok(()),
        Ok(false) => Err(Unavailable::TooOld),
        Err(error) => {
            Err(reason(Errno::from_io_error(&error).unwrap_or(Errno::IO), disabled_value()))
        }
    }
}

/// `None` before Linux 6.6, which has no such setting, and if `/proc` is hidden.
fn disabled_value() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

fn reason(error: Errno, disabled: Option<u32>) -> Unavailable {
    match (error, disabled) {
        (Errno::NOSYS, _) => Unavailable::NotInKernel,
        (Errno::PERM | Errno::ACCESS, Some(value)) if value > 0 => Unavailable::Disabled { value },
        (Errno::PERM | Errno::ACCESS, _) => Unavailable::Filtered,
        (Errno::NOMEM, _) => Unavailable::LockedMemory,
        _ => Unavailable::Setup(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(errno: Errno, disabled: Option<u32>, expected: &str) {
        let message = reason(errno, disabled).to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn each_refusal_of_the_kernel_names_its_fix() {
        check(Errno::NOSYS, None, "CONFIG_IO_URING");
        check(Errno::PERM, Some(2), "kernel.io_uring_disabled is 2");
        check(Errno::PERM, Some(1), "kernel.io_uring_group");
        check(Errno::PERM, Some(0), "seccomp");
        check(Errno::PERM, None, "seccomp");
        check(Errno::NOMEM, Some(0), "ulimit -l");
        check(Errno::MFILE, Some(0), "Too many open files");
    }

    #[test]
    fn the_best_engine_is_the_ring_where_there_is_one() {
        assert_eq!(Engine::best() == Engine::IoUring, io_uring_available().is_ok());
    }
}
