//! A file to measure a directory with: never visible, gone with the process, past the page cache where
//! the file system can.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, PosixFadviseAdvice, fcntl, posix_fadvise},
};
use tierfeed_core::units::Bytes;

use crate::report::Access;

/// What offset, length and memory of direct I/O are multiples of: no device asks for more.
pub(super) const ALIGNMENT: usize = 4096;

/// A file without a name in the directory that is measured.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    access: Access,
}

impl DirectFile {
    /// Creates the file. It is unlinked from the start, so even a killed probe leaves nothing behind.
    ///
    /// Some file systems take the flag for direct I/O and refuse the first access, so one block is
    /// written to find out.
    pub(super) fn create_in(directory: &Path) -> io::Result<Self> {
        let file = tempfile::tempfile_in(directory)?;
        let block = AlignedBuffer::new(ALIGNMENT);
        let is_direct = set_flags(&file, OFlag::O_DIRECT).is_ok()
            && file.write_all_at(block.as_slice(), 0).is_ok();
        if !is_direct {
            set_flags(&file, OFlag::empty())?;
        }
        Ok(Self { file, access: if is_direct { Access::Direct } else { Access::Buffered } })
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    /// Writes all of `block`, and through to the device where the page cache lies between.
    pub(super) fn write(&self, block: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(block, offset)?;
        match self.access {
            Access::Direct => Ok(()),
            Access::Buffered => self.file.sync_data(),
        }
    }

    /// Reads all of `block`.
    pub(super) fn read(&self, block: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(block, offset)
    }

    /// Waits until everything is on the device.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Drops the page cache of the file, where reads would otherwise find it.
    pub(super) fn forget_cache(&self) -> io::Result<()> {
        match self.access {
            Access::Direct => Ok(()),
            Access::Buffered => {
                let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
                Ok(posix_fadvise(&self.file, 0, 0, advice)?)
            }
        }
    }
}

fn set_flags(file: &File, flags: OFlag) -> Result<(), Errno> {
    fcntl(file, FcntlArg::F_SETFL(flags)).map(drop)
}

/// Memory that starts on a multiple of [`ALIGNMENT`].
#[derive(Debug)]
pub(super) struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuffer {
    pub(super) fn new(len: usize) -> Self {
        let bytes = vec![0; len + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self { bytes, start, len }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(super) fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// The room of a file system.
pub(super) struct Room {
    /// All its blocks.
    pub(super) total: Bytes,
    /// What this process may still write.
    pub(super) free: Bytes,
}

/// The room of the file system that holds `directory`.
pub(super) fn room(directory: &Path) -> io::Result<Room> {
    let status = nix::sys::statvfs::statvfs(directory)?;
    let bytes = |blocks: u64| Bytes(blocks.saturating_mul(status.fragment_size()));
    Ok(Room { total: bytes(status.blocks()), free: bytes(status.blocks_available()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_name_appears() {
        let directory = tempfile::tempdir().unwrap();
        let file = DirectFile::create_in(directory.path()).unwrap();
        let mut block = AlignedBuffer::new(2 * ALIGNMENT);
        block.as_mut_slice().fill(7);
        file.write(block.as_slice(), 8192).unwrap();
        file.sync().unwrap();
        file.forget_cache().unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        block.as_mut_slice().fill(0);
        file.read(block.as_mut_slice(), 8192).unwrap();
        assert!(block.as_slice().iter().all(|byte| *byte == 7));
    }

    #[test]
    fn buffers_are_aligned() {
        for len in [1, ALIGNMENT, 1 << 20] {
            let buffer = AlignedBuffer::new(len);
            assert_eq!(buffer.as_slice().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(buffer.as_slice().len(), len);
        }
    }
}
