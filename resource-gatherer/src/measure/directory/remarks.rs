//! Says what a reader of the figures must know of the place where they were taken.

use std::path::Path;

use tierfeed_core::units::Bytes;

use crate::{
    figures::Access,
    inventory::mount::{Medium, Mount},
};

pub(super) fn of_mount(mount: &Mount) -> Option<String> {
    let file_system = mount.file_system.as_str();
    let source = &mount.source;
    if file_system == "overlay" {
        let upper = mount.options.split(',').find_map(|option| option.strip_prefix("upperdir="));
        let upper = upper.unwrap_or("an upper directory that it does not name");
        return Some(format!("overlayfs: files lie in {upper}, and the figures are of its device"));
    }
    if mount.medium == Medium::Network || file_system.starts_with("fuse") {
        return Some(format!(
            "{file_system} from {source}: the figures are of the way there and of caches on it, and \
             other clients share it"
        ));
    }
    if is_device(source, "zram") {
        return Some(format!("{source} compresses in memory; what is measured does not compress"));
    }
    if is_device(source, "loop") || mount.device.starts_with("7:") {
        return Some(format!("{source} is a file on another file system, which may cache it"));
    }
    None
}

pub(super) fn of_access(access: Access, medium: Medium) -> Option<String> {
    (access == Access::Buffered && medium != Medium::Memory).then(|| {
        "direct I/O is refused, so reads go through the page cache, dropped before them: caches \
         elsewhere and blocks read twice make it look faster"
            .to_owned()
    })
}

pub(super) fn of_engine(medium: Medium) -> Option<String> {
    (medium == Medium::Memory).then(|| {
        "at depths above one, requests are handed to threads, which costs more than to copy 4 KiB"
            .to_owned()
    })
}

pub(super) fn of_length(written: Bytes, wanted: Bytes) -> Option<String> {
    (written < wanted).then(|| {
        format!(
            "the file is {written} instead of {wanted}, for lack of room or time; a cache of the \
             device may hold it"
        )
    })
}

fn is_device(source: &str, name: &str) -> bool {
    let device = Path::new(source).strip_prefix("/dev").ok().and_then(Path::to_str);
    let number = device.and_then(|device| device.strip_prefix(name));
    number.is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(file_system: &str, source: &str, device: &str, medium: Medium) -> Mount {
        Mount {
            path: "/x".into(),
            root: "/".into(),
            file_system: file_system.to_owned(),
            source: source.to_owned(),
            device: device.to_owned(),
            medium,
            options: "rw,lowerdir=/l,upperdir=/srv/up,workdir=/w".to_owned(),
            overlay_upper: Some("/srv/up".into()),
        }
    }

    fn check(mount: &Mount, expected: Option<&str>) {
        let remark = of_mount(mount);
        match expected {
            Some(part) => assert!(remark.unwrap_or_default().contains(part), "{part}"),
            None => assert_eq!(remark, None),
        }
    }

    #[test]
    fn what_is_no_plain_disk_is_flagged() {
        check(&mount("overlay", "overlay", "0:40", Medium::Other), Some("/srv/up"));
        check(
            &mount("nfs4", "server:/data", "0:50", Medium::Network),
            Some("nfs4 from server:/data"),
        );
        check(&mount("fuse.sshfs", "host:", "0:51", Medium::Other), Some("other clients"));
        check(&mount("ext4", "/dev/zram1", "252:1", Medium::SolidState), Some("compresses"));
        check(&mount("ext4", "/dev/loop0", "7:0", Medium::Rotating), Some("another file system"));
        check(&mount("ext4", "/dev/loopback", "8:1", Medium::SolidState), None);
        check(&mount("xfs", "/dev/nvme0n1", "259:0", Medium::SolidState), None);
        check(&mount("tmpfs", "tmpfs", "0:3", Medium::Memory), None);
    }

    #[test]
    fn the_page_cache_is_no_detour_of_a_ram_disk() {
        assert!(of_access(Access::Buffered, Medium::SolidState).is_some());
        assert!(of_access(Access::Buffered, Medium::Memory).is_none());
        assert!(of_access(Access::Direct, Medium::SolidState).is_none());
    }

    #[test]
    fn a_shorter_file_is_told() {
        assert!(
            of_length(Bytes::mib(8), Bytes::mib(16)).unwrap().contains("8 MiB instead of 16 MiB")
        );
        assert_eq!(of_length(Bytes::mib(16), Bytes::mib(16)), None);
    }
}
