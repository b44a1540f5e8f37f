//! Closes the system calls by which a process reaches beyond its memory and its descriptors.
//!
//! What is not listed stays open: a list of what is allowed would end workers with the next version of the C
//! library. Files are refused and do not end the process, because libraries look for some that need not be there.

use std::{collections::BTreeMap, env::consts::ARCH, io};

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompFilter, TargetArch, apply_filter,
};

/// Names in a file system.
const FILES: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_open_by_handle_at,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
];

/// Sockets, programs, other processes, changes of file systems, and large parts of the kernel.
const FORBIDDEN: &[i64] = &[
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_getfd,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_prlimit64,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_fchmodat,
    libc::SYS_fchownat,
    libc::SYS_truncate,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_shmget,
    libc::SYS_msgget,
    libc::SYS_semget,
    libc::SYS_mq_open,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_io_uring_setup,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_inotify_init1,
    libc::SYS_fanotify_init,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mkdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rmdir,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_mknod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_link,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_symlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
];

/// The system calls of x32 programs: these bits with the number of x86-64, and those with numbers of their own.
#[cfg(target_arch = "x86_64")]
const X32: (i64, [i64; 7]) = (0x4000_0000, [520, 521, 524, 536, 539, 540, 545]);

/// Why the system calls cannot be closed.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The filter cannot be built.
    #[error(transparent)]
    Build(#[from] BackendError),
    /// The kernel refuses it.
    #[error(transparent)]
    Refused(Error),
}

/// Closes them for this thread and those that it starts. Also forbids it to gain privileges.
///
/// # Errors
///
/// [`FilterError`]; a kernel without filters of system calls is no error.
pub(super) fn close() -> Result<(), FilterError> {
    // The process ends at the first of these calls, so the filter that refuses comes first.
    for (calls, action) in [
        (FILES, SeccompAction::Errno(libc::EACCES.cast_unsigned())),
        (FORBIDDEN, SeccompAction::KillProcess),
    ] {
        match apply_filter(&filter(calls, action)?) {
            Err(Error::Prctl(error) | Error::Seccomp(error)) if is_unknown(&error) => return Ok(()),
            applied => applied.map_err(FilterError::Refused)?,
        }
    }
    Ok(())
}

fn filter(calls: &[i64], action: SeccompAction) -> Result<BpfProgram, BackendError> {
    let rules: BTreeMap<_, _> = with_x32(calls).into_iter().map(|call| (call, vec![])).collect();
    SeccompFilter::new(rules, SeccompAction::Allow, action, TargetArch::try_from(ARCH)?)?.try_into()
}

#[cfg(target_arch = "x86_64")]
fn with_x32(calls: &[i64]) -> Vec<i64> {
    let (bit, own) = X32;
    let twins = calls.iter().chain(&own).map(|call| call | bit);
    calls.iter().copied().chain(twins).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn with_x32(calls: &[i64]) -> Vec<i64> {
    calls.to_vec()
}

/// Whether the kernel was built without filters.
fn is_unknown(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}
