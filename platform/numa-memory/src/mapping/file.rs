//! Moves bytes between files and mappings without a buffer between them.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use tierfeed_units::Bytes;

use super::{Mapping, to_usize};
use crate::placement::page_bytes;

/// What happens to the pages that a read brings into the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCache {
    /// They stay for as long as the kernel decides.
    Keep,
    /// Pages that the read brings in are dropped with it, if the kernel (6.14) and the file system
    /// support that (`RWF_DONTCACHE`); otherwise all whole pages of the range are
    /// (`posix_fadvise`).
    Drop,
}

impl Mapping {
    /// Reads `len` bytes of `file` here; returns fewer only at the end of the file.
    ///
    /// # Errors
    ///
    /// As `preadv2(2)`, or [`io::ErrorKind::InvalidInput`] if the range leaves the mapping. The
    /// range may hold part of the bytes then.
    pub fn read_from_file(
        &self,
        offset: Bytes,
        len: Bytes,
        file: BorrowedFd<'_>,
        file_offset: Bytes,
    ) -> io::Result<Bytes> {
        self.read_from_file_with(offset, len, file, file_offset, PageCache::Keep)
    }

    /// As [`Self::read_from_file`], with an instruction for the page cache.
    ///
    /// # Errors
    ///
    /// As [`Self::read_from_file`].
    pub fn read_from_file_with(
        &self,
        offset: Bytes,
        len: Bytes,
        file: BorrowedFd<'_>,
        file_offset: Bytes,
        page_cache: PageCache,
    ) -> io::Result<Bytes> {
        let place = self.range(offset, len)?;
        // SAFETY:
        // - `range` checked the place, which stays mapped while `self` lives.
        unsafe { read_to(place, (file, file_offset), page_cache) }
    }

    /// Reads `len` bytes of `file` here if the page cache has all of them; `None` if the read would
    /// wait, or if the kernel cannot tell (before Linux 6.5). The range may hold part of the bytes
    /// then.
    ///
    /// # Errors
    ///
    /// As [`Self::read_from_file`].
    pub fn read_cached_from_file(
        &self,
        offset: Bytes,
        len: Bytes,
        file: BorrowedFd<'_>,
        file_offset: Bytes,
    ) -> io::Result<Option<Bytes>> {
        let place = self.range(offset, len)?;
        // SAFETY:
        // - `range` checked the place, which stays mapped while `self` lives.
        unsafe { read_cached_to(place, (file, file_offset)) }
    }

    /// Writes `len` bytes from here to `file`, all of them.
    ///
    /// # Errors
    ///
    /// As `pwrite(2)`, or [`io::ErrorKind::InvalidInput`] if the range leaves the mapping. The file
    /// may hold part of the bytes then.
    pub fn write_to_file(
        &self,
        offset: Bytes,
        len: Bytes,
        file: BorrowedFd<'_>,
        file_offset: Bytes,
    ) -> io::Result<()> {
        let (from, count) = self.range(offset, len)?;
        let mut done = 0;
        while done < count {
            let position = file_position(file_offset, done)?;
            let start = from.wrapping_add(done).cast();
            // SAFETY:
            // - `start` is valid for reads of `count - done` bytes: `range` checked it, and `self` keeps
            //   it mapped. The kernel only reads it.
            // - `file` is open: it is borrowed.
            let written = unsafe { libc::pwrite(file.as_raw_fd(), start, count - done, position) };
            match usize::try_from(written) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => done += written,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => (),
                    error => return Err(error),
                },
            }
        }
        Ok(())
    }
}

/// Fills `buffer` from `file_offset` of `file` on; returns fewer bytes only at the end of the file.
///
/// # Errors
///
/// As `preadv2(2)`; the buffer may hold part of the bytes then.
pub fn read_into(
    buffer: &mut [u8],
    file: BorrowedFd<'_>,
    file_offset: Bytes,
    page_cache: PageCache,
) -> io::Result<usize> {
    let place = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY:
    // - A slice that is borrowed for writing is valid for writes of its length, and any byte is a `u8`.
    let read = unsafe { read_to(place, (file, file_offset), page_cache) }?;
    Ok(to_usize(read))
}

/// As [`read_into`] if the page cache has all bytes that fill the buffer; `None` if the read would
/// wait, or if the kernel cannot tell (before Linux 6.5).
///
/// # Errors
///
/// As [`read_into`].
pub fn read_cached_into(
    buffer: &mut [u8],
    file: BorrowedFd<'_>,
    file_offset: Bytes,
) -> io::Result<Option<usize>> {
    let place = (buffer.as_mut_ptr(), buffer.len());
    // SAFETY:
    // - A slice that is borrowed for writing is valid for writes of its length, and any byte is a `u8`.
    let read = unsafe { read_cached_to(place, (file, file_offset)) }?;
    Ok(read.map(to_usize))
}

/// Reads to an address with `preadv2(2)`.
///
/// # Safety
///
/// The address is valid for writes of the length beside it; no reference to these bytes is used
/// meanwhile.
unsafe fn read_to(
    (to, count): (*mut u8, usize),
    (file, file_offset): (BorrowedFd<'_>, Bytes),
    page_cache: PageCache,
) -> io::Result<Bytes> {
    let mut flags = match page_cache {
        PageCache::Keep => 0,
        PageCache::Drop => libc::RWF_DONTCACHE,
    };
    // Pages that were cached before are in use elsewhere, so they stay.
    let was_cold = page_cache == PageCache::Drop
        && cached(file, file_offset, Bytes(count as u64)).is_ok_and(|it| it.0 == 0);
    let read = loop {
        // SAFETY:
        // - As the caller promises.
        match unsafe { read_with((to, count), (file, file_offset), flags) } {
            Err(error) if flags != 0 && is_unsupported_flag(&error) => flags = 0,
            read => break read?,
        }
    };
    if was_cold && flags == 0 {
        drop_pages(file, file_offset, read);
    }
    Ok(read)
}

/// Reads to an address if the page cache has the range.
///
/// # Safety
///
/// As [`read_to`].
unsafe fn read_cached_to(
    (to, count): (*mut u8, usize),
    (file, file_offset): (BorrowedFd<'_>, Bytes),
) -> io::Result<Option<Bytes>> {
    // A read with `RWF_NOWAIT` starts to read in missing pages, so it is tried only if all are
    // there.
    if !is_cached(file, file_offset, Bytes(count as u64)) {
        return Ok(None);
    }
    // SAFETY:
    // - As the caller promises.
    match unsafe { read_with((to, count), (file, file_offset), libc::RWF_NOWAIT) } {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if is_unsupported_flag(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads to an address, with flags of `preadv2(2)`.
///
/// # Safety
///
/// As [`read_to`].
unsafe fn read_with(
    (to, count): (*mut u8, usize),
    (file, file_offset): (BorrowedFd<'_>, Bytes),
    flags: libc::c_int,
) -> io::Result<Bytes> {
    let mut done = 0;
    while done < count {
        let part = libc::iovec { iov_base: to.wrapping_add(done).cast(), iov_len: count - done };
        let position = file_position(file_offset, done)?;
        // SAFETY:
        // - `part` lives through the call; it names `count - done` bytes that the caller promised. The
        //   kernel writes nowhere else.
        // - `file` is open: it is borrowed.
        let read = unsafe { libc::preadv2(file.as_raw_fd(), &raw const part, 1, position, flags) };
        match usize::try_from(read) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => (),
                error => return Err(error),
            },
        }
    }
    Ok(Bytes(done as u64))
}

/// Bytes of a range of `file` that the page cache holds, in whole pages; reads nothing in.
///
/// # Errors
///
/// As `cachestat(2)`: `ENOSYS` before Linux 6.5, `EOPNOTSUPP` on hugetlbfs.
pub fn cached(file: BorrowedFd<'_>, offset: Bytes, len: Bytes) -> io::Result<Bytes> {
    let range = [offset.0, len.0];
    let mut counts = [0_u64; 5];
    // SAFETY:
    // - `range` and `counts` are laid out as `struct cachestat_range` and `struct cachestat` of
    //   `linux/mman.h`, two and five words of 64 bits, and live through the call.
    // - `file` is open: it is borrowed.
    let outcome = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            range.as_ptr(),
            counts.as_mut_ptr(),
            libc::c_uint::MIN,
        )
    };
    if outcome != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Bytes(counts[0].saturating_mul(page_bytes() as u64)))
}

/// Whether the page cache is known to hold the whole range.
fn is_cached(file: BorrowedFd<'_>, offset: Bytes, len: Bytes) -> bool {
    let page = page_bytes() as u64;
    let end = offset.0.saturating_add(len.0);
    let needed = (end.div_ceil(page) - offset.0 / page).saturating_mul(page);
    // For the kernel a length of 0 means the whole file.
    len.0 == 0 || cached(file, offset, len).is_ok_and(|it| it.0 >= needed)
}

/// The number is the same on every architecture of Linux; the table of `libc` lacks it.
const SYS_CACHESTAT: libc::c_long = 451;

/// Drops the whole pages of a range of `file` from the page cache, unless they are mapped or dirty.
///
/// Only advice, so its errors are ignored.
pub fn drop_pages(file: BorrowedFd<'_>, offset: Bytes, len: Bytes) {
    let Ok(start) = file_position(offset, 0) else { return };
    let Ok(len) = libc::off_t::try_from(len.0) else { return };
    // SAFETY: no memory is named, and `file` is open: it is borrowed.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), start, len, libc::POSIX_FADV_DONTNEED) };
}

fn file_position(file_offset: Bytes, done: usize) -> io::Result<libc::off_t> {
    let position = file_offset.0.checked_add(done as u64);
    position
        .and_then(|position| libc::off_t::try_from(position).ok())
        .ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Kernels and file systems without `RWF_DONTCACHE` answer `EOPNOTSUPP`, some older ones `EINVAL`.
fn is_unsupported_flag(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL))
}

const _: () =
    assert!(size_of::<libc::off_t>() == size_of::<u64>(), "files are addressed in 64 bits");
