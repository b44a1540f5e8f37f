//! A sample that a ring reads: its file, its pieces, and its outcome.

use std::{
    fs::File,
    io, mem,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use tierfeed_core::units::Bytes;
use tierfeed_dataset::{Extent, format::Encoding};
use tierfeed_file_io::direct;
use tierfeed_numa_memory::cached;

use super::pending::{Buffering, FileRange, RUN_MAX};
use crate::fetcher::{Fetch, Target};
use tierfeed_dataset::read::{
    Version,
    file::{indexed_version, is_shared},
    open_files::open_direct,
};

#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: Arc<File>,
    /// The alignment of target addresses, in bytes; a power of two.
    memory: u64,
    /// The alignment of file offsets and lengths, in bytes; a power of two.
    pub(super) block: u64,
}

impl Direct {
    /// Opens a file for direct I/O.
    ///
    /// # Errors
    ///
    /// As `open(2)`, and [`io::ErrorKind::Unsupported`] if the file system has no direct I/O, or requires an
    /// alignment of more than a page.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_direct(path)?;
        let alignment = direct::alignment(&file)?.ok_or(io::ErrorKind::Unsupported)?;
        let (memory, block) = (alignment.memory.0, alignment.offset.0);
        let is_usual = |it: u64| it.is_power_of_two() && it <= direct_max();
        if !is_usual(memory) || !is_usual(block) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { file: Arc::new(file), memory, block })
    }

    fn buffering(&self, offset: u64, len: u64, place: u64) -> Buffering {
        let is_zero_copy = offset.is_multiple_of(self.block)
            && len.is_multiple_of(self.block)
            && place.is_multiple_of(self.memory.max(self.block));
        if is_zero_copy { Buffering::ZeroCopy } else { Buffering::Bounce }
    }

    /// Whether the page cache holds more than half of a range.
    pub(super) fn is_cached(&self, offset: u64, len: u64) -> bool {
        self.cached(offset, len).is_ok_and(|it| it.0 > len / 2)
    }

    pub(super) fn cached(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        cached(self.file.as_fd(), Bytes(offset), Bytes(len))
    }
}

fn direct_max() -> u64 {
    tierfeed_file_io::buffer::ALIGNMENT as u64
}

#[derive(Debug)]
pub(super) struct Sample {
    /// Taken when all pieces ended.
    fetch: Mutex<Option<Fetch>>,
    to: Target,
    pub(super) direct: Arc<Direct>,
    extent: Extent,
    left: AtomicU64,
    has_failed: AtomicBool,
}

/// A part of a sample, at most [`RUN_MAX`] long.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) sample: Arc<Sample>,
    /// From the start of the sample.
    pub(super) at: Bytes,
}

pub(super) enum Outcome {
    Unfinished,
    /// All bytes were read; the caller compares the version of the file with the index.
    Complete(Fetch),
    Failed(Fetch),
}

pub(super) fn is_for_ring(extent: &Extent, to: &Target) -> bool {
    is_plain_part(extent) && extent.len == to.len().0
}

pub(super) fn is_plain_part(extent: &Extent) -> bool {
    extent.encoding == Encoding::Plain && is_shared(extent) && extent.len > 0
}

/// Splits a sample into pieces; returns the fetch as an error if the page cache holds most of it.
pub(super) fn pieces(
    fetch: Fetch,
    extent: Extent,
    direct: Arc<Direct>,
) -> Result<Vec<(FileRange, Piece)>, Fetch> {
    let (from, len) = (extent.offset, extent.len);
    if direct.is_cached(from, len) {
        return Err(fetch);
    }
    let to = fetch.to.clone();
    let file = Arc::as_ptr(&direct.file).addr();
    let sample = Arc::new(Sample {
        fetch: Mutex::new(Some(fetch)),
        direct,
        extent,
        left: AtomicU64::new(len.div_ceil(RUN_MAX)),
        has_failed: AtomicBool::new(false),
        to,
    });
    let piece = |start: u64| {
        let len = (len - start).min(RUN_MAX);
        let offset = from + start;
        // Bytes that are summed must pass through memory that only this process maps.
        let buffering = match sample.to.direct() {
            Some((_, place)) => sample.direct.buffering(offset, len, place.0 + start),
            None => Buffering::Bounce,
        };
        let piece = Piece { sample: Arc::clone(&sample), at: Bytes(start) };
        (FileRange { file, offset, len, buffering }, piece)
    };
    Ok((0..len).step_by(usize::try_from(RUN_MAX).unwrap_or(usize::MAX)).map(piece).collect())
}

impl Sample {
    pub(super) fn to(&self) -> &Target {
        &self.to
    }

    /// Whether `found` is the version of the object that was indexed.
    pub(super) fn is_of(&self, found: Version) -> bool {
        found == indexed_version(&self.extent)
    }

    pub(super) fn path(&self) -> &Path {
        &self.extent.path
    }

    /// Counts a piece that ended; `is_there` says whether it was read.
    pub(super) fn piece_ended(&self, is_there: bool) -> Outcome {
        if !is_there {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        // `AcqRel`: the last thread sees all bytes that the others wrote.
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Outcome::Unfinished;
        }
        let fetch = mem::take(&mut *self.fetch.lock());
        match (fetch, self.has_failed.load(Ordering::Relaxed)) {
            (Some(fetch), false) => Outcome::Complete(fetch),
            (Some(fetch), true) => Outcome::Failed(fetch),
            (None, _) => Outcome::Unfinished,
        }
    }
}
