//! Reads the block device behind a mount: how it is queued, where it hangs, whether it is one at all.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sysroot::{
    Sysroot, entries, numbered_entries, optional, optional_node, optional_number,
};

/// What a block device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockKind {
    /// An `NVMe` namespace.
    Nvme,
    /// Compressed memory (`zram`) or plain memory (`ram`).
    Memory,
    /// A file on another file system (`loop`).
    File,
    /// Other block devices: device mapper, software RAID.
    Stacked,
    /// Anything else: SATA, SAS, virtio.
    Other,
}

/// A whole device; partitions have no queue of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockDevice {
    /// Its name, for instance `nvme0n1`.
    pub name: String,
    /// What it is made of.
    pub kind: BlockKind,
    /// Whether it says that it rotates.
    pub rotational: Option<bool>,
    /// The smallest piece that can be read or written past the page cache.
    pub logical_block_bytes: Option<u64>,
    /// The smallest piece that the medium writes without reading first.
    pub physical_block_bytes: Option<u64>,
    /// The scheduler in use, for instance `none`.
    pub scheduler: Option<String>,
    /// `write back` if the device may lose what was written, else `write through`.
    pub write_cache: Option<String>,
    /// How many requests its queue takes.
    pub queue_requests: Option<u64>,
    /// The node that it hangs at, where the firmware tells; of a stacked device, where all agree.
    pub numa_node: Option<u32>,
    /// What its maker calls it.
    pub model: Option<String>,
    /// The file behind a loop device.
    pub backing_file: Option<PathBuf>,
    /// The devices below a stacked one.
    pub members: Vec<String>,
}

/// The device with the number `device`, or with the name in `source`: file systems over several devices
/// (btrfs) have numbers of their own.
pub(crate) fn read(sysroot: Sysroot<'_>, device: &str, source: &str) -> Option<BlockDevice> {
    let by_number = sysroot.join("sys/dev/block").join(device);
    let by_name =
        source.strip_prefix("/dev/").map(|name| sysroot.join("sys/class/block").join(name));
    let mut found = [Some(by_number), by_name].into_iter().flatten();
    let disk = found.find_map(|entry| whole_device(sysroot, &entry))?;
    Some(describe(sysroot, &disk))
}

/// A partition is a directory in the directory of its disk.
fn whole_device(sysroot: Sysroot<'_>, entry: &Path) -> Option<PathBuf> {
    let place = sysroot.resolve(entry)?;
    let mut candidates = place.ancestors().take(2);
    candidates.find(|place| place.join("queue").is_dir()).map(Path::to_owned)
}

fn describe(sysroot: Sysroot<'_>, disk: &Path) -> BlockDevice {
    let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let queue = disk.join("queue");
    let number = |name: &str| optional_number(&queue.join(name));
    let members = entries(&disk.join("slaves"));
    BlockDevice {
        kind: kind(&name, &members),
        rotational: number("rotational").map(|value| value != 0),
        logical_block_bytes: number("logical_block_size"),
        physical_block_bytes: number("physical_block_size"),
        scheduler: optional(&queue.join("scheduler")).map(|text| chosen(&text).to_owned()),
        write_cache: optional(&queue.join("write_cache")),
        queue_requests: number("nr_requests"),
        numa_node: numa_node(sysroot, disk, &members),
        model: optional(&disk.join("device/model")).filter(|model| !model.is_empty()),
        backing_file: optional(&disk.join("loop/backing_file")).map(PathBuf::from),
        members,
        name,
    }
}

fn kind(name: &str, members: &[String]) -> BlockKind {
    let numbered = |prefix: &str| {
        let rest = name.strip_prefix(prefix).unwrap_or_default();
        rest.starts_with(|first: char| first.is_ascii_digit())
    };
    if !members.is_empty() || numbered("dm-") || numbered("md") {
        BlockKind::Stacked
    } else if numbered("zram") || numbered("ram") {
        BlockKind::Memory
    } else if numbered("loop") {
        BlockKind::File
    } else if numbered("nvme") {
        BlockKind::Nvme
    } else {
        BlockKind::Other
    }
}

/// `mq-deadline [none]`; a device without a choice writes `none`.
fn chosen(text: &str) -> &str {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text, |(chosen, _)| chosen)
}

/// An `NVMe` namespace with several paths hangs at no bus but at a virtual subsystem, and the
/// controllers stand beside it there.
fn numa_node(sysroot: Sysroot<'_>, disk: &Path, members: &[String]) -> Option<u32> {
    if let Some(node) = sysroot.nearest_node(disk) {
        return Some(node);
    }
    let below = members.iter().map(|name| sysroot.join("sys/class/block").join(name));
    let subsystem = disk.parent()?;
    let controllers = numbered_entries(subsystem, "nvme").into_iter();
    let controllers = controllers.map(|number| subsystem.join(format!("nvme{number}")));
    let nodes: Vec<Option<u32>> = below
        .map(|device| sysroot.nearest_node(&device))
        .chain(controllers.map(|it| optional_node(&it.join("numa_node"))))
        .collect();
    let first = *nodes.first()?;
    first.filter(|_| nodes.iter().all(|node| *node == first))
}
