//! Mounts RAM disks whose pages lie on a NUMA node, and reads back whether they do.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use nix::{
    errno::Errno,
    fcntl::posix_fallocate,
    libc,
    mount::{MsFlags, mount},
};
use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{Placement, Policy, file_placement};

/// The length of the file by which the placement is read back.
const SAMPLE: Bytes = Bytes(64 << 10);

/// Mounts a RAM disk, with huge pages if the kernel has them for files. Returns its options.
///
/// # Errors
///
/// As `mount(2)`: `EPERM` without the right to mount.
pub(super) fn mount_on(
    path: &Path,
    source: &str,
    size: Bytes,
    node: Option<NumaNode>,
) -> Result<String, Errno> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let place = node.map_or_else(String::new, |node| format!(",mpol=prefer=static:{}", node.0));
    let mut refused = Errno::EINVAL;
    for huge in [",huge=within_size", ""] {
        let options = format!("size={},mode=0700{place}{huge}", size.0);
        match mount(Some(source), path, Some("tmpfs"), flags, Some(options.as_str())) {
            Ok(()) => return Ok(options),
            // A kernel without huge pages for files.
            Err(Errno::EINVAL) => refused = Errno::EINVAL,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

/// Whether a file that is written to a RAM disk lies on `node`; `None` if the kernel does not tell, or the
/// disk is full.
pub(super) fn lies_on(path: &Path, node: NumaNode) -> Option<bool> {
    let mut options = OpenOptions::new();
    let file: File =
        options.read(true).write(true).custom_flags(libc::O_TMPFILE).open(path).ok()?;
    posix_fallocate(&file, 0, i64::try_from(SAMPLE.0).ok()?).ok()?;
    let wanted = (Locality::Near(node), Policy::Applied);
    match file_placement(&file, Bytes(0), SAMPLE, wanted).ok()? {
        Placement::Preferred { pages_sampled, pages_on_node, .. } => {
            Some(pages_sampled == pages_on_node)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_elsewhere_is_told() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        assert_ne!(lies_on(folder.path(), NumaNode(0)), Some(false));
        assert_ne!(lies_on(folder.path(), NumaNode(900)), Some(true));
        assert_eq!(lies_on(&folder.path().join("missing"), NumaNode(0)), None);
    }
}
