//! Gives bounds-checked access to memory that other processes may map and write at the same time.
//!
//! Every access is a copy through raw pointers, or an atomic. No `&[u8]` covers the mapping:
//! another process may write it at any moment, and Rust's references require that none does.
//!
//! A caller that writes a range while another reads it gives that reader a mixture of old and new
//! bytes, as with a file. Leases decide elsewhere who may access which range when; this module only
//! guarantees bounds:
//!
//! 1. No operation accesses a byte outside its mapping, for any offset and length.
//! 2. A mapping is as long as the file behind it for its whole life: the file is sealed against
//!    shrinking before it is read or written through a [`crate::View`] or [`crate::Region`].

#[expect(unsafe_code, reason = "preadv2 and pwrite on memory that must not become a slice")]
mod file;
mod huge_pages;
#[expect(unsafe_code, reason = "recv and sendmsg on memory that must not become a slice")]
mod socket;

use std::{
    fmt, io,
    sync::{Arc, atomic::AtomicU64},
};

use memmap2::{Advice, MmapRaw};
use tierfeed_units::Bytes;

pub use self::{
    file::{PageCache, cached, drop_pages, read_cached_into, read_into},
    socket::{MappedRange, SENT_RANGES_MAX, round_trip, send_ranges},
};
use crate::{
    bus_errors::Watch,
    checksum::{self, Checksum, Stores},
    non_temporal,
};

/// Memory that this process has mapped, shared with the other processes that map the file behind
/// it.
pub struct Mapping {
    /// Declared before the memory, so that it is dropped first.
    watch: Option<Watch>,
    raw: Arc<MmapRaw>,
    /// Start of the mapping in `raw`: it may be a part of that.
    start: usize,
    len: usize,
}

/// An access would leave its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The range ends behind the end of the mapping.
    #[error("a range of {} bytes at offset {} leaves a mapping of {} bytes",
        .len.0, .offset.0, .mapped.0)]
    Outside {
        /// Start of the range.
        offset: Bytes,
        /// Length of the range.
        len: Bytes,
        /// Length of the mapping.
        mapped: Bytes,
    },
    /// The offset of an atomic is no multiple of its size.
    #[error("offset {} is no multiple of {}, the size of the atomic", .offset.0, .align.0)]
    Misaligned {
        /// The requested offset of the atomic.
        offset: Bytes,
        /// Alignment that the offset must have.
        align: Bytes,
    },
}

impl From<RangeError> for io::Error {
    fn from(error: RangeError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

impl Mapping {
    pub(crate) fn new(raw: MmapRaw) -> Self {
        let len = raw.len();
        Self { watch: None, raw: Arc::new(raw), start: 0, len }
    }

    /// A mapping of pages of `page_bytes` in which broken memory does not end the process.
    pub(crate) fn watched(raw: MmapRaw, page_bytes: usize) -> Self {
        let start = raw.as_ptr().addr();
        let end = start + raw.len().next_multiple_of(page_bytes);
        Self { watch: Some(Watch::over(start, end, page_bytes)), ..Self::new(raw) }
    }

    /// A part of a mapping that starts on a page, watched on its own.
    pub(crate) fn part(raw: Arc<MmapRaw>, start: usize, len: usize, page_bytes: usize) -> Self {
        let inside = start.checked_add(len).is_some_and(|end| end <= raw.len());
        assert!(inside, "{len} bytes at {start} lie in a mapping of {}", raw.len());
        let from = raw.as_ptr().addr() + start;
        let to = from + len.next_multiple_of(page_bytes);
        Self { watch: Some(Watch::over(from, to, page_bytes)), raw, start, len }
    }

    /// Number of its pages that broke so far. Each reads as zeros since, and writes to it are seen
    /// by no other process.
    ///
    /// Counted in a [`crate::Region`], after [`crate::bus_errors::catch`].
    #[must_use]
    pub fn bus_errors(&self) -> u32 {
        self.watch.as_ref().map_or(0, Watch::errors)
    }

    /// Length of the memory, in bytes.
    #[must_use]
    pub fn len(&self) -> Bytes {
        Bytes(self.len as u64)
    }

    /// Always false: a mapping has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `len` bytes of `source` here. The ranges may overlap.
    ///
    /// # Errors
    ///
    /// If either range leaves its mapping; nothing is copied then.
    #[expect(unsafe_code, reason = "copies between mappings")]
    pub fn copy_from(
        &self,
        offset: Bytes,
        source: &Self,
        source_offset: Bytes,
        len: Bytes,
    ) -> Result<(), RangeError> {
        let (to, count) = self.range(offset, len)?;
        let (from, _) = source.range(source_offset, len)?;
        // SAFETY:
        // - `from` is valid for reads and `to` for writes of `count` bytes: `range` checked both, and
        //   the mappings live as long as `source` and `self`.
        // - Bytes need no alignment, and every bit pattern is a byte.
        // - `copy` allows overlap, as two mappings may map one file.
        unsafe { std::ptr::copy(from, to, count) };
        Ok(())
    }

    /// As [`Self::copy_from`], past the caches of the target if the processor can
    /// ([`crate::kernels::has_non_temporal_stores`]); with ordinary stores if the ranges overlap.
    ///
    /// # Errors
    ///
    /// If either range leaves its mapping; nothing is copied then.
    #[expect(unsafe_code, reason = "copies between mappings")]
    pub fn copy_from_non_temporal(
        &self,
        offset: Bytes,
        source: &Self,
        source_offset: Bytes,
        len: Bytes,
    ) -> Result<(), RangeError> {
        let (to, count) = self.range(offset, len)?;
        let (from, _) = source.range(source_offset, len)?;
        if to.addr().abs_diff(from.addr()) < count {
            return self.copy_from(offset, source, source_offset, len);
        }
        // SAFETY:
        // - `from` is valid for reads and `to` for writes of `count` bytes: `range` checked both, and
        //   the mappings live as long as `source` and `self`.
        // - Their addresses do not overlap, as was just checked.
        unsafe { non_temporal::copy_bytes_non_temporal(to, from, count) };
        Ok(())
    }

    /// As [`Self::copy_from`], with the requested stores, and adds exactly the stored bytes to
    /// `sum`.
    ///
    /// # Errors
    ///
    /// If either range leaves its mapping; nothing is copied then.
    #[expect(unsafe_code, reason = "copies between mappings")]
    pub fn copy_from_summed(
        &self,
        offset: Bytes,
        source: &Self,
        source_offset: Bytes,
        len: Bytes,
        stores: Stores,
        sum: &mut Checksum,
    ) -> Result<(), RangeError> {
        let (to, count) = self.range(offset, len)?;
        let (from, _) = source.range(source_offset, len)?;
        if to.addr().abs_diff(from.addr()) < count {
            self.copy_from(offset, source, source_offset, len)?;
            return self.sum_into(offset, len, sum);
        }
        // SAFETY:
        // - `from` is valid for reads and `to` for writes of `count` bytes: `range` checked both, and
        //   the mappings live as long as `source` and `self`.
        // - Their addresses do not overlap, as was just checked.
        unsafe { checksum::feed(sum, from, Some(to), count, stores) };
        Ok(())
    }

    /// Adds a range to `sum`, each byte as it is at some moment.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is summed then.
    #[expect(unsafe_code, reason = "reads the mapping")]
    pub fn sum_into(
        &self,
        offset: Bytes,
        len: Bytes,
        sum: &mut Checksum,
    ) -> Result<(), RangeError> {
        let (from, count) = self.range(offset, len)?;
        // SAFETY:
        // - `from` is valid for reads of `count` bytes: `range` checked it, and `self` keeps it mapped.
        unsafe { checksum::feed(sum, from, None, count, Stores::Cached) };
        Ok(())
    }

    /// Copies `bytes` here.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is copied then.
    #[expect(unsafe_code, reason = "copies into the mapping")]
    pub fn write(&self, offset: Bytes, bytes: &[u8]) -> Result<(), RangeError> {
        let (to, count) = self.range(offset, Bytes(bytes.len() as u64))?;
        // SAFETY:
        // - `bytes` is valid for reads of `count` bytes, and `to` for writes: `range` checked it.
        // - Bytes need no alignment.
        // - They do not overlap: no reference to mapped memory ever leaves this crate.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count) };
        Ok(())
    }

    /// As [`Self::write`], and adds `bytes` to `sum` in the same pass.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is copied or summed then.
    #[expect(unsafe_code, reason = "copies into the mapping")]
    pub fn write_summed(
        &self,
        offset: Bytes,
        bytes: &[u8],
        sum: &mut Checksum,
    ) -> Result<(), RangeError> {
        let (to, count) = self.range(offset, Bytes(bytes.len() as u64))?;
        // SAFETY:
        // - `bytes` is valid for reads of `count` bytes, and `to` for writes: `range` checked it.
        // - They do not overlap: no reference to mapped memory ever leaves this crate.
        unsafe { checksum::feed(sum, bytes.as_ptr(), Some(to), count, Stores::Cached) };
        Ok(())
    }

    /// Copies bytes of the mapping into `buffer`, until it is full.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is copied then.
    #[expect(unsafe_code, reason = "copies out of the mapping")]
    pub fn read(&self, offset: Bytes, buffer: &mut [u8]) -> Result<(), RangeError> {
        let (from, count) = self.range(offset, Bytes(buffer.len() as u64))?;
        // SAFETY:
        // - `from` is valid for reads of `count` bytes, as `range` checked, and `buffer` for writes.
        // - Bytes need no alignment, and every bit pattern is a byte.
        // - They do not overlap: no reference to mapped memory ever leaves this crate.
        unsafe { std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), count) };
        Ok(())
    }

    /// Sets `len` bytes to `value`.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping; nothing is written then.
    #[expect(unsafe_code, reason = "writes into the mapping")]
    pub fn fill(&self, offset: Bytes, len: Bytes, value: u8) -> Result<(), RangeError> {
        let (to, count) = self.range(offset, len)?;
        // SAFETY:
        // - `to` is valid for writes of `count` bytes: `range` checked it.
        // - Bytes need no alignment.
        unsafe { std::ptr::write_bytes(to, value, count) };
        Ok(())
    }

    /// The 64-bit word at `offset`, for use together with other processes.
    ///
    /// # Errors
    ///
    /// If the word leaves the mapping or is not aligned to 8 bytes.
    #[expect(unsafe_code, reason = "atomics in shared memory")]
    pub fn atomic_u64(&self, offset: Bytes) -> Result<&AtomicU64, RangeError> {
        let word = self.aligned(offset, size_of::<u64>() as u64)?;
        // SAFETY:
        // - `word` is valid for reads and writes of 8 bytes and aligned: `aligned` checked both.
        // - It stays so for the lifetime of `&self`, which owns the mapping.
        // - An atomic may be written by others, other processes too, while the reference lives.
        Ok(unsafe { AtomicU64::from_ptr(word.cast()) })
    }

    /// The address of a range, to lend its memory to code outside of Rust.
    ///
    /// It is valid for `len` bytes for as long as this mapping lives; the code that dereferences it
    /// must keep the mapping alive and the range unused by others.
    ///
    /// # Errors
    ///
    /// If the range leaves the mapping.
    pub fn as_ptr_range(&self, offset: Bytes, len: Bytes) -> Result<*mut u8, RangeError> {
        self.range(offset, len).map(|(start, _)| start)
    }

    /// Maps every page of a range of shared memory without a change of its bytes: later accesses
    /// cause no page faults, and the kernel reports the placement of mapped pages only.
    ///
    /// # Errors
    ///
    /// As `madvise(2)` with `MADV_POPULATE_WRITE`, or if the range leaves the mapping.
    pub(crate) fn populate(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let (_, count) = self.range(offset, len)?;
        let start = self.start + to_usize(offset);
        loop {
            match self.raw.advise_range(Advice::PopulateWrite, start, count) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                // Linux before 5.14: reading maps a page too.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    return Ok(self.sum_into(offset, len, &mut Checksum::of_len(len.0))?);
                }
                outcome => return outcome,
            }
        }
    }

    /// Writes a zero to one byte of every page, for kernels that cannot populate by `madvise`. Only
    /// for memory that is not used yet.
    #[expect(unsafe_code, reason = "writes into the mapping")]
    pub(crate) fn touch_every(&self, page_bytes: usize) {
        for offset in (0..self.len).step_by(page_bytes) {
            let byte = self.first().wrapping_add(offset);
            // SAFETY:
            // - `byte` lies inside the mapping that `self` owns, and bytes need no alignment.
            // - Volatile, because a write that changes nothing must still happen.
            unsafe { byte.write_volatile(0) };
        }
    }

    /// Bytes that lie in huge pages that are mapped as such, if the kernel reports them.
    #[must_use]
    pub fn huge_page_bytes(&self) -> Option<Bytes> {
        self.huge_page_bytes_within(self.len())
    }

    /// As [`Self::huge_page_bytes`], of the first `len` bytes, if the kernel reports exactly these
    /// together.
    pub(crate) fn huge_page_bytes_within(&self, len: Bytes) -> Option<Bytes> {
        huge_pages::mapped_in(self.address(), to_usize(len))
    }

    /// The whole mapping of which this may be a part.
    pub(crate) fn raw(&self) -> &MmapRaw {
        &self.raw
    }

    /// Start address in this process.
    pub(crate) fn address(&self) -> usize {
        self.first().addr()
    }

    fn first(&self) -> *mut u8 {
        self.raw.as_mut_ptr().wrapping_add(self.start)
    }

    fn aligned(&self, offset: Bytes, align: u64) -> Result<*mut u8, RangeError> {
        let (word, _) = self.range(offset, Bytes(align))?;
        // The mapping itself starts on a page.
        if !offset.0.is_multiple_of(align) {
            return Err(RangeError::Misaligned { offset, align: Bytes(align) });
        }
        Ok(word)
    }

    /// Invariant 1 rests on this function: no pointer into the mapping is made elsewhere.
    pub(crate) fn range(&self, offset: Bytes, len: Bytes) -> Result<(*mut u8, usize), RangeError> {
        let mapped = self.len();
        if offset.0.checked_add(len.0).is_none_or(|end| end > mapped.0) {
            return Err(RangeError::Outside { offset, len, mapped });
        }
        Ok((self.first().wrapping_add(to_usize(offset)), to_usize(len)))
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("len", &self.len()).finish_non_exhaustive()
    }
}

fn to_usize(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).expect("the crate builds for 64-bit targets only")
}
