//! A chunk on a disk: a write buffer in front of direct I/O.
//!
//! The session allocates disk space as a log, so samples that arrive in sequence are adjacent. They are
//! buffered in memory, in windows of the file, and a full window is written with one request. Large
//! sequential writes wear flash least, and direct I/O does not fill the page cache. A sample that is still
//! in a window is read from memory.
//!
//! A window that is not full is written only when its memory is needed for another one. Nothing is written
//! for durability: an unnamed file does not survive a crash.
//!
//! Where the file system refuses `O_DIRECT`, writes go through the page cache, and the kernel is told to
//! write these pages out and drop them.
//!
//! Invariants:
//!
//! 1. Written bytes are read back, from memory or from the file, until they are overwritten.
//! 2. All windows of a tier take at most [`windows::WINDOWS_MAX`] times [`WINDOW`] of memory, or one window
//!    if a control group has no room for more.
//! 3. Bytes of the file outside of the written ranges do not change.
//! 4. A reader detects a failed write: the bytes do not match their checksum.

mod windows;

use std::{
    fs::File,
    io,
    ops::Range,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    sync::Arc,
};

use parking_lot::{RwLock, RwLockWriteGuard};
use rangemap::RangeSet;
use tierfeed_core::units::Bytes;
use tierfeed_file_io::{
    AlignedBuffer,
    direct::{self, Caching},
};
use tierfeed_numa_memory::{Checksum, Mapping, PageCache, Stores};

use super::bounce::Bounce;

use self::windows::{Memory, OpenWindow};
pub(crate) use self::windows::{WINDOW, Windows};

/// The smallest unit of direct I/O, even if the disk accepts less.
const BLOCK_MIN: u64 = 4096;

/// The longest range that one request reads from the file.
const READ_MAX: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct DiskChunk {
    file: File,
    len: Bytes,
    /// Offsets and lengths of direct I/O are multiples of it; `None` without direct I/O.
    block: Option<u64>,
    parts: Vec<RwLock<WindowState>>,
    windows: Arc<Windows>,
}

/// The part of a window that is only in memory.
#[derive(Debug, Default)]
struct WindowState {
    memory: Option<Memory>,
    filled: RangeSet<u64>,
}

#[derive(Debug, Clone, Copy)]
struct WindowRange {
    part: usize,
    /// From the start of the window.
    start: u64,
    len: u64,
    /// From the start of the range that is read or written.
    done: u64,
}

impl DiskChunk {
    /// `file` has `len` bytes allocated and no content yet.
    pub(crate) fn new(file: File, len: Bytes, windows: &Arc<Windows>) -> Self {
        let block = direct_block(&file, len);
        if block.is_none() {
            // The flag may be set although access is refused; buffered I/O needs it cleared.
            let _ = direct::set_caching(&file, Caching::Used);
        }
        let parts = (0..len.0.div_ceil(WINDOW)).map(|_| RwLock::default()).collect();
        Self { file, len, block, parts, windows: Arc::clone(windows) }
    }

    pub(crate) fn is_direct(&self) -> bool {
        self.block.is_some()
    }

    /// Writes `len` bytes of `origin` at `offset`, into the write buffer; adds them to `sum`.
    ///
    /// # Errors
    ///
    /// If there is no memory for a window, or an address is out of range. A failed write to the disk is only
    /// counted in [`Windows`], because it may concern other samples.
    pub(crate) fn write(
        self: &Arc<Self>,
        offset: Bytes,
        (origin, from): (&Mapping, Bytes),
        len: Bytes,
        mut sum: Option<&mut Checksum>,
    ) -> io::Result<()> {
        self.write_with(offset, len, |memory, at, done, len| {
            let from = Bytes(from.0 + done);
            match sum.as_deref_mut() {
                Some(sum) => {
                    memory.copy_from_summed(at, origin, from, len, Stores::Cached, sum)?;
                }
                None => memory.copy_from(at, origin, from, len)?,
            }
            Ok(())
        })
    }

    /// As [`Self::write`], of bytes that only this process maps.
    pub(crate) fn put(
        self: &Arc<Self>,
        offset: Bytes,
        bytes: &[u8],
        sum: &mut Checksum,
    ) -> io::Result<()> {
        let mut rest = bytes;
        self.write_with(offset, Bytes(bytes.len() as u64), |memory, at, _, len| {
            let len = usize::try_from(len.0).unwrap_or(usize::MAX);
            let (piece, behind) = rest.split_at(len);
            rest = behind;
            Ok(memory.write_summed(at, piece, sum)?)
        })
    }

    /// Lets `copy` fill the windows of a range: it gets a window, where to write in it, how many bytes of
    /// the range came before, and how many to write.
    fn write_with(
        self: &Arc<Self>,
        offset: Bytes,
        len: Bytes,
        mut copy: impl FnMut(&Mapping, Bytes, u64, Bytes) -> io::Result<()>,
    ) -> io::Result<()> {
        for range in window_ranges(offset, len) {
            let mut part = self.open(range.part)?;
            let memory = part.memory.as_ref().expect("it was opened");
            copy(memory, Bytes(range.start), range.done, Bytes(range.len))?;
            part.filled.insert(range.start..range.start + range.len);
            if is_covered(&part.filled, 0..self.len_of(range.part)) {
                self.write_back(range.part, &mut part);
            }
        }
        Ok(())
    }

    /// Reads `len` bytes at `offset` into `copy`; adds them to `sum`.
    ///
    /// # Errors
    ///
    /// As `preadv2(2)`; [`io::ErrorKind::UnexpectedEof`] if the file was truncated.
    pub(crate) fn read(
        &self,
        offset: Bytes,
        (copy, to): (&Mapping, Bytes),
        len: Bytes,
        (stores, mut sum): (Stores, Option<&mut Checksum>),
        bounce: &mut Bounce,
    ) -> io::Result<()> {
        for run in self.runs(offset, len) {
            let target = (copy, Bytes(to.0 + run.done));
            if self.read_buffered(run, target, stores, sum.as_deref_mut())? {
                continue;
            }
            let offset = Bytes(offset.0 + run.done);
            let sink = (stores, sum.as_deref_mut());
            self.read_file(offset, target, Bytes(run.len), sink, bounce)?;
        }
        Ok(())
    }

    /// The whole range at once if none of its windows has memory, else window by window.
    fn runs(&self, offset: Bytes, len: Bytes) -> Vec<WindowRange> {
        let window_ranges: Vec<_> = window_ranges(offset, len).collect();
        let is_open = |it: &WindowRange| self.parts[it.part].read().memory.is_some();
        match window_ranges.first() {
            Some(first) if !window_ranges.iter().any(is_open) => {
                vec![WindowRange { len: len.0, ..*first }]
            }
            _ => window_ranges,
        }
    }

    /// Copies a range from the memory of its window. Returns whether it was there.
    fn read_buffered(
        &self,
        run: WindowRange,
        (copy, to): (&Mapping, Bytes),
        stores: Stores,
        sum: Option<&mut Checksum>,
    ) -> io::Result<bool> {
        if run.start + run.len > WINDOW {
            return Ok(false);
        }
        let part = self.parts[run.part].read();
        let Some(memory) = &part.memory else { return Ok(false) };
        let wanted = run.start..run.start + run.len;
        if is_covered(&part.filled, wanted.clone()) {
            let (from, len) = (Bytes(run.start), Bytes(run.len));
            match sum {
                Some(sum) => copy.copy_from_summed(to, memory, from, len, stores, sum)?,
                None => copy.copy_from(to, memory, from, len)?,
            }
            return Ok(true);
        }
        if part.filled.overlaps(&wanted) {
            // A part was overwritten meanwhile, which the checksum detects. Read the file after a flush.
            drop(part);
            self.flush(run.part);
        }
        Ok(false)
    }

    fn read_file(
        &self,
        offset: Bytes,
        (copy, to): (&Mapping, Bytes),
        len: Bytes,
        (stores, mut sum): (Stores, Option<&mut Checksum>),
        bounce: &mut Bounce,
    ) -> io::Result<()> {
        let Some(block) = self.block else {
            let file = self.file.as_fd();
            let read = copy.read_from_file_with(to, len, file, offset, PageCache::Drop)?;
            expect(read, len)?;
            return sum.map_or(Ok(()), |sum| Ok(copy.sum_into(to, len, sum)?));
        };
        let mut done = 0;
        while done < len.0 {
            let at = offset.0 + done;
            let count = (len.0 - done).min(READ_MAX);
            let start = at - at % block;
            let span = Bytes((at + count).next_multiple_of(block) - start);
            let region = bounce.region(Bytes(READ_MAX + 2 * block))?;
            let read = region.read_from_file(Bytes(0), span, self.file.as_fd(), Bytes(start))?;
            expect(read, Bytes(at + count - start))?;
            let (from, to, count) = (Bytes(at - start), Bytes(to.0 + done), Bytes(count));
            match sum.as_deref_mut() {
                Some(sum) => copy.copy_from_summed(to, region, from, count, stores, sum)?,
                None => copy.copy_from(to, region, from, count)?,
            }
            done += count.0;
        }
        Ok(())
    }

    /// Locks a window for writing and gives it memory.
    fn open(self: &Arc<Self>, index: usize) -> io::Result<RwLockWriteGuard<'_, WindowState>> {
        let part = self.parts[index].write();
        if part.memory.is_some() {
            return Ok(part);
        }
        // The lock is released so that other threads can write their windows back meanwhile.
        drop(part);
        let memory = self.windows.acquire()?;
        let mut part = self.parts[index].write();
        if part.memory.is_none() {
            part.memory = Some(memory);
            self.windows.opened(OpenWindow { chunk: Arc::downgrade(self), part: index });
        }
        Ok(part)
    }

    /// Writes a window back to the file and frees its memory.
    fn flush(&self, index: usize) {
        let mut part = self.parts[index].write();
        self.write_back(index, &mut part);
    }

    fn write_back(&self, index: usize, part: &mut WindowState) {
        let filled = std::mem::take(&mut part.filled);
        if let Some(memory) = part.memory.take() {
            let outcome = self.write_out(index, &memory, &filled);
            let bytes = filled.iter().map(|range| range.end - range.start).sum();
            self.windows.count_write(bytes, &outcome);
            self.windows.closed(self, index);
        }
    }

    fn write_out(&self, index: usize, memory: &Mapping, filled: &RangeSet<u64>) -> io::Result<()> {
        let base = index as u64 * WINDOW;
        let file = self.file.as_fd();
        let Some(block) = self.block else {
            for &Range { start, end } in filled.iter() {
                let (at, len) = (Bytes(start), Bytes(end - start));
                memory.write_to_file(at, len, file, Bytes(base + start))?;
            }
            // Starts writeback of these pages, and drops pages that were written earlier.
            return direct::drop_cached(&self.file);
        };
        let blocks =
            filled.iter().map(|it| it.start - it.start % block..it.end.next_multiple_of(block));
        for Range { start, end } in blocks.collect::<RangeSet<u64>>() {
            self.fill_gaps(base, start..end, memory, filled, block)?;
            let (at, len) = (Bytes(start), Bytes(end - start));
            memory.write_to_file(at, len, file, Bytes(base + start))?;
        }
        Ok(())
    }

    /// Reads the gaps between buffered ranges from the file: only whole blocks can be written.
    fn fill_gaps(
        &self,
        base: u64,
        written: Range<u64>,
        memory: &Mapping,
        filled: &RangeSet<u64>,
        block: u64,
    ) -> io::Result<()> {
        for Range { start: from, end: to } in filled.gaps(&written) {
            let first = from - from % block;
            let len = usize::try_from(to.next_multiple_of(block) - first);
            let mut blocks = AlignedBuffer::zeroed(len.map_err(|_| io::ErrorKind::InvalidInput)?);
            self.file.read_exact_at(blocks.as_mut_slice(), base + first)?;
            let range = [from - first, to - first].map(usize::try_from);
            let [Ok(from_in), Ok(to_in)] = range else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            memory.write(Bytes(from), &blocks.as_slice()[from_in..to_in])?;
        }
        Ok(())
    }

    fn len_of(&self, index: usize) -> u64 {
        (self.len.0 - index as u64 * WINDOW).min(WINDOW)
    }
}

impl Drop for DiskChunk {
    fn drop(&mut self) {
        // The buffered bytes are discarded with the chunk; their memory returns to the tier.
        self.windows.forget(self);
    }
}

fn is_covered(filled: &RangeSet<u64>, range: Range<u64>) -> bool {
    filled.gaps(&range).next().is_none()
}

fn expect(read: Bytes, len: Bytes) -> io::Result<()> {
    if read < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

fn window_ranges(offset: Bytes, len: Bytes) -> impl Iterator<Item = WindowRange> {
    let end = offset.0 + len.0;
    let mut at = offset.0;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let start = at % WINDOW;
            let len = (WINDOW - start).min(end - at);
            let part = usize::try_from(at / WINDOW).expect("the target has 64 bits");
            let range = WindowRange { part, start, len, done: at - offset.0 };
            at += len;
            range
        })
    })
}

/// The block size of direct I/O on `file`; `None` without it. The answer of the file system is verified by
/// a write.
fn direct_block(file: &File, len: Bytes) -> Option<u64> {
    let alignment = direct::alignment(file).ok()??;
    let block = alignment.offset.0.max(alignment.memory.0).max(BLOCK_MIN);
    if !block.is_power_of_two() || block > WINDOW || !len.0.is_multiple_of(block) {
        return None;
    }
    direct::set_caching(file, Caching::Bypassed).ok()?;
    let zeros = AlignedBuffer::zeroed(usize::try_from(block).ok()?);
    file.write_all_at(zeros.as_slice(), 0).ok()?;
    Some(block)
}

#[cfg(test)]
mod tests;
