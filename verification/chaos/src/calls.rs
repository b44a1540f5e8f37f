//! System calls that fail: strace is attached to a part that runs, lets chosen calls answer as a kernel on a
//! bad day would, and writes down each that did.
//!
//! Left out are calls whose failure ends any process that is not written for nothing else: `mmap`, because
//! allocators end a process without memory, and `clone3`, because the runtime does so without threads.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::Context as _;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::part::Part;

/// What fails in an agent: calls, the error, and which of them.
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

const OF_MANAGER: [(&str, &str, &str); 4] = [
    ("accept4", "EMFILE", "1+2"),
    ("openat", "EMFILE", "1+2"),
    ("read,recvfrom,sendto,epoll_wait,epoll_pwait", "EINTR", "1+4"),
    ("fallocate,fsync,rename,renameat,renameat2", "ENOSPC", "1+1"),
];

/// A part in which calls fail until this ends.
#[derive(Debug)]
pub(crate) struct Failing {
    strace: Child,
    log: PathBuf,
}

impl Failing {
    /// Why no calls can be made to fail here.
    pub(crate) fn is_impossible() -> Option<String> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "true"]);
        match strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Ok(status) if status.success() => None,
            Ok(_) => Some("strace may not trace here".to_owned()),
            Err(error) => Some(format!("strace: {error}")),
        }
    }

    /// Lets calls of `part`, which is process `pid`, fail.
    pub(crate) fn begin(part: Part, pid: u32, log: PathBuf, victim: u64) -> anyhow::Result<Self> {
        let table = if part == Part::Manager { &OF_MANAGER[..] } else { &OF_AGENT };
        let at = usize::try_from(victim % table.len() as u64).unwrap_or_default();
        let (calls, error, which) = table[at];
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-p", &pid.to_string(), "-o"]).arg(&log);
        strace.args(["-e", &format!("trace={calls}"), "-e", "signal=none"]);
        strace.args(["-e", &format!("inject={calls}:error={error}:when={which}")]);
        let strace = strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let strace = strace.spawn().context("cannot start strace")?;
        Ok(Self { strace, log })
    }

    /// Lets them work again. How many of each failed.
    pub(crate) fn end(mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        // It lets go of the process before it ends, unless it has ended with it.
        if self.strace.try_wait()?.is_none() {
            kill(Pid::from_raw(i32::try_from(self.strace.id())?), Signal::SIGTERM)?;
        }
        self.strace.wait()?;
        let failed = failed(&fs::read_to_string(&self.log).unwrap_or_default());
        remove(&self.log);
        Ok(failed)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        // An error means that it ended before.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

fn remove(log: &Path) {
    // It is not there if strace found no process.
    let _ = fs::remove_file(log);
}

/// How many calls failed on purpose, by call and error.
fn failed(log: &str) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for line in log.lines().filter(|line| line.ends_with("(INJECTED)")) {
        // `PID call(…) = -1 ERROR (…) (INJECTED)`, or `PID <... call resumed>…` with the same end.
        let said = line.split_once(' ').map_or("", |(_, said)| said.trim_start());
        let said = said.strip_prefix("<... ").unwrap_or(said);
        let call = said.split(['(', ' ']).next().unwrap_or_default();
        let error = line.rsplit_once(" = -1 ").and_then(|(_, error)| error.split(' ').next());
        *counts.entry(format!("{call} {}", error.unwrap_or("?"))).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_failed_on_purpose_are_counted() {
        let log = "7  fallocate(9, 0, 0, 262144) = -1 ENOSPC (No space left on device) (INJECTED)\n\
                   8  openat(AT_FDCWD, \"x (INJECTED)\", O_RDONLY) = 5\n\
                   8  <... read resumed>0x7f, 4) = -1 EINTR (Interrupted system call) (INJECTED)\n\
                   9  fallocate(9, 0, 0, 262144) = -1 ENOSPC (No space left on device) (INJECTED)\n\
                   9  fallocate(9, 0, 0, 262144) = -1 ENOSPC (No space left on device)\n";
        let expected = [("fallocate ENOSPC".to_owned(), 2), ("read EINTR".to_owned(), 1)];
        assert_eq!(failed(log), BTreeMap::from(expected));
    }
}
