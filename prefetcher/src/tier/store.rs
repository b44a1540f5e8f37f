//! One chunk of a tier or one arena: bytes, and the checksums of the samples in them.
//!
//! Operations hold it by `Arc`. An operation that still runs when its chunk is dropped writes to memory that
//! is still allocated to that chunk, never to memory that was reused.

use std::{
    fs::File,
    io,
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tierfeed_core::{id::ChunkId, units::Bytes};
use tierfeed_numa_memory::{AllocateError, Checksum, Mapping, Region, Slices, Span, Stores};

use crate::tier::{
    SpaceError,
    bounce::{Bounce, Bounces},
    disk::DiskChunk,
    ram_disk::RamDiskFile,
    sums::Sums,
};

#[derive(Debug)]
pub(crate) enum Allocation {
    Memory(Arc<Region>),
    SharedMemory(Span),
    File(RamDiskFile),
    Disk(Arc<DiskChunk>),
}

impl Allocation {
    /// `None` for files.
    pub(crate) fn memory(&self) -> Option<&Mapping> {
        match self {
            Self::Memory(region) => Some(region),
            Self::SharedMemory(span) => Some(span),
            Self::File(_) | Self::Disk(_) => None,
        }
    }

    /// Allocates the memory of a range that is not used yet.
    ///
    /// # Errors
    ///
    /// As [`Region::populate`], [`Span::populate`] and [`RamDiskFile::populate`].
    pub(crate) fn populate(&self, offset: Bytes, len: Bytes) -> Result<(), SpaceError> {
        match self {
            Self::Memory(region) => Ok(region.populate(offset, len)?),
            Self::SharedMemory(span) => Ok(span.populate(offset, len)?),
            Self::File(file) => file.populate(offset, len),
            Self::Disk(_) => Ok(()),
        }
    }
}

/// The longest piece that one system call copies from or to a file: it bounds the buffer between two files,
/// the cost of the call is small beside it, and the piece is still in a level-2 cache when it is summed.
const FILE_PIECE: u64 = 256 << 10;

/// The same for a disk, which is faster with longer requests.
const DISK_PIECE: u64 = 1 << 20;

#[derive(Debug)]
pub(crate) struct Store {
    /// `None` for an arena.
    chunk: Option<ChunkId>,
    allocation: Allocation,
    len: Bytes,
    slices: Slices,
    sums: Mutex<Sums>,
    stores: Stores,
    held: HeldBytes,
}

/// Adds its bytes to a total for as long as it lives.
#[derive(Debug)]
struct HeldBytes {
    total: Arc<AtomicU64>,
    bytes: Mutex<u64>,
}

impl HeldBytes {
    fn new(total: &Arc<AtomicU64>, len: Bytes) -> Self {
        total.fetch_add(len.0, Ordering::Relaxed);
        Self { total: Arc::clone(total), bytes: Mutex::new(len.0) }
    }

    /// Sets the count to the resident bytes that the kernel reports, which corrects failed calls and pages
    /// that a trainer touched. The lock keeps an older reading from overwriting a newer one.
    fn count(&self, region: &Region) {
        let mut bytes = self.bytes.lock();
        // If the kernel does not answer, the last count stays.
        let now = region.resident().map_or(*bytes, |it| it.0);
        self.total.fetch_add(now, Ordering::Relaxed);
        self.total.fetch_sub(*bytes, Ordering::Relaxed);
        *bytes = now;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        let bytes = self.bytes.get_mut();
        self.total.fetch_sub(*bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) store: Arc<Store>,
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

impl Store {
    /// `len` is added to `total` while the store lives.
    pub(crate) fn new(
        chunk: Option<ChunkId>,
        allocation: Allocation,
        len: Bytes,
        total: &Arc<AtomicU64>,
        stores: Stores,
    ) -> Self {
        // Reserved huge pages are rounded up to whole ones.
        let held = match &allocation {
            Allocation::Memory(region) => HeldBytes::new(total, region.len()),
            Allocation::SharedMemory(_) | Allocation::File(_) | Allocation::Disk(_) => {
                HeldBytes::new(total, len)
            }
        };
        let (slices, sums) = (Slices::complete(), Mutex::default());
        Self { chunk, allocation, len, slices, sums, stores, held }
    }

    /// The same store, of which only some slices have memory.
    pub(crate) fn with_slices(self, slices: Slices) -> Self {
        Self { slices, ..self }
    }

    /// Makes sure that a range has memory, before it is written. A range outside of the store is left to the
    /// copy, which refuses it.
    ///
    /// # Errors
    ///
    /// [`SpaceError`] if there is no memory for it any more.
    pub(crate) fn ensure(&self, offset: Bytes, len: Bytes) -> Result<(), SpaceError> {
        self.slices.ensure(offset, len, |offset, len| self.allocation.populate(offset, len))
    }

    /// Allocates the first slice that has no memory; returns how many bytes are missing after that.
    pub(crate) fn ensure_next(&self) -> Result<Bytes, SpaceError> {
        self.slices.ensure_next(|offset, len| self.allocation.populate(offset, len))
    }

    pub(crate) fn missing(&self) -> Bytes {
        self.slices.missing()
    }

    pub(crate) fn chunk(&self) -> Option<ChunkId> {
        self.chunk
    }

    /// Gives the memory of a range back to the system.
    ///
    /// # Errors
    ///
    /// As [`Region::give_back`]. Files are not trimmed.
    pub(crate) fn trim(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let Allocation::Memory(region) = &self.allocation else { return Ok(()) };
        self.recount(region, region.give_back(offset, len))
    }

    /// Allocates memory for a range that was trimmed.
    pub(crate) fn restore(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let Allocation::Memory(region) = &self.allocation else { return Ok(()) };
        self.recount(region, region.restore(offset, len))
    }

    fn recount(
        &self,
        region: &Region,
        outcome: Result<bool, AllocateError>,
    ) -> Result<(), AllocateError> {
        // Reserved huge pages are not given back and stay counted.
        if !matches!(outcome, Ok(false)) {
            self.held.count(region);
        }
        outcome.map(drop)
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    /// Whether trainers map it: after a memory error they see other pages there than this process.
    pub(crate) fn is_seen_by_trainers(&self) -> bool {
        self.chunk.is_none() || matches!(self.allocation, Allocation::SharedMemory(_))
    }

    /// A panic under the lock leaves fewer sums, never wrong ones.
    pub(crate) fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock()
    }

    /// Number of poisoned pages of its memory so far.
    pub(crate) fn bus_errors(&self) -> u32 {
        self.allocation.memory().map_or(0, Mapping::bus_errors)
    }

    /// The longest piece that is copied from or to it at once, in bytes.
    pub(crate) fn piece_max(&self) -> u64 {
        match self.allocation {
            Allocation::Memory(_) | Allocation::SharedMemory(_) => u64::MAX,
            Allocation::File(_) => FILE_PIECE,
            Allocation::Disk(_) => DISK_PIECE,
        }
    }

    /// Writes bytes that only this process maps at `offset`, and adds them to `sum`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a range outside the store, else as `pwrite(2)`.
    pub(crate) fn put(&self, offset: Bytes, bytes: &[u8], sum: &mut Checksum) -> io::Result<()> {
        self.check(offset, Bytes(bytes.len() as u64))?;
        match &self.allocation {
            Allocation::Memory(region) => region.write_summed(offset, bytes, sum)?,
            Allocation::SharedMemory(span) => span.write_summed(offset, bytes, sum)?,
            Allocation::File(file) => {
                file.write_all_at(bytes, offset.0)?;
                sum.update(bytes);
            }
            Allocation::Disk(chunk) => chunk.put(offset, bytes, sum)?,
        }
        Ok(())
    }

    /// Refuses ranges outside of the store: a file would grow.
    fn check(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        match offset.0.checked_add(len.0) {
            Some(end) if end <= self.len.0 => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }
}

/// Copies `len` bytes between ranges and adds them to `sum`.
///
/// From memory to memory, the stored bytes themselves are summed: a trainer may write the origin meanwhile.
/// If the destination is a file, the origin is summed after the copy, so that a change that reached the
/// file is detected.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for a range outside its store, else as `preadv2(2)` and `pwrite(2)`.
pub(crate) fn copy(
    from: (&Store, Bytes),
    to: (&Store, Bytes),
    len: Bytes,
    sum: Option<&mut Checksum>,
    bounces: &mut Bounces,
) -> io::Result<()> {
    let ((from, from_offset), (to, to_offset)) = (from, to);
    from.check(from_offset, len)?;
    to.check(to_offset, len)?;
    let Bounces { through, aligned } = bounces;
    match (from.allocation.memory(), to.allocation.memory()) {
        (Some(origin), Some(copy)) => {
            copy_memory((origin, from_offset), (copy, to_offset), len, to.stores, sum)
        }
        (None, Some(copy)) => {
            from.read(from_offset, (copy, to_offset), len, (to.stores, sum), aligned)
        }
        (Some(origin), None) => to.write(to_offset, (origin, from_offset), len, sum),
        (None, None) => {
            let region = through.region(Bytes(len.0.max(DISK_PIECE)))?;
            from.read(from_offset, (region, Bytes(0)), len, (Stores::Cached, None), aligned)?;
            to.write(to_offset, (region, Bytes(0)), len, sum)
        }
    }
}

impl Store {
    fn read(
        &self,
        offset: Bytes,
        copy: (&Mapping, Bytes),
        len: Bytes,
        (stores, sum): (Stores, Option<&mut Checksum>),
        aligned: &mut Bounce,
    ) -> io::Result<()> {
        match &self.allocation {
            Allocation::Memory(origin) => copy_memory((origin, offset), copy, len, stores, sum),
            Allocation::SharedMemory(origin) => {
                copy_memory((origin, offset), copy, len, stores, sum)
            }
            Allocation::File(file) => read((file, offset), copy, len, sum),
            Allocation::Disk(chunk) => {
                let read = chunk.read(offset, copy, len, (stores, sum), aligned);
                detect_poison(copy, len, read)
            }
        }
    }

    fn write(
        &self,
        offset: Bytes,
        origin: (&Mapping, Bytes),
        len: Bytes,
        sum: Option<&mut Checksum>,
    ) -> io::Result<()> {
        match &self.allocation {
            Allocation::Memory(copy) => copy_memory(origin, (copy, offset), len, self.stores, sum),
            Allocation::SharedMemory(copy) => {
                copy_memory(origin, (copy, offset), len, self.stores, sum)
            }
            Allocation::File(file) => write(origin, (file, offset), len, sum),
            Allocation::Disk(chunk) => chunk.write(offset, origin, len, sum),
        }
    }
}

fn copy_memory(
    (origin, from): (&Mapping, Bytes),
    (copy, to): (&Mapping, Bytes),
    len: Bytes,
    stores: Stores,
    sum: Option<&mut Checksum>,
) -> io::Result<()> {
    match (sum, stores) {
        (Some(sum), _) => copy.copy_from_summed(to, origin, from, len, stores, sum)?,
        (None, Stores::Cached) => copy.copy_from(to, origin, from, len)?,
        (None, Stores::NonTemporal) => copy.copy_from_non_temporal(to, origin, from, len)?,
    }
    Ok(())
}

fn read(
    (file, from): (&File, Bytes),
    (copy, to): (&Mapping, Bytes),
    len: Bytes,
    sum: Option<&mut Checksum>,
) -> io::Result<()> {
    let read = copy.read_from_file(to, len, file.as_fd(), from);
    if detect_poison((copy, to), len, read)? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    sum.map_or(Ok(()), |sum| Ok(copy.sum_into(to, len, sum)?))
}

fn write(
    (origin, from): (&Mapping, Bytes),
    (file, to): (&File, Bytes),
    len: Bytes,
    sum: Option<&mut Checksum>,
) -> io::Result<()> {
    let written = origin.write_to_file(from, len, file.as_fd(), to);
    detect_poison((origin, from), len, written)?;
    sum.map_or(Ok(()), |sum| Ok(origin.sum_into(from, len, sum)?))
}

/// A system call that touches a poisoned page only fails with `EFAULT`. Reading the range touches it too,
/// and counts the error for this memory.
pub(crate) fn detect_poison<T>(
    (region, offset): (&Mapping, Bytes),
    len: Bytes,
    outcome: io::Result<T>,
) -> io::Result<T> {
    if matches!(&outcome, Err(error) if error.raw_os_error() == Some(libc::EFAULT)) {
        region.sum_into(offset, len, &mut Checksum::of_len(len.0))?;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use tierfeed_core::tier::Locality;
    use tierfeed_numa_memory::{Pages, Request};

    use super::*;

    const LEN: Bytes = Bytes::mib(2);
    const HALF: Bytes = Bytes::mib(1);

    fn arena() -> (Store, Arc<AtomicU64>) {
        let (locality, pages) = (Locality::Anywhere, Pages::Small);
        let request = Request { len: LEN, locality, name: "held", pages };
        let (region, total) = (Region::allocate(&request).unwrap(), Arc::<AtomicU64>::default());
        let allocation = Allocation::Memory(Arc::new(region));
        (Store::new(None, allocation, LEN, &total, Stores::Cached), total)
    }

    #[test]
    fn what_could_not_be_given_back_is_not_counted_twice_when_it_comes_back() {
        let (arena, total) = arena();
        let held = || Bytes(total.load(Ordering::Relaxed));
        for _ in 0..3 {
            arena.trim(HALF, LEN).unwrap_err();
            // The session treats the range as trimmed all the same.
            arena.restore(HALF, HALF).unwrap();
            assert_eq!(held(), LEN);
        }
        arena.trim(HALF, HALF).unwrap();
        arena.trim(HALF, HALF).unwrap();
        assert_eq!(held(), HALF, "a range that is gone is not given back again");
        arena.restore(HALF, HALF).unwrap();
        assert_eq!(held(), LEN);
        drop(arena);
        assert_eq!(held(), Bytes(0));
    }

    #[test]
    fn what_a_trainer_touched_without_leave_is_counted_at_the_next_change() {
        let (arena, total) = arena();
        arena.trim(Bytes(0), LEN).unwrap();
        let Allocation::Memory(region) = arena.allocation() else { unreachable!() };
        region.write(Bytes(0), &[1; 4096]).unwrap();
        arena.trim(HALF, HALF).unwrap();
        assert_eq!(total.load(Ordering::Relaxed), 4096);
    }
}
