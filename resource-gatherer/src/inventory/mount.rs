//! Reads the mounts of this process and the device behind each: a directory is as fast as its device.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::block::{self, BlockDevice};
use crate::sysroot::{ReadError, Sysroot, malformed};

/// The kind of device, which decides its speed on random access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Pages of memory: `tmpfs`, `ramfs`, `hugetlbfs`, a disk in memory.
    Memory,
    /// A block device that says that it does not rotate.
    SolidState,
    /// A block device that says that it rotates.
    Rotating,
    Network,
    /// Anything else, such as a file system over others, or of the kernel.
    Other,
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    pub path: PathBuf,
    /// The part of the file system that is mounted: `/`, or a directory of it.
    pub root: PathBuf,
    /// For instance `ext4`.
    pub file_system: String,
    /// The device as the file system names it.
    pub source: String,
    /// `major:minor`.
    pub device: String,
    pub medium: Medium,
    /// The options of the file system, for instance `rw,memory`.
    pub options: String,
    /// The directory that an overlay writes to; in a container often one of the host's, and then not
    /// to be found here.
    pub overlay_upper: Option<PathBuf>,
}

/// All mounts in the order of mounting.
pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Result<Vec<Mount>, ReadError> {
    let mut mounts = lines(sysroot)?;
    let mut kept_in = Vec::new();
    for mount in &mut mounts {
        let block = block::read(sysroot, &mount.device, &mount.source);
        mount.medium = own_medium(mount, block.as_ref());
        let file = block.and_then(|block| block.backing_file);
        kept_in.push(mount.overlay_upper.clone().or(file));
    }
    for (at, path) in kept_in.iter().enumerate() {
        let below = path.as_deref().and_then(|path| medium_below(&mounts, &mounts[at], path));
        mounts[at].medium = below.unwrap_or(mounts[at].medium);
    }
    Ok(mounts)
}

/// All mounts as they are listed; nothing is looked up on any device.
///
/// # Errors
///
/// The list is missing, or is not what the kernel documents.
pub fn lines(sysroot: Sysroot<'_>) -> Result<Vec<Mount>, ReadError> {
    const EXPECTED: &str = "id, parent, device, root, path, options, -, type, source";
    let text = sysroot.require("proc/self/mountinfo")?;
    let parse = |line| {
        parse_line(line)
            .ok_or_else(|| malformed(sysroot.join("proc/self/mountinfo"), line, EXPECTED))
    };
    text.lines().map(parse).collect()
}

/// The mount that `path` lies on. Later mounts hide earlier ones.
#[must_use]
pub fn holding<'mounts>(mounts: &'mounts [Mount], path: &Path) -> Option<&'mounts Mount> {
    let depth = |mount: &Mount| mount.path.components().count();
    mounts.iter().filter(|mount| path.starts_with(&mount.path)).max_by_key(|mount| depth(mount))
}

fn parse_line(line: &str) -> Option<Mount> {
    let (mounted, file_system) = line.split_once(" - ")?;
    let mut mounted = mounted.split(' ').skip(2);
    let mut fields = file_system.split(' ');
    let (file_system, source) = (fields.next()?, fields.next()?);
    let options = fields.next().unwrap_or_default();
    let upper = || options.split(',').find_map(|option| option.strip_prefix("upperdir="));
    Some(Mount {
        device: mounted.next()?.to_owned(),
        root: unescape(mounted.next()?).into(),
        path: unescape(mounted.next()?).into(),
        file_system: file_system.to_owned(),
        source: unescape(source),
        medium: Medium::Other,
        options: options.to_owned(),
        overlay_upper: upper().map(|path| unescape(path).into()),
    })
}

/// The kernel writes blanks, line ends and backslashes as `\` and three octal digits.
fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(byte) = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            plain.push(char::from(byte));
            plain.push_str(&part[3..]);
        } else {
            plain.push('\\');
            plain.push_str(part);
        }
    }
    plain
}

fn own_medium(mount: &Mount, block: Option<&BlockDevice>) -> Medium {
    match mount.file_system.as_str() {
        "tmpfs" | "ramfs" | "hugetlbfs" => Medium::Memory,
        "nfs" | "nfs4" | "cifs" | "smb3" | "lustre" | "ceph" | "9p" | "beegfs" | "gpfs" => {
            Medium::Network
        }
        _ => match block {
            Some(block) if block.is_memory => Medium::Memory,
            Some(BlockDevice { rotational: Some(false), .. }) => Medium::SolidState,
            Some(BlockDevice { rotational: Some(true), .. }) => Medium::Rotating,
            _ => Medium::Other,
        },
    }
}

/// The medium of the file system that an overlay or a loop device keeps its bytes on, in `path`. One step
/// only: the path may be another host's view, and lead back to the mount itself.
fn medium_below(mounts: &[Mount], mount: &Mount, path: &Path) -> Option<Medium> {
    let below = holding(mounts, path)?;
    (below.path != mount.path).then_some(below.medium)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_blanks_is_read() {
        let line =
            r"36 35 98:0 /a /mnt/my\040disk rw,noatime shared:1 master:2 - ext3 /dev/sda1 rw,x";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.path, Path::new("/mnt/my disk"));
        assert_eq!(mount.root, Path::new("/a"));
        assert_eq!((mount.file_system.as_str(), mount.device.as_str()), ("ext3", "98:0"));
        assert_eq!(mount.options, "rw,x");
    }

    #[test]
    fn the_deepest_and_latest_mount_holds_a_path() {
        let mount = |path: &str, source: &str| {
            parse_line(&format!("1 1 0:1 / {path} rw - tmpfs {source} rw")).unwrap()
        };
        let mounts = [mount("/", "a"), mount("/dev/shm", "b"), mount("/dev/shm", "c")];
        let source = |path| holding(&mounts, Path::new(path)).unwrap().source.clone();
        assert_eq!(source("/dev/shm/x"), "c");
        assert_eq!(source("/dev/shmx"), "a");
    }
}
