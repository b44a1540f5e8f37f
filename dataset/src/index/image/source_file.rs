//! Decides how an index file is loaded: mapped, or read.
//!
//! A mapped file takes no memory that the kernel could not reclaim, and all processes of a node
//! share it. But a page that cannot be read any more ends the process by `SIGBUS`. On a file system
//! of another host that happens if its server fails, or another node replaces the index. So only
//! files on local file systems are mapped, and none by processes that train.

use std::{
    fs::File,
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
};

use rustix::fs::fstatfs;
use tierfeed_numa_memory::FileBytes;

use super::{HEADER_BYTES, Storage, header};
use crate::index::FileFault;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::index) enum Access {
    /// Mapped if that is safe, else read.
    MappedIfLocal,
    /// Read: later changes of the file have no effect.
    Read,
}

/// File systems whose pages do not depend on another host, by their `f_type`: ext2 to ext4, XFS,
/// Btrfs, F2FS, bcachefs, ZFS, tmpfs, ramfs and overlayfs, which writes to a local one. Files on
/// all others, unknown ones too, are read.
///
/// # Source
///
/// `linux/magic.h`, `fs/xfs/libxfs/xfs_format.h`, `fs/bcachefs/bcachefs_format.h`, `OpenZFS`
/// `include/os/linux/zfs/sys/zfs_vfsops_os.h`.
const LOCAL: [u64; 9] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0xF2F5_2010,
    0xCA45_1A4E,
    0x2FC1_2FC1,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
];

pub(super) fn load(file: &File, access: Access) -> Result<Storage, FileFault> {
    if access == Access::MappedIfLocal && is_on_local_disk(file) {
        return Ok(Storage::File(FileBytes::map(file)?));
    }
    Ok(Storage::Memory(read(file)?))
}

fn is_on_local_disk(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| is_local(u64::try_from(found.f_type).unwrap_or(0)))
}

fn is_local(file_system: u64) -> bool {
    LOCAL.contains(&file_system)
}

/// Reads all bytes. The header is read first: memory is taken only for a file of the length in its
/// header.
fn read(file: &File) -> Result<Vec<u8>, FileFault> {
    let len = file.metadata()?.len();
    let mut start = [0; HEADER_BYTES];
    let there = usize::try_from(len).unwrap_or(usize::MAX).min(HEADER_BYTES);
    file.read_exact_at(&mut start[..there], 0)?;
    header::parse(&start[..there], len)?;
    let no_room = || io::Error::from(io::ErrorKind::OutOfMemory);
    let capacity = usize::try_from(len).map_err(|_| no_room())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(capacity).map_err(|_| no_room())?;
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NFS, Lustre, FUSE, CIFS and SMB2, GPFS, `BeeGFS`, `CephFS`, 9p, AFS and its kernel client,
    /// OCFS2, GFS2, vboxsf, and a number of no file system.
    const REMOTE: [u64; 15] = [
        0x6969,
        0x0BD0_0BD0,
        0x6573_5546,
        0xFF53_4D42,
        0xFE53_4D42,
        0x4750_4653,
        0x1983_0326,
        0x00C3_6400,
        0x0102_1997,
        0x5346_414F,
        0x6B41_4653,
        0x7461_636F,
        0x0116_1970,
        0x786F_4256,
        0,
    ];

    #[test]
    fn no_file_system_of_another_host_is_mapped() {
        assert_eq!(REMOTE.map(is_local), [false; REMOTE.len()]);
    }

    #[test]
    fn a_file_that_is_much_longer_than_it_says_takes_no_memory() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 42).unwrap();
        file.write_all_at(&super::super::MAGIC, 0).unwrap();
        let refused = load(&file, Access::Read);
        assert!(matches!(refused, Err(FileFault::Version { .. })), "it is sparse, and no index");
    }
}
