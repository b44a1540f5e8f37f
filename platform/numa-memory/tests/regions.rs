//! What the kernel does with memory that is allocated here, on every memory node of this machine.
//!
//! With the feature `numa_tests` the machine must have several nodes (`verification/numa-machine`
//! starts one); without it the same tests run on the nodes there are.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{fs, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    sys::{
        memfd::{MFdFlags, memfd_create},
        stat::fstat,
    },
    unistd::{SysconfVar, ftruncate, sysconf},
};
use tierfeed_numa_memory::{
    AllocateError, Anonymous, MapError, Pages, Placement, Region, Request, View,
};
use tierfeed_test_needs::{Need, requires};
use tierfeed_units::{Bytes, Locality, NumaNode};

const LEN: Bytes = Bytes::mib(8);

/// The nodes with memory, as in `/sys/devices/system/node/has_memory`: `0-1,3`.
fn memory_nodes() -> Vec<NumaNode> {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap();
    let ranges = list.trim().split(',').map(|it| it.split_once('-').unwrap_or((it, it)));
    let nodes: Vec<_> = ranges
        .flat_map(|(first, last)| first.parse().unwrap()..=last.parse().unwrap())
        .map(NumaNode)
        .collect();
    assert!(nodes.len() > 1 || !requires(Need::SeveralNodes), "{list}");
    nodes
}

fn request(locality: Locality, name: &str) -> Request<'_> {
    Request { len: LEN, locality, name, pages: Pages::Small }
}

fn duplicate(region: &Region) -> OwnedFd {
    region.fd().try_clone_to_owned().unwrap()
}

/// Whether this process holds a descriptor or a mapping of a memfd of this name.
fn is_held(name: &str) -> bool {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(Result::ok);
    let held = links.filter_map(|it| fs::read_link(it.path()).ok());
    maps.contains(name) || held.into_iter().any(|it| it.to_string_lossy().contains(name))
}

#[test]
fn regions_lie_on_the_node_that_was_asked_for() {
    for node in memory_nodes() {
        let region = Region::allocate(&request(Locality::Numa(node), "placed")).unwrap();
        let Placement::Verified { node: on, pages_sampled, pages_on_node } = region.placement()
        else {
            panic!("{:?}", region.placement());
        };
        assert_eq!((on, pages_sampled, pages_on_node), (node, 16, 16));
    }
}

#[test]
fn measured_memory_lies_on_the_node_that_was_asked_for() {
    for node in memory_nodes() {
        for pages in [Pages::Small, Pages::Huge] {
            let memory = Anonymous::allocate(LEN, Locality::Numa(node), pages).unwrap();
            assert!(
                matches!(memory.placement(), Placement::Verified { node: on, .. } if on == node)
            );
            assert_eq!(memory.words().len() * 8, 8 << 20);
            assert_eq!(memory.words().as_ptr() as usize % (2 << 20), 0);
            assert!(memory.words().iter().all(|word| *word == 0));
        }
    }
}

#[test]
fn huge_pages_are_counted() {
    let count = |pages| {
        let memory = Anonymous::allocate(Bytes::mib(9), Locality::Anywhere, pages).unwrap();
        memory.huge_page_bytes()
    };
    // The kernel may show the memory together with a neighbour's, and then reports nothing about
    // it.
    assert!(count(Pages::Small).is_none_or(|bytes| bytes == Bytes(0)));
    let policy = "/sys/kernel/mm/transparent_hugepage/enabled";
    let has_huge_pages = fs::read_to_string(policy).is_ok_and(|it| !it.contains("[never]"));
    assert!(count(Pages::Huge).is_none_or(|bytes| bytes >= Bytes::mib(8) || !has_huge_pages));
}

#[test]
fn memory_that_is_only_one_word_long_is_writable() {
    let mut memory = Anonymous::allocate(Bytes(1), Locality::Anywhere, Pages::Small).unwrap();
    memory.words_mut()[0] = 7;
    assert_eq!((memory.words(), memory.len()), (&[7][..], Bytes(8)));
}

#[test]
fn a_view_shows_what_the_region_holds() {
    let region = Region::allocate(&request(Locality::Anywhere, "viewed")).unwrap();
    let view = View::map(duplicate(&region), LEN).unwrap();
    region.write(Bytes(5), b"tier").unwrap();
    let mut seen = [0; 4];
    view.read(Bytes(5), &mut seen).unwrap();
    assert_eq!(&seen, b"tier");
    drop(region);
    view.read(Bytes(5), &mut seen).unwrap();
    assert_eq!(&seen, b"tier", "a view outlives its region");
}

#[test]
fn a_region_is_gone_when_it_is_dropped() {
    let region = Region::allocate(&request(Locality::Anywhere, "dropped-region")).unwrap();
    assert!(is_held("dropped-region"));
    drop(region);
    assert!(!is_held("dropped-region"));
}

#[test]
fn no_process_can_resize_or_unseal_a_region() {
    let region = Region::allocate(&request(Locality::Anywhere, "sealed")).unwrap();
    let fd = duplicate(&region);
    assert_eq!(ftruncate(&fd, 0), Err(Errno::EPERM));
    assert_eq!(ftruncate(&fd, 1 << 40), Err(Errno::EPERM));
}

#[test]
fn an_absent_node_is_refused_and_leaves_nothing() {
    for number in [900, 1023, 1024, u32::MAX] {
        let locality = Locality::Numa(NumaNode(number));
        let error = Region::allocate(&request(locality, "absent-node")).unwrap_err();
        assert!(matches!(error, AllocateError::AbsentNode { node } if node.0 == number), "{error}");
    }
    assert!(!is_held("absent-node"));
}

#[test]
fn more_than_there_is_is_refused_before_it_is_taken() {
    let places = memory_nodes().into_iter().map(Locality::Numa).chain([Locality::Anywhere]);
    for locality in places {
        for len in [Bytes(10 << 40), Bytes(u64::MAX)] {
            let request = Request { len, ..request(locality, "too-large") };
            let error = Region::allocate(&request).unwrap_err();
            assert!(matches!(error, AllocateError::NoRoom { .. }), "{error}");
            let error = Anonymous::allocate(len, locality, Pages::Huge).unwrap_err();
            assert!(matches!(error, AllocateError::NoRoom { .. }), "{error}");
        }
    }
    assert!(!is_held("too-large"));
}

#[test]
fn a_request_for_nothing_is_refused() {
    let request = Request { len: Bytes(0), ..request(Locality::Anywhere, "empty") };
    assert!(matches!(Region::allocate(&request), Err(AllocateError::Empty)));
}

#[test]
fn an_impossible_name_is_an_error() {
    for name in ["nul\0byte", &"long".repeat(100)] {
        let error = Region::allocate(&request(Locality::Anywhere, name)).unwrap_err();
        assert!(matches!(error, AllocateError::System { .. }), "{error}");
    }
}

#[test]
fn a_view_refuses_what_could_be_cut_off() {
    let unsealed = memfd_create("unsealed", MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, 4096).unwrap();
    assert!(matches!(View::map(unsealed, Bytes(4096)), Err(MapError::NotSealed)));
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    assert!(matches!(View::map(file.into(), Bytes(4096)), Err(MapError::NotSealed)));
}

#[test]
fn a_view_refuses_more_than_the_file_holds() {
    let region = Region::allocate(&request(Locality::Anywhere, "short")).unwrap();
    let error = View::map(duplicate(&region), Bytes(LEN.0 + 1)).unwrap_err();
    assert!(
        matches!(error, MapError::TooShort { actual: LEN, wanted } if wanted.0 == LEN.0 + 1),
        "{error}"
    );
    assert!(matches!(View::map(duplicate(&region), Bytes(0)), Err(MapError::Empty)));
    assert_eq!(View::map(duplicate(&region), Bytes(100)).unwrap().len(), Bytes(100));
}

#[test]
fn allocations_at_the_same_time_all_succeed_while_there_is_room() {
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Region::allocate(&request(Locality::Anywhere, "many")).unwrap());
        }
    });
}

/// Memory that the file behind a descriptor takes, in bytes.
fn allocated(fd: &OwnedFd) -> u64 {
    u64::try_from(fstat(fd).unwrap().st_blocks).unwrap() * 512
}

#[test]
fn a_range_is_given_back_and_restored_under_the_eyes_of_a_view() {
    let region = Region::allocate(&request(Locality::Anywhere, "trimmed")).unwrap();
    let view = View::map(duplicate(&region), LEN).unwrap();
    let (fd, half) = (duplicate(&region), Bytes(LEN.0 / 2));
    region.write(Bytes(half.0 - 4), b"kept").unwrap();
    region.write(half, b"gone").unwrap();
    region.give_back(half, half).unwrap();
    assert_eq!(allocated(&fd), half.0);
    let read = |offset: u64| {
        let mut bytes = [0xff; 4];
        view.read(Bytes(offset), &mut bytes).unwrap();
        bytes
    };
    assert_eq!((read(half.0 - 4), read(half.0)), (*b"kept", [0; 4]), "no signal, but zeros");
    region.restore(half, half).unwrap();
    assert_eq!(allocated(&fd), LEN.0);
    region.write(half, b"back").unwrap();
    assert_eq!(read(half.0), *b"back");
}

#[test]
fn only_whole_pages_inside_a_range_are_given_back() {
    let region = Region::allocate(&request(Locality::Anywhere, "ragged")).unwrap();
    let fd = duplicate(&region);
    region.write(Bytes(0), b"head").unwrap();
    region.give_back(Bytes(4), Bytes(100)).unwrap();
    assert_eq!(allocated(&fd), LEN.0, "no page lies in the range");
    let page = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap()).unwrap();
    region.give_back(Bytes(4), Bytes(3 * page)).unwrap();
    assert_eq!(allocated(&fd), LEN.0 - 2 * page);
    let mut head = [0; 4];
    region.read(Bytes(0), &mut head).unwrap();
    assert_eq!(head, *b"head");
}

#[test]
fn a_range_outside_the_region_is_refused() {
    let region = Region::allocate(&request(Locality::Anywhere, "outside")).unwrap();
    for (offset, len) in [(LEN.0, 1), (1, LEN.0), (u64::MAX, 2)] {
        for outcome in
            [region.give_back(Bytes(offset), Bytes(len)), region.restore(Bytes(offset), Bytes(len))]
        {
            assert!(matches!(outcome, Err(AllocateError::Outside { .. })), "{outcome:?}");
        }
    }
    assert_eq!(allocated(&duplicate(&region)), LEN.0);
}

#[test]
fn a_reserved_region_gets_its_memory_range_by_range() {
    let places = memory_nodes().into_iter().map(Locality::Numa).chain([Locality::Anywhere]);
    for locality in places {
        let region = Region::reserve(&request(locality, "reserved")).unwrap();
        let half = Bytes(LEN.0 / 2);
        assert_eq!(region.resident().unwrap(), Bytes(0));
        let pin = |offset| region.pin_around(offset, Bytes(64), LEN, |_, len, _| len);
        assert_eq!(pin(half), None, "nothing to pin");
        region.populate(half, half).unwrap();
        assert_eq!(
            (region.resident().unwrap(), pin(half), pin(Bytes(0))),
            (half, Some(half), None)
        );
        region.write(half, b"here").unwrap();
        region.populate(Bytes(0), half).unwrap();
        region.populate(half, half).unwrap();
        let mut bytes = [0; 4];
        region.read(half, &mut bytes).unwrap();
        assert_eq!((region.resident().unwrap(), &bytes), (LEN, b"here"));
        region.placement_now().unwrap();
    }
}

#[test]
fn a_reserved_region_is_sealed_and_keeps_its_bounds() {
    let region = Region::reserve(&request(Locality::Anywhere, "reserved-sealed")).unwrap();
    let fd = duplicate(&region);
    assert_eq!(ftruncate(&fd, 0), Err(Errno::EPERM));
    View::map(fd, LEN).unwrap();
    let outside = region.populate(Bytes(1), LEN);
    assert!(matches!(outside, Err(AllocateError::Outside { .. })), "{outside:?}");
    let nothing = Request { len: Bytes(0), ..request(Locality::Anywhere, "reserved-empty") };
    assert!(matches!(Region::reserve(&nothing), Err(AllocateError::Empty)));
    let absent = Region::reserve(&request(Locality::Numa(NumaNode(900)), "reserved-absent"));
    assert!(matches!(absent, Err(AllocateError::AbsentNode { .. })), "{absent:?}");
}
