//! The mounts of a host by its inventory, which may be that of another host.

use std::path::Path;

use tierfeed_resource_gatherer::inventory::mount::{Medium, Mount};

/// The mount that a path is on: the longest that contains it, and of equal ones the last.
pub(super) fn mount_of<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let containing = mounts.iter().filter(|mount| path.starts_with(&mount.path));
    containing.max_by_key(|mount| mount.path.components().count())
}

/// Whether two directories lie on one device that is no RAM disk.
pub(super) fn is_one_disk(mounts: &[Mount], one: &Path, other: &Path) -> bool {
    let (Some(one), Some(other)) = (mount_of(mounts, one), mount_of(mounts, other)) else {
        return false;
    };
    one.device == other.device && one.medium != Medium::Memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_one_device_share_a_disk_unless_it_is_memory() {
        let mount = |path: &str, medium, device: &str| Mount {
            path: path.into(),
            root: "/".into(),
            file_system: String::new(),
            source: String::new(),
            device: device.to_owned(),
            medium,
            options: String::new(),
            overlay_upper: None,
        };
        let mounts = [
            mount("/", Medium::SolidState, "8:1"),
            mount("/home", Medium::SolidState, "8:1"),
            mount("/scratch", Medium::Memory, "0:30"),
            mount("/nvme", Medium::SolidState, "259:0"),
        ];
        let is_one = |one: &str, other: &str| is_one_disk(&mounts, one.as_ref(), other.as_ref());
        assert!(is_one("/var/tierfeed", "/home/data") && is_one("/nvme/cache", "/nvme/data"));
        assert!(!is_one("/nvme/cache", "/data"));
        assert!(!is_one("/scratch/cache", "/scratch/data"));
    }
}
