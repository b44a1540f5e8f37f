//! Reads the mounts of this process and the device behind each: a directory is as fast as its device.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::sysroot::{ReadError, Sysroot, malformed, optional_number};

/// What a device does on random access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Pages of memory: `tmpfs`, `ramfs`, `hugetlbfs`.
    Memory,
    /// A block device without moving parts, or one that says so.
    SolidState,
    /// A block device that says that it rotates.
    Rotating,
    /// A file system on another host.
    Network,
    /// A file system over others, or of the kernel.
    Other,
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Where it is mounted.
    pub path: PathBuf,
    /// What of the file system is mounted: `/`, or a directory of it.
    pub root: PathBuf,
    /// The type, for instance `ext4`.
    pub file_system: String,
    /// The device as the file system names it.
    pub source: String,
    /// The number of the device, `major:minor`.
    pub device: String,
    /// What is behind it.
    pub medium: Medium,
    /// The options of the file system, for instance `rw,memory`.
    pub options: String,
}

/// All mounts in the order of mounting.
pub(crate) fn read_all(sysroot: Sysroot<'_>) -> Result<Vec<Mount>, ReadError> {
    let text = sysroot.require("proc/self/mountinfo")?;
    text.lines()
        .map(|line| {
            let mut mount = parse_line(line).ok_or_else(|| {
                let path = sysroot.join("proc/self/mountinfo");
                malformed(path, line, "id, parent, device, root, path, options, -, type, source")
            })?;
            mount.medium = medium(sysroot, &mount);
            Ok(mount)
        })
        .collect()
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
    let mut file_system = file_system.split(' ');
    Some(Mount {
        device: mounted.next()?.to_owned(),
        root: unescape(mounted.next()?).into(),
        path: unescape(mounted.next()?).into(),
        file_system: file_system.next()?.to_owned(),
        source: unescape(file_system.next()?),
        medium: Medium::Other,
        options: file_system.next().unwrap_or_default().to_owned(),
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

fn medium(sysroot: Sysroot<'_>, mount: &Mount) -> Medium {
    match mount.file_system.as_str() {
        "tmpfs" | "ramfs" | "hugetlbfs" => Medium::Memory,
        "nfs" | "nfs4" | "cifs" | "smb3" | "lustre" | "ceph" | "9p" | "beegfs" | "gpfs" => {
            Medium::Network
        }
        _ => match rotational(sysroot, mount) {
            Some(0) => Medium::SolidState,
            Some(_) => Medium::Rotating,
            None => Medium::Other,
        },
    }
}

/// A partition has no queue of its own; its parent directory is the disk. File systems over several
/// devices (btrfs) have numbers of their own, so the name of the source is asked too.
fn rotational(sysroot: Sysroot<'_>, mount: &Mount) -> Option<u64> {
    let by_number = sysroot.join("sys/dev/block").join(&mount.device);
    let by_name =
        mount.source.strip_prefix("/dev/").map(|n| sysroot.join("sys/class/block").join(n));
    [Some(by_number), by_name].into_iter().flatten().find_map(|device| {
        ["queue/rotational", "../queue/rotational"]
            .into_iter()
            .find_map(|queue| optional_number(&device.join(queue)))
    })
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
