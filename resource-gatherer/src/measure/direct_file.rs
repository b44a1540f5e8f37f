//! A file to measure a directory with: never visible, gone with the process, past the page cache where
//! the file system can.

use std::{fs::File, io, os::unix::fs::FileExt, path::Path, sync::Arc};

use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_file_io::{
    AlignedBuffer,
    buffer::ALIGNMENT,
    direct::{self, Caching},
};
use tierfeed_numa_memory::{AllocateError, Policy, file_placement, place_file};

use crate::figures::Access;

#[derive(Debug)]
pub(super) struct DirectFile {
    file: Arc<File>,
    access: Access,
}

impl DirectFile {
    /// Creates the file. It is unlinked from the start, so even a killed probe leaves nothing behind.
    ///
    /// Some file systems take the flag for direct I/O and refuse the first access, so one block is
    /// written to find out. One that asks for more than 4 KiB is read through the page cache, because
    /// blocks of 4 KiB are what is measured.
    pub(super) fn create_in(directory: &Path) -> io::Result<Self> {
        let file = tempfile::tempfile_in(directory)?;
        let is_aligned = direct::alignment(&file)?
            .is_some_and(|it| it.memory.0.max(it.offset.0) <= ALIGNMENT as u64);
        let block = AlignedBuffer::zeroed(ALIGNMENT);
        let is_direct = is_aligned
            && direct::set_caching(&file, Caching::Bypassed).is_ok()
            && file.write_all_at(block.as_slice(), 0).is_ok();
        if !is_direct {
            direct::set_caching(&file, Caching::Used)?;
        }
        let access = if is_direct { Access::Direct } else { Access::Buffered };
        Ok(Self { file: Arc::new(file), access })
    }

    /// Places `len` bytes, none of which is kept, on a NUMA node. The file must lie on a RAM disk.
    pub(super) fn place_on(&self, node: NumaNode, len: Bytes) -> Result<Placed, PlaceError> {
        // What was written to find the access lies anywhere; and huge pages are for files that are long enough.
        self.file.set_len(0)?;
        self.file.set_len(len.0)?;
        let locality = Locality::Numa(node);
        Ok(Placed { locality, policy: place_file(&self.file, len, locality)? })
    }

    /// Reads back whether the first `len` bytes lie where they were placed.
    pub(super) fn verify(&self, placed: Placed, len: Bytes) -> Result<(), PlaceError> {
        let Placed { locality, policy } = placed;
        Ok(file_placement(&self.file, Bytes(0), len, (locality, policy)).map(drop)?)
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn shared(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Waits until the device has what the page cache took, if the file is read through it.
    pub(super) fn write_through(&self) -> io::Result<()> {
        match self.access {
            Access::Direct => Ok(()),
            Access::Buffered => self.file.sync_data(),
        }
    }

    /// Drops the page cache of the file if reads go through it.
    pub(super) fn forget_cache(&self) -> io::Result<()> {
        match self.access {
            Access::Direct => Ok(()),
            Access::Buffered => direct::drop_cached(&self.file),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Placed {
    locality: Locality,
    policy: Policy,
}

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    Length(#[from] io::Error),
    #[error(transparent)]
    Elsewhere(#[from] AllocateError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_no_name_appears() {
        let directory = tempfile::tempdir().unwrap();
        let file = DirectFile::create_in(directory.path()).unwrap();
        let mut block = AlignedBuffer::zeroed(2 * ALIGNMENT);
        block.as_mut_slice().fill(7);
        file.shared().write_all_at(block.as_slice(), 8192).unwrap();
        file.write_through().unwrap();
        file.sync().unwrap();
        file.forget_cache().unwrap();
        assert_eq!(directory.path().read_dir().unwrap().count(), 0);
        block.as_mut_slice().fill(0);
        file.shared().read_exact_at(block.as_mut_slice(), 8192).unwrap();
        assert!(block.as_slice().iter().all(|byte| *byte == 7));
    }
}
