//! The limits under which a training runs: memory, and the disk that it reads from.

use std::{
    error::Error,
    fmt,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use anyhow::ensure;
use tierfeed_core::units::Bytes;
use tierfeed_harness::{
    clock::{now, pause},
    memory_group::MemoryGroup,
    slow_disk::SlowDisk,
};

/// Time between two looks at the memory of a training.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A training that takes longer counts as hanging.
const PATIENCE: Duration = Duration::from_secs(900);

/// Time for processes that outlive their training to end.
const REST: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Machine<'a> {
    /// The disk whose reads are limited, with what it holds.
    pub(crate) disk: Option<&'a SlowDisk>,
    /// A second path under which only its own processes see the disk, so that all nodes of a training see
    /// their own disk at one path.
    pub(crate) seen_at: Option<&'a Path>,
    /// The most memory, page cache included; `None` for all of the machine.
    pub(crate) memory: Option<Bytes>,
    /// The most page cache, however much memory the processes have. It holds as soon as the file exists that
    /// says that all of them have started.
    pub(crate) page_cache: Option<(Bytes, &'a Path)>,
}

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
    /// If a group cannot be made (this needs root), or the program fails or hangs; [`OutOfMemory`] if the kernel killed
    /// one of its processes.
    pub(crate) fn run(
        &self,
        program: &Path,
        arrange: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Used> {
        let mut running = [self.start(program, arrange)?];
        let watched = watch(&mut running);
        let [ended] = running;
        if ended.memory.has_killed() {
            return Err(OutOfMemory.into());
        }
        watched?;
        ended.end()
    }

    /// Runs `program` on all machines at a time, each as [`Machine::run`] does; `arrange` gets the number of
    /// the machine. Where one fails, the others are killed.
    ///
    /// # Errors
    ///
    /// Those of [`Machine::run`].
    pub(crate) fn run_all(
        machines: &[Self],
        program: &Path,
        mut arrange: impl FnMut(usize, &mut Command),
    ) -> anyhow::Result<Vec<Used>> {
        let mut running = Vec::new();
        let started = machines.iter().enumerate().try_for_each(|(number, machine)| {
            running.push(machine.start(program, |command| arrange(number, command))?);
            Ok(())
        });
        started.and_then(|()| watch(&mut running))?;
        running.into_iter().map(Running::end).collect()
    }

    fn start(
        &self,
        program: &Path,
        arrange: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Running<'_>> {
        let memory = MemoryGroup::make(self.disk)?;
        if let Some(limit) = self.memory {
            memory.limit(limit)?;
        }
        let mut before = Bytes(0);
        if let Some(disk) = self.disk {
            disk.forget_cached()?;
            before = disk.read()?;
        }
        let mut command = match (self.disk, self.seen_at) {
            (Some(disk), Some(place)) => {
                // A name space of its own, where the disk is mounted there too.
                let mut command = memory.enter("unshare".as_ref());
                let mount = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
                command.args(["--mount", "sh", "-c", mount]).arg(disk.path()).arg(place);
                command.arg(program);
                command
            }
            _ => memory.enter(program),
        };
        arrange(&mut command);
        let child = command.spawn()?;
        let Self { disk, page_cache, .. } = *self;
        Ok(Running { child, memory, disk, before, most: Bytes(0), page_cache })
    }
}

/// The memory of a machine was too small for a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the kernel killed a process because its control group had no memory left")
    }
}

impl Error for OutOfMemory {}

struct Running<'a> {
    child: Child,
    memory: MemoryGroup,
    disk: Option<&'a SlowDisk>,
    /// Read from the disk before the program started.
    before: Bytes,
    most: Bytes,
    page_cache: Option<(Bytes, &'a Path)>,
}

impl Drop for Running<'_> {
    /// Ends processes that are still running where a program failed.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_)))
            || !self.memory.wait_until_empty(Duration::ZERO)
        {
            let _ = self.memory.kill();
            let _ = self.child.wait();
            self.memory.wait_until_empty(REST);
        }
    }
}

impl Running<'_> {
    fn end(self) -> anyhow::Result<Used> {
        ensure!(self.memory.wait_until_empty(REST), "its processes did not end within {REST:?}");
        ensure!(self.most > Bytes(0), "its control group saw none of its memory");
        let read = self.disk.map(SlowDisk::read).transpose()?.unwrap_or(self.before);
        let read = Bytes(read.0 - self.before.0);
        Ok(Used { memory: self.most, read })
    }
}

/// Waits until all programs have ended well, and notes the most memory of each; fails with the first that fails.
fn watch(running: &mut [Running<'_>]) -> anyhow::Result<()> {
    let start = now();
    loop {
        let mut are_all_ended = true;
        for it in running.iter_mut() {
            it.most = it.most.max(it.memory.held());
            if let Some((room, since)) = it.page_cache
                && since.exists()
            {
                it.memory.trim_page_cache(room)?;
            }
            match it.child.try_wait()? {
                None => are_all_ended = false,
                Some(status) => ensure!(status.success(), "it failed ({status})"),
            }
        }
        if are_all_ended {
            return Ok(());
        }
        if now() - start > PATIENCE {
            anyhow::bail!("it did not end within {PATIENCE:?}");
        }
        pause(LOOK_EVERY);
    }
}
