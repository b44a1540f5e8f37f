//! The reference: one call for each sample, by as many threads.

use std::{
    fs::{File, OpenOptions},
    io,
    num::NonZeroUsize,
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use anyhow::{Context as _, anyhow};
use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_harness::clock::now;
use tierfeed_numa_memory::{Pages, Region, Request};

use super::{
    Folders,
    side::{Route, rate},
};

/// A disk is read and written past the page cache in units of this.
const BLOCK: u64 = 4096;

pub(super) struct Plain {
    from: Region,
    to: Region,
    threads: NonZeroUsize,
}

pub(super) struct Turns<'a> {
    plain: &'a Plain,
    file: Option<(File, Way)>,
    sample: Bytes,
    /// The distance between the starts of two samples: in a file they start on a block.
    stride: Bytes,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Write,
    Read,
}

impl Plain {
    pub(super) fn new(chunk: Bytes, threads: NonZeroUsize) -> anyhow::Result<Self> {
        let region = |name| {
            let (len, locality) = (chunk, Locality::Anywhere);
            Region::allocate(&Request { len, locality, name, pages: Pages::Huge })
        };
        Ok(Self { from: region("bench-from")?, to: region("bench-to")?, threads })
    }

    /// Makes the file of the route, if it has one, with all its bytes.
    pub(super) fn prepare(
        &self,
        folders: Folders<'_>,
        route: Route,
        sample: Bytes,
    ) -> anyhow::Result<Turns<'_>> {
        let (folder, way) = match route {
            Route::MemoryToMemory | Route::MemoryToStaging => {
                return Ok(Turns { plain: self, file: None, sample, stride: sample });
            }
            Route::MemoryToScratch => (folders.scratch, Way::Write),
            Route::ScratchToStaging => (folders.scratch, Way::Read),
            Route::MemoryToStorage => (folders.folder, Way::Write),
            Route::StorageToStaging => (folders.folder, Way::Read),
        };
        let is_disk = matches!(route, Route::MemoryToStorage | Route::StorageToStaging);
        let file = self.filled(folder, is_disk)?;
        let stride = Bytes(sample.0.next_multiple_of(BLOCK));
        Ok(Turns { plain: self, file: Some((file, way)), sample: stride, stride })
    }

    fn filled(&self, folder: &Path, is_disk: bool) -> anyhow::Result<File> {
        let path = folder.join("plain");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let open = |flags| options.clone().custom_flags(flags).open(&path);
        let file = if is_disk {
            // On a file system without this flag both sides use the page cache.
            open(libc::O_DIRECT).or_else(|_| open(0))
        } else {
            open(0)
        };
        let file = file.with_context(|| format!("{}", path.display()))?;
        self.from.write_to_file(Bytes(0), self.from.len(), file.as_fd(), Bytes(0))?;
        Ok(file)
    }
}

impl Turns<'_> {
    /// Copies as many samples as fit in the chunk. Returns bytes per second.
    pub(super) fn turn(&self) -> anyhow::Result<f64> {
        let count = self.plain.from.len().0 / self.stride.0;
        let next = AtomicU64::new(0);
        let start = now();
        thread::scope(|scope| {
            let work = || -> io::Result<()> {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return Ok(());
                    }
                    self.copy(Bytes(number * self.stride.0))?;
                }
            };
            let threads: Vec<_> =
                (0..self.plain.threads.get()).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| {
                let outcome = thread.join().map_err(|_| anyhow!("a thread panicked"))?;
                outcome.context("a plain copy failed")
            })
        })?;
        Ok(rate(count * self.sample.0, start))
    }

    fn copy(&self, at: Bytes) -> io::Result<()> {
        let Plain { from, to, .. } = self.plain;
        match &self.file {
            None => Ok(to.copy_from(at, from, at, self.sample)?),
            Some((file, Way::Write)) => from.write_to_file(at, self.sample, file.as_fd(), at),
            Some((file, Way::Read)) => {
                to.read_from_file(at, self.sample, file.as_fd(), at).map(drop)
            }
        }
    }
}
