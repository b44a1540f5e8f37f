//! A chunk in a file on a RAM disk: it lies where the file system puts it, or on a NUMA node.
//!
//! The node is preferred and read back, never enforced: on a full node the kernel would kill a process.

use std::{fs::File, io, ops::Deref};

use nix::fcntl::{FallocateFlags, fallocate};
use tierfeed_core::{tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Policy, file_placement, place_file};

use crate::tier::{SpaceError, directory::allocate_range};

#[derive(Debug)]
pub(crate) struct RamDiskFile {
    file: File,
    locality: Locality,
    policy: Policy,
}

impl RamDiskFile {
    /// `file` has no memory yet.
    ///
    /// # Errors
    ///
    /// If the file does not take the policy of the node.
    pub(crate) fn new(file: File, len: Bytes, locality: Locality) -> Result<Self, SpaceError> {
        let policy = match locality {
            Locality::Anywhere => Policy::Applied,
            // Huge pages are for files that are long enough (`huge=within_size`).
            node => {
                file.set_len(len.0).map_err(|source| SpaceError::Slice { len, source })?;
                place_file(&file, len, node)?
            }
        };
        Ok(Self { file, locality, policy })
    }

    /// Allocates the memory of a range, and reads back where it lies.
    ///
    /// # Errors
    ///
    /// As `posix_fallocate(3)`, and if it lies on another node; the range has no memory then.
    pub(crate) fn populate(&self, offset: Bytes, len: Bytes) -> Result<(), SpaceError> {
        allocate_range(&self.file, offset, len)
            .map_err(|source| SpaceError::Slice { len, source })?;
        if self.locality == Locality::Anywhere {
            return Ok(());
        }
        let found = file_placement(&self.file, offset, len, (self.locality, self.policy));
        if found.is_err() {
            // The first error is reported; what stays is freed with the file.
            let _ = self.give_back(offset, len);
        }
        Ok(found.map(drop)?)
    }

    fn give_back(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let as_offset =
            |bytes: Bytes| i64::try_from(bytes.0).map_err(|_| io::ErrorKind::InvalidInput);
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        Ok(fallocate(&self.file, flags, as_offset(offset)?, as_offset(len)?)?)
    }
}

impl Deref for RamDiskFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use tierfeed_core::id::NumaNode;
    use tierfeed_test_needs::{Need, skip};

    use super::*;

    const LEN: Bytes = Bytes::mib(2);
    const HALF: Bytes = Bytes::mib(1);

    fn chunk(node: u32) -> Result<RamDiskFile, SpaceError> {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        RamDiskFile::new(file, LEN, Locality::Numa(NumaNode(node)))
    }

    #[test]
    fn a_chunk_gets_memory_range_by_range_where_it_was_placed() {
        let chunk = chunk(0).unwrap();
        if chunk.policy == Policy::Denied {
            return skip(Need::MemoryPolicies, "mbind is denied");
        }
        assert_eq!(chunk.metadata().unwrap().blocks(), 0);
        chunk.populate(HALF, HALF).unwrap();
        assert_eq!(chunk.metadata().unwrap().blocks() * 512, HALF.0);
    }

    #[test]
    fn what_lies_on_another_node_is_given_back() {
        let here = chunk(0).unwrap();
        let elsewhere = RamDiskFile { locality: Locality::Numa(NumaNode(999)), ..here };
        let error = elsewhere.populate(Bytes(0), LEN).unwrap_err();
        assert!(
            error.to_string().contains("0 of 16 sampled pages lie on NUMA node 999"),
            "{error}"
        );
        assert_eq!(elsewhere.metadata().unwrap().blocks(), 0);
    }

    #[test]
    fn a_node_that_is_not_there_takes_no_chunk() {
        assert!(chunk(900).is_err());
    }
}
