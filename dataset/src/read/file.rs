//! Reads samples from files on a mounted file system.
//!
//! There is one `fstat` after the read, not before: it detects a change before and during the read,
//! at the price of a wasted read in a case that is an error anyway. Objects that hold one sample
//! are opened for it; objects that hold many stay open ([`super::open_files`]).
//!
//! The agent reads into staging memory, and a trainer without an agent reads into its own buffer:
//! both through [`FileSource::read_with`], so that both do the same checks.

use std::{
    fs::{self, File, Metadata},
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Extent, Index,
    format::{Encoding, FormatError, npz},
    index::mtime_ns,
};
use tierfeed_core::{id::SampleId, units::Bytes};
use tierfeed_numa_memory::{PageCache, cached, drop_pages};

use crate::read::{
    PartSource, ReadError, Source, Target, Version, extent_of,
    open_files::{OpenFiles, open, open_for_parts, open_known},
    page_cache::{Leave, PageCacheRoom},
    part_of,
};

#[derive(Debug)]
pub struct FileSource {
    index: Arc<Index>,
    open_files: OpenFiles,
    page_cache: PageCache,
    /// The part of the page cache that this job may fill.
    room: Option<Arc<PageCacheRoom>>,
}

impl FileSource {
    /// Reads the samples of `index` and keeps up to `files_max` shared objects open. The page cache
    /// is used as usual.
    #[must_use]
    pub fn new(index: Arc<Index>, files_max: usize) -> Self {
        let page_cache = PageCache::Keep;
        Self { index, open_files: OpenFiles::new(files_max, open), page_cache, room: None }
    }

    /// The same source; its reads to staging memory leave nothing in the page cache that was not
    /// there before, as far as the kernel supports it.
    #[must_use]
    pub fn past_page_cache(self) -> Self {
        Self { page_cache: PageCache::Drop, ..self }
    }

    /// The same source; its reads to staging memory and to tiers leave in the page cache what `room` takes.
    #[must_use]
    pub fn with_room(self, room: Arc<PageCacheRoom>) -> Self {
        let open_files = self.open_files.opened_with(open_for_parts);
        Self { page_cache: PageCache::Drop, room: Some(room), open_files, ..self }
    }

    /// Whether a read of `sample` to `to` is going to leave its pages in the page cache.
    #[must_use]
    pub fn leaves_pages(&self, sample: SampleId, to: &Target) -> bool {
        self.room.as_ref().is_some_and(|room| !to.is_kept() && room.has_room(sample, to.len()))
    }

    /// Notes that the page cache does not hold `sample`, which is read past it.
    pub fn note_read_past(&self, sample: SampleId) {
        if let Some(room) = &self.room {
            room.note_gone(sample, self.index.size(sample));
        }
    }

    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// Reads all bytes of `sample` into `buffer`, which must be exactly as long.
    ///
    /// For a process without a data plane: no thread, no staging memory.
    ///
    /// # Errors
    ///
    /// A [`ReadError`]; the content of `buffer` is invalid then.
    pub fn read_into(&self, sample: SampleId, buffer: &mut [u8]) -> Result<(), ReadError> {
        let place = Bytes(buffer.len() as u64);
        self.read_with(sample, place, |contents| match contents {
            Contents::File(file, offset) => read_to_end_of(buffer, file, offset),
            Contents::Memory(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(place)
            }
        })
    }

    /// Finds and checks the object of `sample` and lets `fill` read its bytes.
    ///
    /// `fill` returns the number of bytes that it read; fewer than `place` means that the file
    /// ended. A file that is kept open, one that is not there and one that its server forgot get a
    /// second try by name: the old descriptor may be of a file that was replaced by an equal one, and a
    /// file system may have come back.
    fn read_with(
        &self,
        sample: SampleId,
        place: Bytes,
        mut fill: impl FnMut(Contents<'_>) -> io::Result<Bytes>,
    ) -> Result<(), ReadError> {
        let extent = extent_of(&self.index, sample, place)?;
        let outcome = self.read_extent(&extent, &mut fill);
        match &outcome {
            Err(error) if is_shared(&extent) || needs_another_look(error) => {}
            _ => return outcome,
        }
        self.open_files.forget(&extent.path);
        let outcome = self.read_extent(&extent, &mut fill);
        if outcome.is_err() {
            self.open_files.forget(&extent.path);
        }
        outcome
    }

    fn read_extent(
        &self,
        extent: &Extent,
        fill: impl FnOnce(Contents<'_>) -> io::Result<Bytes>,
    ) -> Result<(), ReadError> {
        let failed = |error| io_failure(self.index.root(), extent, error);
        let object = if is_shared(extent) {
            self.open_files.get(&extent.path).map_err(failed)?
        } else {
            Arc::new(open(&extent.path).map_err(failed)?)
        };
        let read = match extent.encoding {
            Encoding::Plain => Ok(fill(Contents::File(&object, Bytes(extent.offset)))),
            Encoding::Deflate { len, crc32 } => match stored(&object, extent) {
                Err(error) => Ok(Err(error)),
                Ok(stored) => inflated(&stored, len, crc32).map(|it| fill(Contents::Memory(&it))),
            },
        };
        // Checked even if the read failed: a change of the object explains the failure.
        let metadata = object.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(ReadError::Vanished { path: extent.path.clone() });
        }
        let found = Version::of(&metadata);
        let needed = Bytes(extent.offset + extent.stored_len);
        if found.size < needed {
            return Err(ReadError::Truncated {
                path: extent.path.clone(),
                needed,
                found: found.size,
            });
        }
        let indexed = indexed_version(extent);
        let changed = || ReadError::Changed { path: extent.path.clone(), indexed, found };
        if found != indexed {
            return Err(changed());
        }
        let damaged = |source| ReadError::Damaged { path: extent.path.clone(), source };
        let read = read.map_err(damaged)?.map_err(failed)?;
        // A short read of a file that is long enough now: it grew meanwhile.
        if read.0 < extent.len { Err(changed()) } else { Ok(()) }
    }
}

impl Source for FileSource {
    fn read(&self, sample: SampleId, to: &Target) -> Result<(), ReadError> {
        let room = self.room.as_ref().filter(|_| !to.is_kept());
        let leave = room.map_or(Leave::NoRoom, |room| room.try_leave(sample, to.len()));
        let leaves_pages = leave != Leave::NoRoom;
        let page_cache = if leaves_pages { PageCache::Keep } else { self.page_cache };
        // What is compressed is read through the page cache in any case, and not counted.
        let mut served = None;
        let outcome = self.read_with(sample, to.len(), |contents| match contents {
            Contents::File(file, from) => {
                served = self.held(file, from, to.len());
                let read = to.read_from_file(file, from, page_cache)?;
                if !leaves_pages {
                    self.drop_left(sample, file, from, to.len());
                }
                Ok(read)
            }
            Contents::Memory(bytes) => to.write(Bytes(0), bytes).map(|()| to.len()),
        });
        if let Some(room) = &self.room {
            if leave == Leave::Now && (outcome.is_err() || served.is_none_or(|it| it == to.len())) {
                // Another program brought the pages, or there are none.
                room.note_gone(sample, to.len());
            }
            room.note_served(served.filter(|_| outcome.is_ok()).unwrap_or_default());
        }
        outcome
    }

    fn read_ready(&self, sample: SampleId, to: &Target) -> bool {
        let extent = extent_of(&self.index, sample, to.len()).ok();
        let Some(extent) = extent.filter(|it| it.encoding == Encoding::Plain) else { return false };
        let object = if is_shared(&extent) {
            self.open_files.get_open(&extent.path)
        } else {
            open_known(&extent.path).ok().map(Arc::new)
        };
        let Some(object) = object else { return false };
        let read = to.read_cached_from_file(&object, Bytes(extent.offset));
        let is_read = read.is_ok_and(|read| read == Some(to.len()))
            && version_of(&object).is_ok_and(|found| found == indexed_version(&extent));
        if let Some(room) = self.room.as_ref().filter(|_| is_read) {
            room.note_served(to.len());
            if to.is_kept() {
                self.drop_left(sample, &object, Bytes(extent.offset), to.len());
            }
        }
        is_read
    }

    fn drop_pages(&self, sample: SampleId) {
        if !self.room.as_ref().is_some_and(|room| room.is_left(sample)) {
            return;
        }
        let extent = self.index.extent(sample);
        let object = if is_shared(&extent) {
            self.open_files.get(&extent.path)
        } else {
            open(&extent.path).map(Arc::new)
        };
        if let Ok(object) = object {
            self.drop_left(sample, &object, Bytes(extent.offset), Bytes(extent.len));
        }
    }
}

impl PartSource for FileSource {
    fn read_part(
        &self,
        sample: SampleId,
        from: Bytes,
        buffer: &mut [u8],
    ) -> Result<usize, ReadError> {
        let samples = self.index.len();
        if sample.0 >= samples {
            return Err(ReadError::Unknown { sample, samples });
        }
        let extent = self.index.extent(sample);
        let part = part_of(&extent, from, buffer.len());
        let (offset, len) = (Bytes(part.start), Bytes(part.end - part.start));
        let failed = |error| io_failure(self.index.root(), &extent, error);
        let object = open_for_parts(&extent.path).map_err(failed)?;
        let is_held = cached(object.as_fd(), offset, len).is_ok_and(|held| held >= len);
        let read = read_to_end_of(&mut buffer[..in_memory(len.0)], &object, offset);
        let read = read.map_err(failed)?;
        if self.page_cache == PageCache::Drop && !is_held {
            drop_pages(object.as_fd(), offset, len);
        }
        let (found, indexed) = (version_of(&object).map_err(failed)?, indexed_version(&extent));
        if found != indexed || read != len {
            return Err(ReadError::Changed { path: extent.path.clone(), indexed, found });
        }
        Ok(in_memory(read.0))
    }
}

impl FileSource {
    /// Bytes of a sample that the page cache holds, as far as the kernel tells; `None` without a
    /// [`PageCacheRoom`].
    fn held(&self, object: &File, from: Bytes, len: Bytes) -> Option<Bytes> {
        self.room.as_ref()?;
        Some(cached(object.as_fd(), from, len).unwrap_or_default().min(len))
    }

    /// Drops the pages that reads of `sample` left, if they did.
    fn drop_left(&self, sample: SampleId, object: &File, from: Bytes, len: Bytes) {
        if self.room.as_ref().is_some_and(|room| room.note_gone(sample, len)) {
            drop_pages(object.as_fd(), from, len);
        }
    }
}

enum Contents<'a> {
    File(&'a File, Bytes),
    /// In memory, because they had to be decoded.
    Memory(&'a [u8]),
}

pub fn is_shared(extent: &Extent) -> bool {
    extent.stored_len < extent.object_size
}

/// The stored bytes of a sample, fewer if its object ends before.
fn stored(object: &File, extent: &Extent) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; in_memory(extent.stored_len)];
    let read = read_to_end_of(&mut bytes, object, Bytes(extent.offset))?;
    bytes.truncate(in_memory(read.0));
    Ok(bytes)
}

fn inflated(stored: &[u8], len: u64, crc32: u32) -> Result<Vec<u8>, FormatError> {
    let mut bytes = vec![0; in_memory(len)];
    npz::inflate(stored, len, crc32, &mut bytes)?;
    Ok(bytes)
}

fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a sample that is read fits in memory")
}

/// The error for a failed system call: only if the file system is there, a missing file counts as gone.
fn io_failure(root: &Path, extent: &Extent, error: io::Error) -> ReadError {
    let path = extent.path.clone();
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ENOTDIR) => match missing_directory(root, &path) {
            Some(directory) => ReadError::Away { path, directory },
            None => ReadError::Vanished { path },
        },
        _ => ReadError::Io { path, source: error },
    }
}

/// The directory whose absence explains that `path` is not there: its own if that is missing, or the root of
/// the dataset if it is empty, as after its file system was unmounted.
fn missing_directory(root: &Path, path: &Path) -> Option<PathBuf> {
    let own = path.parent()?;
    if !own.is_dir() {
        return Some(own.to_owned());
    }
    let is_empty = root.is_dir() && !fs::read_dir(root).is_ok_and(|mut it| it.next().is_some());
    is_empty.then(|| root.to_owned())
}

/// Whether opening the file by its name once more may succeed: a file server forgets files that are open
/// (`ESTALE`), and a directory comes back.
fn needs_another_look(error: &ReadError) -> bool {
    match error {
        ReadError::Vanished { .. } | ReadError::Away { .. } => true,
        ReadError::Io { source, .. } => source.raw_os_error() == Some(libc::ESTALE),
        _ => false,
    }
}

pub fn indexed_version(extent: &Extent) -> Version {
    Version { size: Bytes(extent.object_size), mtime_ns: extent.object_mtime_ns }
}

pub fn version_of(file: &File) -> io::Result<Version> {
    Ok(Version::of(&file.metadata()?))
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self { size: Bytes(metadata.len()), mtime_ns: mtime_ns(metadata) }
    }
}

/// Fills `buffer` from `offset` of `file` on; returns less than its length only at the end of the
/// file.
fn read_to_end_of(buffer: &mut [u8], file: &File, offset: Bytes) -> io::Result<Bytes> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset.0 + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(Bytes(done as u64))
}

#[cfg(test)]
mod tests;
