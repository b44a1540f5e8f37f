//! Keeps the page cache out of the I/O of a file, or drops its pages where that is impossible.

use std::{fs, fs::File, io, num::NonZeroU64, os::unix::fs::MetadataExt as _};

use rustix::fs::{Advice, AtFlags, OFlags, StatxFlags, fadvise, fcntl_getfl, fcntl_setfl, statx};
use tierfeed_units::Bytes;

use crate::buffer::ALIGNMENT;

/// What direct I/O requires of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of the start of the memory.
    pub memory: Bytes,
    /// Alignment of offset and length.
    pub offset: Bytes,
}

/// Whether the page cache is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caching {
    /// The page cache is bypassed with `O_DIRECT`.
    Bypassed,
    /// The page cache is used as usual.
    Used,
}

/// What direct I/O on `file` requires; `None` if the file system reports that it supports none.
///
/// For kernels before Linux 6.1 and file systems that report nothing, the larger of 4 KiB and the
/// logical block of their device is assumed.
///
/// # Errors
///
/// If the file's status cannot be read.
///
/// # Source
///
/// `STATX_DIOALIGN` in statx(2).
pub fn alignment(file: &File) -> io::Result<Option<Alignment>> {
    // A kernel that refuses the call (a filter of a container) reports as little as an old one.
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told = told.filter(|it| it.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    if let Some(told) = told {
        let (memory, offset) = (told.stx_dio_mem_align, told.stx_dio_offset_align);
        let alignment = Alignment { memory: Bytes(memory.into()), offset: Bytes(offset.into()) };
        return Ok((offset > 0).then_some(alignment));
    }
    let logical = logical_block(file.metadata()?.dev()).map_or(0, NonZeroU64::get);
    let block = Bytes(logical.max(ALIGNMENT as u64));
    Ok(Some(Alignment { memory: block, offset: block }))
}

/// Turns the page cache of `file` off or on for this descriptor and its duplicates.
///
/// # Errors
///
/// If the file system does not support it. Some accept the flag and refuse the first access, so one
/// has to be tried.
pub fn set_caching(file: &File, caching: Caching) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    let wanted = match caching {
        Caching::Bypassed => flags | OFlags::DIRECT,
        Caching::Used => flags - OFlags::DIRECT,
    };
    Ok(fcntl_setfl(file, wanted)?)
}

/// Drops the pages of `file` that the page cache holds and that are on the device already.
///
/// # Errors
///
/// As `posix_fadvise(2)`. A file system in memory ignores the call without an error.
pub fn drop_cached(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

/// The block size of a device. A partition has no queue of its own; its parent directory is the
/// disk.
fn logical_block(device: u64) -> Option<NonZeroU64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    ["queue", "../queue"].into_iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/logical_block_size");
        fs::read_to_string(path).ok()?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use tierfeed_test_needs::{Need, skip};

    use super::*;
    use crate::AlignedBuffer;

    #[test]
    fn an_access_as_the_alignment_asks_is_taken() {
        let file = tempfile::tempfile().unwrap();
        let Some(alignment) = alignment(&file).unwrap() else {
            skip(Need::DirectIo, "the file system of temporary files cannot");
            return;
        };
        assert!(alignment.offset.0.is_power_of_two() && alignment.memory.0.is_power_of_two());
        assert!(alignment.memory.0 <= ALIGNMENT as u64);
        set_caching(&file, Caching::Bypassed).unwrap();
        let len = usize::try_from(alignment.offset.0).unwrap();
        file.write_all_at(AlignedBuffer::zeroed(len).as_slice(), alignment.offset.0).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 * alignment.offset.0);
    }
}
