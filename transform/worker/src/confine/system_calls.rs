//! Closes the system calls by which a process reaches beyond its memory and its descriptors.
//!
//! Three lists: calls that end the process, calls that are refused because libraries look for files that need
//! not be there, and calls that stay open. All others are answered as by a kernel that does not know them,
//! which libraries can handle: so the next version of the C library ends no worker.

use std::{collections::BTreeMap, env::consts::ARCH, fs, process};

use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCmpArgLen as Width,
    SeccompCmpOp::{self, Eq, Ne},
    SeccompCondition, SeccompFilter, SeccompRule, TargetArch, apply_filter,
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

/// Memory, time, signals, what is there already, and the end.
const OPEN: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_membarrier,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_ppoll,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_getcpu,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_setitimer,
    libc::SYS_getrusage,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_prctl,
    libc::SYS_exit,
    libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_alarm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_time,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_dup2,
];

/// Sockets, programs, other processes, changes of file systems and of the host, and large parts of the
/// kernel.
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
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_unlinkat,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
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
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_quotactl,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_setpriority,
    libc::SYS_ioprio_set,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
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
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];

/// Newer than the C library's list; the same number on every architecture.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;

/// No name: the call is about the descriptor.
const AT_EMPTY_PATH: u32 = 0x1000;

/// Commands of `fcntl` that name the process which a descriptor signals, and the signal.
const OWNER_COMMANDS: [u32; 3] = [8, 15, 10];

/// An argument of a call, by its position, and what it must not be.
type Argument = (u8, SeccompCmpOp, u32);

/// Calls that are forbidden with one such argument: signals to another process. `abort` sends one to its own.
fn forbidden_with() -> [(i64, Vec<Argument>); 2] {
    [
        (libc::SYS_tgkill, vec![(0, Ne, process::id())]),
        (libc::SYS_fcntl, OWNER_COMMANDS.map(|it| (1, Eq, it)).to_vec()),
    ]
}

/// The bit by which the system calls of x32 programs differ from those of x86-64.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// Those of them that have numbers of their own: `execve`, `ptrace`, signals, memory of others, `ioctl`.
#[cfg(target_arch = "x86_64")]
const X32_ONLY: [i64; 8] = [514, 520, 521, 524, 536, 539, 540, 545];

#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    #[error(transparent)]
    Build(#[from] BackendError),
    #[error(transparent)]
    Refused(Error),
}

/// Whether the kernel was built with filters of system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Support {
    Known,
    Missing,
}

impl Support {
    /// Reads a file, so it comes before the file system is closed.
    pub(super) fn read() -> Self {
        match fs::read_to_string("/proc/self/status") {
            Ok(status) if status.contains("\nSeccomp:") => Self::Known,
            _ => Self::Missing,
        }
    }
}

/// Closes the calls for this thread and those that it starts. Also forbids this thread to gain privileges.
///
/// # Errors
///
/// [`FilterError`]; a kernel that refuses filters because it has none is no error.
pub(super) fn close(support: Support) -> Result<(), FilterError> {
    let refuse = |error: i32| SeccompAction::Errno(error.cast_unsigned());
    // Of several answers the gravest counts. The last filter leaves no more room for others.
    for (rules, listed, others) in [
        (with_x32(always(FILES)), refuse(libc::EACCES), SeccompAction::Allow),
        (with_x32(forbidden()?), SeccompAction::KillProcess, SeccompAction::Allow),
        (open()?, SeccompAction::Allow, refuse(libc::ENOSYS)),
    ] {
        let target = TargetArch::try_from(ARCH)?;
        let filter: BpfProgram = SeccompFilter::new(rules, others, listed, target)?.try_into()?;
        match apply_filter(&filter) {
            Err(Error::Prctl(_) | Error::Seccomp(_)) if support == Support::Missing => {
                return Ok(());
            }
            applied => applied.map_err(FilterError::Refused)?,
        }
    }
    Ok(())
}

/// System calls and the arguments that the filter acts on: on any, if none is listed.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn always(calls: &[i64]) -> Rules {
    calls.iter().map(|call| (*call, vec![])).collect()
}

/// The calls that stay open, and those that the filter before refuses.
fn open() -> Result<Rules, BackendError> {
    let mut rules = always(OPEN);
    rules.append(&mut always(FILES));
    // The C library asks so for the length of an open file.
    rules.insert(libc::SYS_newfstatat, vec![rule((3, Eq, AT_EMPTY_PATH))?]);
    Ok(rules)
}

fn forbidden() -> Result<Rules, BackendError> {
    let mut rules = always(FORBIDDEN);
    for (call, arguments) in forbidden_with() {
        rules.insert(call, arguments.into_iter().map(rule).collect::<Result<_, _>>()?);
    }
    #[cfg(target_arch = "x86_64")]
    rules.extend(X32_ONLY.map(|call| (call | X32, vec![])));
    Ok(rules)
}

fn rule((position, compared, with): Argument) -> Result<SeccompRule, BackendError> {
    let condition = SeccompCondition::new(position, Width::Dword, compared, with.into())?;
    SeccompRule::new(vec![condition])
}

/// Adds the numbers of x32 programs.
fn with_x32(mut rules: Rules) -> Rules {
    #[cfg(target_arch = "x86_64")]
    for (call, arguments) in rules.clone() {
        rules.entry(call | X32).or_insert(arguments);
    }
    rules
}
