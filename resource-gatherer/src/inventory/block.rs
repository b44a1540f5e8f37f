//! Reads what of the block device behind a mount decides its medium.

use std::path::{Path, PathBuf};

use crate::sysroot::{Sysroot, optional, optional_number};

/// A whole device; partitions have no queue of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockDevice {
    /// Whether it keeps its bytes in memory: `zram` or `ram`.
    pub(super) is_memory: bool,
    pub(super) rotational: Option<bool>,
    /// The file behind a loop device.
    pub(super) backing_file: Option<PathBuf>,
}

/// The device with the number `device`, or with the name in `source`, because file systems over several
/// devices (btrfs) have numbers of their own.
pub(super) fn read(sysroot: Sysroot<'_>, device: &str, source: &str) -> Option<BlockDevice> {
    let by_number = sysroot.join("sys/dev/block").join(device);
    let by_name =
        source.strip_prefix("/dev/").map(|name| sysroot.join("sys/class/block").join(name));
    let mut found = [Some(by_number), by_name].into_iter().flatten();
    let disk = found.find_map(|entry| whole_device(sysroot, &entry))?;
    let name = disk.file_name()?.to_string_lossy();
    Some(BlockDevice {
        is_memory: ["zram", "ram"].iter().any(|prefix| is_numbered(&name, prefix)),
        rotational: optional_number(&disk.join("queue/rotational")).map(|value| value != 0),
        backing_file: optional(&disk.join("loop/backing_file")).map(PathBuf::from),
    })
}

/// A partition is a directory in the directory of its disk.
fn whole_device(sysroot: Sysroot<'_>, entry: &Path) -> Option<PathBuf> {
    let place = sysroot.resolve(entry)?;
    let mut candidates = place.ancestors().take(2);
    candidates.find(|place| place.join("queue").is_dir()).map(Path::to_owned)
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    let rest = name.strip_prefix(prefix).unwrap_or_default();
    rest.starts_with(|first: char| first.is_ascii_digit())
}
