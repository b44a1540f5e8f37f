//! A chunk on a disk: written in large pieces past the page cache, read past it too.
//!
//! The session gives places on a disk in the order of the log, so samples that arrive after one another
//! lie beside one another. They are gathered in memory, in windows of the file, and a window that is
//! full goes out as one write. Flash that is written so wears least, and no page cache is filled behind
//! the job's back. A sample that is still in a window is read from there.
//!
//! A window that is not full is written only when its memory is needed for another. Nothing is written
//! for safety: a file without a name is gone after a crash anyway.
//!
//! Where the file system refuses `O_DIRECT`, writes go through the page cache, which is told to write
//! them out and to forget them.
//!
//! Invariants:
//!
//! 1. What was written is read back, from memory or from the file, until it is written over.
//! 2. All windows of a tier take at most [`windows::WINDOWS_MAX`] times [`WINDOW`] of memory, and one where a
//!    control group has no room for more.
//! 3. Bytes of the file outside of what was written stay as they are.
//! 4. A write that failed is found by its reader: its bytes do not match their sum.

mod ranges;
mod windows;

use std::{
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    sync::{Arc, PoisonError, RwLock, RwLockWriteGuard},
};

use tierfeed_core::units::Bytes;
use tierfeed_file_io::{
    AlignedBuffer,
    direct::{self, Caching},
};
use tierfeed_numa_memory::{Checksum, Mapping, PageCache, Stores};

use self::ranges::{Overlap, Ranges};
use super::bounce::Bounce;

use self::windows::{Entry, Memory};
pub(crate) use self::windows::{WINDOW, Windows};

/// The smallest unit of the file that is written or read directly, whatever less the disk would take.
const BLOCK_MIN: u64 = 4096;

/// What is read from the file at once, at most.
const READ_MAX: u64 = 1 << 20;

/// A chunk in a file.
#[derive(Debug)]
pub(crate) struct DiskChunk {
    file: File,
    len: Bytes,
    /// Offsets and lengths of direct access are multiples of it; `None` if there is no direct access.
    block: Option<u64>,
    parts: Vec<RwLock<Part>>,
    windows: Arc<Windows>,
}

/// A window of the file, and what of it is only in memory.
#[derive(Debug, Default)]
struct Part {
    memory: Option<Memory>,
    filled: Ranges,
}

/// A stretch of one window.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    part: usize,
    /// From the start of the window.
    start: u64,
    len: u64,
    /// From the start of what is read or written.
    done: u64,
}

impl DiskChunk {
    /// A chunk in `file`, which has `len` bytes allocated that nobody needs yet.
    pub(crate) fn new(file: File, len: Bytes, windows: &Arc<Windows>) -> Self {
        let block = direct_block(&file, len);
        if block.is_none() {
            // The flag may be set although access is refused; without it all is as usual.
            let _ = direct::set_caching(&file, Caching::Used);
        }
        let parts = (0..len.0.div_ceil(WINDOW)).map(|_| RwLock::default()).collect();
        Self { file, len, block, parts, windows: Arc::clone(windows) }
    }

    /// Whether the page cache is bypassed.
    pub(crate) fn is_direct(&self) -> bool {
        self.block.is_some()
    }

    /// Takes `len` bytes of `origin` in, to be at `offset` from now on; sums what is taken.
    ///
    /// # Errors
    ///
    /// If there is no memory for a window, or an address is wrong. A write to the disk that fails is
    /// counted in [`Windows`], for it may concern other samples.
    pub(crate) fn write(
        self: &Arc<Self>,
        offset: Bytes,
        (origin, from): (&Mapping, Bytes),
        len: Bytes,
        mut sum: Option<&mut Checksum>,
    ) -> io::Result<()> {
        for stretch in stretches(offset, len) {
            let mut part = self.open(stretch.part)?;
            let memory = part.memory.as_ref().expect("it was opened");
            let (at, from) = (Bytes(stretch.start), Bytes(from.0 + stretch.done));
            let len = Bytes(stretch.len);
            match sum.as_deref_mut() {
                Some(sum) => {
                    memory.copy_from_summed(at, origin, from, len, Stores::Cached, sum)?;
                }
                None => memory.copy_from(at, origin, from, len)?,
            }
            part.filled.insert(stretch.start, stretch.start + stretch.len);
            if part.filled.is_whole(self.len_of(stretch.part)) {
                self.put_out(stretch.part, &mut part);
            }
        }
        Ok(())
    }

    /// Reads `len` bytes from `offset` on to `copy`; sums what arrives.
    ///
    /// # Errors
    ///
    /// As `preadv2(2)`; [`io::ErrorKind::UnexpectedEof`] if the file was cut off.
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
            if self.read_gathered(run, target, stores, sum.as_deref_mut())? {
                continue;
            }
            let offset = Bytes(offset.0 + run.done);
            let sink = (stores, sum.as_deref_mut());
            self.read_file(offset, target, Bytes(run.len), sink, bounce)?;
        }
        Ok(())
    }

    /// The whole range at once if no part of it is only in memory, else window by window.
    fn runs(&self, offset: Bytes, len: Bytes) -> Vec<Stretch> {
        let stretches: Vec<_> = stretches(offset, len).collect();
        let is_open = |it: &Stretch| self.look(it.part).memory.is_some();
        match stretches.first() {
            Some(first) if !stretches.iter().any(is_open) => vec![Stretch { len: len.0, ..*first }],
            _ => stretches,
        }
    }

    /// Copies a stretch from its window, if it is there; says whether it was.
    fn read_gathered(
        &self,
        run: Stretch,
        (copy, to): (&Mapping, Bytes),
        stores: Stores,
        sum: Option<&mut Checksum>,
    ) -> io::Result<bool> {
        if run.start + run.len > WINDOW {
            return Ok(false);
        }
        let part = self.look(run.part);
        let Some(memory) = &part.memory else { return Ok(false) };
        match part.filled.overlap(run.start, run.start + run.len) {
            Overlap::Whole => {
                let (from, len) = (Bytes(run.start), Bytes(run.len));
                match sum {
                    Some(sum) => copy.copy_from_summed(to, memory, from, len, stores, sum)?,
                    None => copy.copy_from(to, memory, from, len)?,
                }
                Ok(true)
            }
            Overlap::None => Ok(false),
            // Half of it was written over meanwhile; the sum will tell. It must be one or the other.
            Overlap::Part => {
                drop(part);
                self.flush(run.part);
                Ok(false)
            }
        }
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

    /// A window with memory.
    fn open(self: &Arc<Self>, index: usize) -> io::Result<RwLockWriteGuard<'_, Part>> {
        let part = self.change(index);
        if part.memory.is_some() {
            return Ok(part);
        }
        // Others must be able to put their windows out meanwhile, this one's neighbours too.
        drop(part);
        let memory = self.windows.take()?;
        let mut part = self.change(index);
        if part.memory.is_none() {
            part.memory = Some(memory);
            self.windows.opened(Entry { chunk: Arc::downgrade(self), part: index });
        }
        Ok(part)
    }

    /// Writes what a window gathered, and gives its memory back.
    fn flush(&self, index: usize) {
        let mut part = self.change(index);
        self.put_out(index, &mut part);
    }

    fn put_out(&self, index: usize, part: &mut Part) {
        let filled = std::mem::take(&mut part.filled);
        if let Some(memory) = part.memory.take() {
            let outcome = self.write_out(index, &memory, &filled);
            self.windows.wrote(filled.bytes(), &outcome);
            self.windows.closed(self, index);
        }
    }

    fn write_out(&self, index: usize, memory: &Mapping, filled: &Ranges) -> io::Result<()> {
        let base = index as u64 * WINDOW;
        let file = self.file.as_fd();
        let Some(block) = self.block else {
            for (start, end) in filled.iter() {
                let (at, len) = (Bytes(start), Bytes(end - start));
                memory.write_to_file(at, len, file, Bytes(base + start))?;
            }
            // Starts writing, and drops what was written before.
            return direct::drop_cached(&self.file);
        };
        for (start, end) in filled.aligned_to(block) {
            self.complete(base, (start, end), memory, filled, block)?;
            let (at, len) = (Bytes(start), Bytes(end - start));
            memory.write_to_file(at, len, file, Bytes(base + start))?;
        }
        Ok(())
    }

    /// Brings the bytes around what was gathered from the file: a block is written as a whole.
    fn complete(
        &self,
        base: u64,
        (start, end): (u64, u64),
        memory: &Mapping,
        filled: &Ranges,
        block: u64,
    ) -> io::Result<()> {
        for (from, to) in filled.gaps_in(start, end) {
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

    fn look(&self, index: usize) -> std::sync::RwLockReadGuard<'_, Part> {
        // A panic inside leaves bytes that do not match their sum, which is found.
        self.parts[index].read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, index: usize) -> RwLockWriteGuard<'_, Part> {
        self.parts[index].write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DiskChunk {
    fn drop(&mut self) {
        // What was gathered is nobody's any more; its memory goes back with it.
        self.windows.forget(self);
    }
}

fn expect(read: Bytes, len: Bytes) -> io::Result<()> {
    if read < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}

/// The parts of a range, window by window.
fn stretches(offset: Bytes, len: Bytes) -> impl Iterator<Item = Stretch> {
    let end = offset.0 + len.0;
    let mut at = offset.0;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let start = at % WINDOW;
            let len = (WINDOW - start).min(end - at);
            let part = usize::try_from(at / WINDOW).expect("the target has 64 bits");
            let stretch = Stretch { part, start, len, done: at - offset.0 };
            at += len;
            stretch
        })
    })
}

/// The unit of direct access to `file`, if there is any: the file system is asked, and then tried.
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
