//! The limits under which a training runs: memory, and the disk that it reads from.

use std::{
    path::Path,
    process::{Child, Command, ExitStatus},
    time::Duration,
};

use anyhow::ensure;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    cgroup,
    clock::{now, pause},
    memory_group::MemoryGroup,
    slow_disk::SlowDisk,
};

/// Between two looks at what a training holds.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A training that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(900);

/// Processes that outlive their training have so long to end.
const REST: Duration = Duration::from_secs(20);

/// Where a training runs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Machine<'a> {
    /// The disk whose reads are limited, with what it holds.
    pub(crate) disk: Option<&'a SlowDisk>,
    /// The most memory, page cache included; `None` for all of the machine.
    pub(crate) memory: Option<Bytes>,
}

/// What a process and its children used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// The most memory at a time, without page cache.
    pub(crate) memory: Bytes,
    /// Read from the slow disk, with metadata.
    pub(crate) read: Bytes,
}

impl Machine<'_> {
    /// Runs `program` with what `arrange` gives it, and waits until it and its children are gone. The page cache of
    /// the slow disk is empty at the start.
    ///
    /// # Errors
    ///
    /// If a group cannot be made (this needs root), or the program fails or hangs.
    pub(crate) fn run(
        &self,
        program: &Path,
        arrange: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Used> {
        let memory = MemoryGroup::make()?;
        if let Some(limit) = self.memory {
            memory.limit(limit)?;
        }
        let mut groups = vec![memory.path()];
        let mut before = Bytes(0);
        if let Some(disk) = self.disk {
            disk.forget_cached()?;
            before = disk.read()?;
            groups.push(disk.group());
        }
        let mut command = cgroup::command_in_all(&groups, program);
        arrange(&mut command);
        let (status, most) = watch(command.spawn()?, &memory)?;
        let ended = memory.wait_until_empty(REST);
        ensure!(status.success(), "{} failed ({status})", program.display());
        ensure!(ended, "processes of {} did not end within {REST:?}", program.display());
        let read = self.disk.map(SlowDisk::read).transpose()?.unwrap_or(before);
        Ok(Used { memory: most, read: Bytes(read.0 - before.0) })
    }
}

/// Waits for a process, and returns the most that its group held meanwhile.
fn watch(mut child: Child, group: &MemoryGroup) -> anyhow::Result<(ExitStatus, Bytes)> {
    let (start, mut most) = (now(), Bytes(0));
    loop {
        most = most.max(group.held());
        if let Some(status) = child.try_wait()? {
            return Ok((status, most));
        }
        if now() - start > PATIENCE {
            group.kill()?;
            child.wait()?;
            anyhow::bail!("it did not end within {PATIENCE:?}");
        }
        pause(LOOK_EVERY);
    }
}
