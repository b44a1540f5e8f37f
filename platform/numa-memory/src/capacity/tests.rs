//! A tree with one node of 1000 MiB, of which 600 are free, and a control group or none.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::placement::page_bytes;

const NODE_MEMINFO: &str = "Node 3 MemTotal:  1024000 kB\nNode 3 MemFree:    614400 kB\n";
const MEMINFO: &str = "MemTotal: 2048000 kB\nMemFree: 1000 kB\nMemAvailable:   1024000 kB\n";
/// 153,600 free pages of 4 KiB, 10,240 of them below watermark or protection.
const ZONEINFO: &str = "\
Node 0, zone   Normal
  pages free     1
        high     1
Node 3, zone    DMA32
  pages free     100000
        boost    0
        high     1024
        protection: (0, 0, 3072)
      nr_free_pages 100000
  pagesets
    cpu: 0
              count:    252
              high:     1743
Node 3, zone  Movable
  pages free     53600
        high     6144
        protection: (0, 0, 0)
";

fn tree(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let always =
        [("sys/devices/system/node/node3/meminfo", NODE_MEMINFO), ("proc/meminfo", MEMINFO)];
    for (path, text) in always.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn allocatable_mib(root: &TempDir, locality: Locality) -> u64 {
    allocatable_bytes(root.path(), locality).unwrap().0 >> 20
}

const NODE: Locality = Locality::Numa(NumaNode(3));

#[test]
fn a_node_gives_what_is_free_and_the_host_what_is_available() {
    let root = tree(&[]);
    assert_eq!(free_bytes(root.path(), Some(NumaNode(3))).unwrap(), Bytes::mib(600));
    assert_eq!(free_bytes(root.path(), None).unwrap(), Bytes::mib(1000));
}

#[test]
fn five_percent_of_all_memory_stay_free() {
    let root = tree(&[]);
    assert_eq!(allocatable_mib(&root, NODE), 600 - 50);
    assert_eq!(allocatable_mib(&root, Locality::Anywhere), 1000 - 100);
}

#[test]
fn where_less_than_five_percent_are_free_a_quarter_of_that_stays_free() {
    let meminfo = "MemTotal: 24684000 kB\nMemAvailable:   1049600 kB\n";
    let root = tree(&[("proc/meminfo", meminfo)]);
    assert_eq!(allocatable_mib(&root, Locality::Anywhere), 1025 - 257);
}

#[test]
fn watermarks_and_protection_stay_free() {
    if page_bytes() == 4096 {
        let root = tree(&[("proc/zoneinfo", ZONEINFO)]);
        assert_eq!(allocatable_mib(&root, NODE), 600 - 40 - 50);
    }
}

#[test]
fn a_control_group_of_version_2_limits_its_members_and_theirs() {
    let root = tree(&[
        ("proc/self/cgroup", "0::/job/step\n"),
        ("sys/fs/cgroup/job/memory.max", "314572800\n"),
        ("sys/fs/cgroup/job/memory.current", "209715200\n"),
        ("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 20971520\n"),
        ("sys/fs/cgroup/job/step/memory.max", "max\n"),
        ("sys/fs/cgroup/job/step/memory.current", "104857600\n"),
    ]);
    assert_eq!(allocatable_mib(&root, NODE), 300 - (200 - 20));
}

#[test]
fn a_control_group_of_version_1_limits_too() {
    let root = tree(&[
        ("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/slurm/job_7\n0::/\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "209715200\n"),
        ("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "104857600\n"),
        ("sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "41943040\n"),
    ]);
    assert_eq!(allocatable_mib(&root, Locality::Anywhere), 60);
}

#[test]
fn caches_leave_a_part_of_a_control_group_to_what_is_no_cache() {
    let group = |limit: u64, used: u64| {
        let files = [
            ("proc/self/cgroup", "4:memory:/job\n".to_owned()),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", (limit << 20).to_string()),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", (used << 20).to_string()),
        ];
        let root = tree(&files.each_ref().map(|(path, text)| (*path, text.as_str())));
        (cache_headroom(root.path()).unwrap().0 >> 20, allocatable_mib(&root, Locality::Anywhere))
    };
    assert_eq!(group(800, 200), (560, 600));
    assert_eq!(group(64, 10), (64 - 10 - 16, 54), "a small group keeps more");
    assert_eq!(group(64, 60), (0, 4));
    assert_eq!(cache_headroom(tree(&[]).path()), None);
}

#[test]
fn claims_that_run_at_the_same_time_do_not_count_memory_twice() {
    let root = tree(&[]);
    let first = claim(root.path(), NODE, Bytes::mib(400), Purpose::Other).unwrap();
    let second = claim(root.path(), NODE, Bytes::mib(400), Purpose::Other).unwrap_err();
    let AllocateError::NoRoom { available, .. } = second else { panic!("{second}") };
    assert_eq!(available.0 >> 20, 150);
    drop(first);
    assert!(claim(root.path(), NODE, Bytes::mib(400), Purpose::Other).is_ok());
}

#[test]
fn what_was_taken_of_a_claim_is_free_for_no_other_and_counted_once() {
    let root = tree(&[]);
    let mut first = claim(root.path(), NODE, Bytes::mib(400), Purpose::Cache).unwrap();
    let available = |wanted| match claim(root.path(), NODE, wanted, Purpose::Other) {
        Err(AllocateError::NoRoom { available, .. }) => available.0 >> 20,
        other => panic!("{other:?}"),
    };
    assert_eq!(available(Bytes::mib(500)), 150);
    first.release(Bytes::mib(100));
    assert_eq!(available(Bytes::mib(500)), 250, "the kernel reports the rest as taken");
    drop(first);
    assert_eq!(available(Bytes::mib(600)), 550);
}

#[test]
fn a_group_has_no_room_for_claims_on_any_node_together() {
    let root = tree(&[
        ("proc/self/cgroup", "4:memory:/job\n"),
        ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "838860800\n"),
        ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "0\n"),
    ]);
    let _first = claim(root.path(), NODE, Bytes::mib(500), Purpose::Other).unwrap();
    let second = claim(root.path(), Locality::Anywhere, Bytes::mib(400), Purpose::Other);
    let Err(AllocateError::NoRoom { available, .. }) = second else { panic!("{second:?}") };
    assert_eq!(available, Bytes::mib(300));
    assert_eq!(cache_headroom(root.path()), Some(Bytes::mib(260)));
    check_claimed(root.path(), NODE, Bytes::mib(500)).unwrap();
}

#[test]
fn an_absent_node_is_named() {
    let error =
        claim(tree(&[]).path(), Locality::Numa(NumaNode(4)), Bytes(1), Purpose::Other).unwrap_err();
    assert!(matches!(error, AllocateError::AbsentNode { node: NumaNode(4) }), "{error}");
}

#[test]
fn a_tree_that_says_nothing_is_an_error() {
    let root = tree(&[("sys/devices/system/node/node5/meminfo", "Node 5 MemTotal: many kB\n")]);
    let error =
        claim(root.path(), Locality::Numa(NumaNode(5)), Bytes(1), Purpose::Other).unwrap_err();
    assert!(matches!(error, AllocateError::FreeMemoryUnreadable(_)), "{error}");
}
