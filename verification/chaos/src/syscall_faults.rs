//! System calls that fail: strace is attached to a running process, lets chosen calls return errors, and logs
//! each one.
//!
//! `mmap` and `clone3` are left out: their failure ends almost any process, because allocators abort without
//! memory and the runtime aborts without threads.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::role::Role;

/// System calls of an agent that fail: their names, the error, and the selection of calls, as strace's
/// `when`.
const OF_AGENT: [(&str, &str, &str); 12] = [
    ("fallocate", "ENOSPC", "1+2"),
    ("fallocate", "EINTR", "1+2"),
    ("memfd_create", "EMFILE", "1+1"),
    ("openat", "EMFILE", "1+3"),
    ("openat", "EIO", "2+5"),
    ("pread64,preadv,preadv2,read", "EINTR", "3+5"),
    ("pread64,preadv,preadv2", "EIO", "3+9"),
    ("pwrite64,pwritev,pwritev2", "ENOSPC", "1+2"),
    ("io_uring_enter", "EINTR", "1+2"),
    ("accept4", "EMFILE", "1+2"),
    ("recvmsg,sendmsg,epoll_wait,epoll_pwait", "EINTR", "1+4"),
    ("statfs,fstatfs,statx,newfstatat", "EIO", "1+3"),
];

/// As [`OF_AGENT`], for a manager, which makes so few calls that all of these fail at a time.
const OF_MANAGER: [(&str, &str, &str); 4] = [
    ("accept4", "EMFILE", "1+2"),
    ("openat", "EMFILE", "1+2"),
    ("read,recvfrom,sendto,epoll_wait,epoll_pwait", "EINTR", "1+4"),
    ("fallocate,fsync,rename,renameat,renameat2", "ENOSPC", "1+1"),
];

/// System calls of one process fail until this ends.
#[derive(Debug)]
pub(crate) struct SyscallFaults {
    strace: Child,
    log: PathBuf,
}

impl SyscallFaults {
    /// `Err` with the reason if system calls cannot be made to fail here.
    pub(crate) fn are_possible() -> Result<(), String> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "true"]);
        match strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err("strace may not trace here".to_owned()),
            Err(error) => Err(format!("strace: {error}")),
        }
    }

    /// Makes system calls of process `pid`, which has `role`, fail.
    pub(crate) fn begin(role: Role, pid: u32, log: PathBuf, target: u64) -> anyhow::Result<Self> {
        let at = usize::try_from(target % OF_AGENT.len() as u64).unwrap_or_default();
        let failing = if role == Role::Manager { &OF_MANAGER[..] } else { &OF_AGENT[at..=at] };
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-p", &pid.to_string(), "-o"]).arg(&log);
        let traced: Vec<_> = failing.iter().map(|(calls, ..)| *calls).collect();
        strace.args(["-e", &format!("trace={}", traced.join(",")), "-e", "signal=none"]);
        for (calls, error, which) in failing {
            strace.args(["-e", &format!("inject={calls}:error={error}:when={which}")]);
        }
        let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let strace = strace.spawn().context("cannot start strace")?;
        Ok(Self { strace, log })
    }

    /// Ends the faults. Returns the number of failed calls, by call and error.
    pub(crate) fn end(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        // On SIGTERM strace detaches from the process, unless the process has ended and strace with it.
        if self.strace.try_wait()?.is_none() {
            kill(Pid::from_raw(i32::try_from(self.strace.id())?), Signal::SIGTERM)?;
        }
        self.strace.wait()?;
        let failed = failed(&fs::read_to_string(&self.log).unwrap_or_default());
        // There is no log if strace found no process.
        let _ = fs::remove_file(&self.log);
        Ok(failed)
    }
}

impl Drop for SyscallFaults {
    fn drop(&mut self) {
        // An error means that it ended before.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

fn failed(log: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in log.lines().filter(|line| line.ends_with("(INJECTED)")) {
        // `PID call(…) = -1 ERROR (…) (INJECTED)`, or `PID <... call resumed>…` with the same end.
        let text = line.split_once(' ').map_or("", |(_, text)| text.trim_start());
        let text = text.strip_prefix("<... ").unwrap_or(text);
        let call = text.split(['(', ' ']).next().unwrap_or_default();
        let error = line.rsplit_once(" = -1 ").and_then(|(_, error)| error.split(' ').next());
        *counts.entry(format!("{call} {}", error.unwrap_or("?"))).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injected_failures_are_counted() {
        let log = "7  fallocate(9, 0, 0, 262144) = -1 ENOSPC (No space left on device) (INJECTED)\n\
                   8  openat(AT_FDCWD, \"x (INJECTED)\", O_RDONLY) = 5\n\
                   8  <... read resumed>0x7f, 4) = -1 EINTR (Interrupted system call) (INJECTED)\n\
                   9  fallocate(9, 0, 0, 262144) = -1 ENOSPC (No space left on device) (INJECTED)\n\
                   9  fallocate(9, 0, 0, 262144) = -1 ENOSPC (No space left on device)\n";
        let expected = [("fallocate ENOSPC".to_owned(), 2), ("read EINTR".to_owned(), 1)];
        assert_eq!(failed(log), BTreeMap::from(expected));
    }
}
