//! What the kernel of a machine with several memory nodes does with chunks: on which nodes they
//! lie, what happens when a node or a control group is full, and when the kernel moves them.
//!
//! `make test-numa` runs this in each of the machines of `verification/numa-machine`, one test at a time.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

#[path = "../../../verification/numa-machine/machine.rs"]
mod machine;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
    process::Command,
};

use memmap2::MmapOptions;
use tempfile::TempDir;
use tierfeed_numa_memory::{
    AllocateError, Anonymous, Pages, Placement, Policy, Region, Request, capacity,
};
use tierfeed_units::{Bytes, Locality, NumaNode};

use machine::{Group, Setting, Topology, kills_for_memory, pages_by_node, shrink};

const LIVE: &str = "/";
const PAGE: u64 = 4096;

fn allocate(len: Bytes, node: u32, name: &str) -> Result<Region, AllocateError> {
    let locality = Locality::Numa(NumaNode(node));
    Region::allocate(&Request { len, locality, name, pages: Pages::Small })
}

/// Pages by node of the one mapping of this process with this name.
fn pages_of(name: &str) -> BTreeMap<u32, u64> {
    let mappings = pages_by_node(&fs::read_to_string("/proc/self/numa_maps").unwrap(), name);
    let [mapping] = &mappings[..] else { panic!("{name}: {} mappings", mappings.len()) };
    mapping.clone()
}

fn all_on(node: u32, len: Bytes) -> BTreeMap<u32, u64> {
    BTreeMap::from([(node, len.0 / PAGE)])
}

fn free_on(node: u32) -> Bytes {
    capacity::free_bytes(Path::new(LIVE), Some(NumaNode(node))).unwrap()
}

/// Memory of memfds and RAM disks on a node, exact to a few pages of each CPU.
fn shared_on(node: u32) -> Bytes {
    let meminfo = format!("/sys/devices/system/node/node{node}/meminfo");
    let meminfo = fs::read_to_string(meminfo).unwrap();
    let line = meminfo.lines().find(|line| line.contains("Shmem:")).unwrap();
    Bytes(line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap() << 10)
}

/// A file that is mounted over another until it is dropped.
struct Disguise {
    path: String,
    _folder: TempDir,
}

impl Disguise {
    fn put_on(path: String, text: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("text");
        fs::write(&file, text).unwrap();
        mount(&["-o", "bind", file.to_str().unwrap(), &path]);
        Self { path, _folder: folder }
    }
}

impl Drop for Disguise {
    fn drop(&mut self) {
        unmount(&self.path);
    }
}

fn mount(arguments: &[&str]) {
    assert!(Command::new("mount").args(arguments).status().unwrap().success(), "{arguments:?}");
}

fn unmount(path: &str) {
    assert!(Command::new("umount").arg(path).status().unwrap().success(), "{path}");
}

#[test]
fn every_page_of_a_chunk_lies_on_its_node() {
    let len = Bytes::mib(2);
    for node in Topology::here().nodes() {
        let region = allocate(len, node, "every-page").unwrap();
        assert_eq!(pages_of("every-page"), all_on(node, len));
        let verified =
            Placement::Verified { node: NumaNode(node), pages_sampled: 16, pages_on_node: 16 };
        assert_eq!(region.placement(), verified);
        assert_eq!(region.placement_now().unwrap(), verified);
    }
}

#[test]
fn what_is_written_to_a_ram_disk_of_a_node_lies_there() {
    let len = Bytes::mib(2);
    for node in Topology::here().nodes() {
        let disk = TempDir::new().unwrap();
        let path = disk.path().to_str().unwrap();
        mount(&["-t", "tmpfs", "-o", &format!("mpol=bind:{node},size=8m"), "scratch", path]);
        let chunk = allocate(len, 0, "origin").unwrap();
        chunk.fill(Bytes(0), len, 7).unwrap();
        let name = format!("on-node-{node}");
        let file = File::create_new(disk.path().join(&name)).unwrap();
        chunk.write_to_file(Bytes(0), len, file.as_fd(), Bytes(0)).unwrap();
        drop(file);
        let file = File::options().read(true).write(true).open(disk.path().join(&name)).unwrap();
        let mapping = MmapOptions::new().populate().map_raw(&file).unwrap();
        assert_eq!(pages_of(&name), all_on(node, len));
        drop((mapping, file));
        unmount(path);
    }
}

/// One test, because all of it needs the node for itself.
#[test]
fn a_node_is_filled_to_its_reserve_and_no_process_is_killed() {
    let (far, chunk) = (Topology::here().far(), Bytes::mib(16));
    let kills = kills_for_memory();
    let _taken_out = shrink(Topology::here());
    let mut regions = Vec::new();
    let refusal = loop {
        match allocate(chunk, far, "filler") {
            Ok(region) => regions.push(region),
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, AllocateError::NoRoom { .. }), "{refusal}");
    assert!(regions.len() > 4, "only {} regions of {chunk} fit", regions.len());
    let maps = fs::read_to_string("/proc/self/numa_maps").unwrap();
    for pages in pages_by_node(&maps, "filler") {
        assert_eq!(pages, all_on(far, chunk));
    }
    let strict = Anonymous::allocate(chunk, Locality::Numa(NumaNode(far)), Pages::Small);
    assert!(matches!(strict, Err(AllocateError::NoRoom { .. })));
    let left = free_on(far);
    assert!(left > Bytes::mib(8) && left < Bytes::mib(96), "{left} are left");

    let held = shared_on(far);
    // As when another process takes the memory between the check and the first touch.
    let meminfo = format!("Node {far} MemTotal: 99999999 kB\nNode {far} MemFree: 99999999 kB\n");
    let of_node = format!("/sys/devices/system/node/node{far}/meminfo");
    let disguises =
        [Disguise::put_on(of_node, &meminfo), Disguise::put_on("/proc/zoneinfo".to_owned(), "")];
    let error = allocate(Bytes(left.0 + (16 << 20)), far, "spilled").unwrap_err();
    drop(disguises);
    let is_misplaced = matches!(error, AllocateError::Misplaced { node, policy: Policy::Applied, .. }
        if node.0 == far);
    assert!(is_misplaced, "{error}");
    assert!(shared_on(far).0 < held.0 + (4 << 20), "the memory was given back");
    assert_eq!(kills_for_memory(), kills);
}

#[test]
fn the_limit_of_a_control_group_around_this_one_is_room() {
    let kills = kills_for_memory();
    let group = Group::enter("96M");
    for locality in [Locality::Anywhere, Locality::Numa(NumaNode(0))] {
        let room = || capacity::allocatable_bytes(Path::new(LIVE), locality).unwrap();
        assert!(room() <= Bytes::mib(96), "{}", room());
        let request = |len| Request { len, locality, name: "limited", pages: Pages::Small };
        let refusal = Region::allocate(&request(Bytes::mib(100))).unwrap_err();
        assert!(
            matches!(refusal, AllocateError::NoRoom { available, .. } if available < Bytes::mib(96)),
            "{refusal}"
        );
        let before = room();
        let held = Region::allocate(&request(Bytes::mib(32))).unwrap();
        assert!(room().0 + (24 << 20) < before.0, "chunks count against the limit");
        drop(held);
        let chunks = std::iter::from_fn(|| Region::allocate(&request(Bytes::mib(8))).ok());
        let count = chunks.collect::<Vec<_>>().len();
        assert!((4..12).contains(&count), "{count} chunks of 8 MiB in 96 MiB");
    }
    drop(group);
    assert_eq!(kills_for_memory(), kills);
    let outside = capacity::allocatable_bytes(Path::new(LIVE), Locality::Numa(NumaNode(0)));
    assert!(outside.unwrap() > Bytes::mib(96), "nothing is left of the limit");
}

/// The kernel ignores policies when it demotes, so a placement holds only while demotion is off or
/// the node has room. The placement that is read back must show that.
#[test]
fn a_chunk_that_the_kernel_demoted_is_found_out() {
    let (far, len) = (Topology::here().far(), Bytes::mib(4));
    let group = Group::enter("max");
    let region = allocate(len, 0, "demoted").unwrap();
    region.fill(Bytes(0), len, 7).unwrap();
    group.reclaim(len.0);
    assert_eq!(pages_of("demoted"), all_on(0, len), "demotion is off");
    assert!(matches!(region.placement_now(), Ok(Placement::Verified { .. })));

    let demotion = Setting::change(Setting::DEMOTION, "1");
    // The kernel chooses what is reclaimed first.
    for _ in 0..8 {
        group.reclaim(len.0);
    }
    drop(demotion);
    let pages = pages_of("demoted");
    assert!(pages.get(&far).is_some_and(|pages| *pages > 0), "{pages:?}");
    let error = region.placement_now().unwrap_err();
    let AllocateError::Misplaced { node, pages_sampled, pages_on_node, .. } = error else {
        panic!("{error}")
    };
    assert!(node == NumaNode(0) && pages_on_node < pages_sampled, "{error}");
    let mut bytes = [0; 8];
    region.read(Bytes(len.0 - 8), &mut bytes).unwrap();
    assert_eq!(bytes, [7; 8], "it was moved, not lost");
}
