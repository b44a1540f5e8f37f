//! The host's pool of reserved huge pages: whether it has enough, and how to allocate from it.
//!
//! The pool is checked before an allocation: the first touch of a mapping of an empty pool would
//! raise `SIGBUS`. The mapping then reserves the pages, so that no other process takes them in
//! between.

use std::{fs, path::Path};

use nix::sys::memfd::MFdFlags;
use tierfeed_units::{Bytes, Locality};

/// The size of the pages: the default on `x86_64` and `AArch64`, unless the administrator chooses
/// another.
pub(super) const HUGE_PAGE: Bytes = Bytes(2 << 20);

/// The flags of a memfd of such pages.
pub(super) const FLAGS: MFdFlags = MFdFlags::MFD_HUGETLB.union(MFdFlags::MFD_HUGE_2MB);

/// `len` in whole huge pages, if the pool has as many unreserved ones.
pub(super) fn room_for(sysroot: &Path, len: Bytes, locality: Locality) -> Option<Bytes> {
    let rounded = Bytes(len.0.checked_next_multiple_of(HUGE_PAGE.0)?);
    let pool = sysroot.join("sys/kernel/mm/hugepages/hugepages-2048kB");
    let unreserved =
        count(&pool.join("free_hugepages"))?.saturating_sub(count(&pool.join("resv_hugepages"))?);
    let there = match locality {
        Locality::Anywhere => unreserved,
        Locality::Numa(node) | Locality::Near(node) => {
            let node = format!("sys/devices/system/node/node{}/hugepages/hugepages-2048kB", node.0);
            unreserved.min(count(&sysroot.join(node).join("free_hugepages"))?)
        }
    };
    (rounded.0 / HUGE_PAGE.0 <= there && rounded.0 > 0).then_some(rounded)
}

fn count(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use tierfeed_units::NumaNode;

    use super::*;

    fn host(free: &str, reserved: &str, on_node: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", reserved),
            ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", on_node),
        ];
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn pages_that_somebody_reserved_are_not_counted() {
        let root = host("10\n", "6\n", "3\n");
        let found = |mib| room_for(root.path(), Bytes::mib(mib), Locality::Anywhere);
        assert_eq!(found(8), Some(Bytes::mib(8)));
        assert_eq!(found(7), Some(Bytes::mib(8)), "in whole pages");
        assert_eq!(found(9), None);
    }

    #[test]
    fn a_node_must_have_them_itself() {
        let root = host("10\n", "0\n", "3\n");
        let found =
            |node, mib| room_for(root.path(), Bytes::mib(mib), Locality::Numa(NumaNode(node)));
        assert_eq!(found(1, 6), Some(Bytes::mib(6)));
        assert_eq!(found(1, 7), None);
        assert_eq!(found(0, 2), None, "a node that says nothing has none");
    }

    #[test]
    fn a_host_without_a_pool_has_no_room() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(room_for(root.path(), Bytes(1), Locality::Anywhere), None);
        let broken = host("many", "0", "0");
        assert_eq!(room_for(broken.path(), Bytes(1), Locality::Anywhere), None);
        assert_eq!(room_for(broken.path(), Bytes(u64::MAX), Locality::Anywhere), None);
    }
}
