use std::{io::Write as _, os::unix::fs::FileExt as _};

use tierfeed_core::tier::Locality;
use tierfeed_numa_memory::{Pages, Request};

use super::*;
use crate::read::sample_sum::sum_of;

const OFFSET: u64 = 100;

fn target(len: usize) -> Target {
    let request = Request {
        len: Bytes(OFFSET + len as u64 + 1),
        locality: Locality::Anywhere,
        name: "arrival",
        pages: Pages::Small,
    };
    let region = Arc::new(Region::allocate(&request).unwrap());
    Target::summed(region, Bytes(OFFSET), Bytes(len as u64))
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from(at * 31 % 251).unwrap()).collect()
}

fn region_of(target: &Target) -> &Region {
    match &target.memory {
        SampleMemory::Region(region, _) => region,
        SampleMemory::Sink(_) => unreachable!("no test has a sink"),
    }
}

fn arrived(target: &Target) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(target.len.0).unwrap()];
    region_of(target).read(Bytes(OFFSET), &mut bytes).unwrap();
    bytes
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"head").unwrap();
    file.write_all(bytes).unwrap();
    file
}

const MIB: usize = 1 << 20;

#[test]
fn segments_may_come_in_any_order_and_anew() {
    let bytes = bytes(2 * MIB + 7);
    let target = target(bytes.len());
    let put = |from: usize, to: usize| target.write(Bytes(from as u64), &bytes[from..to]).unwrap();
    put(2 * MIB, bytes.len());
    put(MIB, MIB + 5);
    put(0, MIB);
    assert_eq!(target.sum(), None, "a segment is not whole");
    put(MIB, bytes.len());
    assert_eq!((arrived(&target), target.sum()), (bytes.clone(), Some(sum_of(&bytes))));
}

#[test]
fn bytes_that_are_not_the_next_of_their_segment_and_bytes_outside_are_refused() {
    let target = target(1000);
    target.write(Bytes(0), &[1; 10]).unwrap();
    for (at, len) in [(11, 1), (9, 1), (10, 991), (u64::MAX, 2)] {
        let refused = target.write(Bytes(at), &vec![2; len]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{len} bytes at {at}");
    }
    assert!(arrived(&target)[10..].iter().all(|it| *it == 0));
    assert_eq!(target.sum(), None);
}

#[test]
fn a_file_is_read_and_summed_however_long_it_is() {
    for len in [0, 1, PIECE_BYTES, MIB, 2 * MIB + 7] {
        let bytes = bytes(len);
        let file = file_of(&bytes);
        for page_cache in [PageCache::Keep, PageCache::Drop] {
            let target = target(len);
            let read = target.read_from_file(&file, Bytes(4), page_cache).unwrap();
            assert_eq!((read, target.sum()), (Bytes(len as u64), Some(sum_of(&bytes))));
            assert!(arrived(&target) == bytes);
        }
        let target = target(len);
        file.read_exact_at(&mut vec![0; len], 4).unwrap();
        if target.read_cached_from_file(&file, Bytes(4)).unwrap() == Some(Bytes(len as u64)) {
            assert_eq!(target.sum(), Some(sum_of(&bytes)));
        }
    }
}

#[test]
fn a_file_that_ends_early_has_no_sum() {
    let target = target(1000);
    let read = target.read_from_file(&file_of(&[7; 900]), Bytes(4), PageCache::Keep).unwrap();
    assert_eq!((read, target.sum()), (Bytes(900), None));
}

#[test]
fn what_others_write_to_the_place_meanwhile_is_not_in_the_sum() {
    let bytes = bytes(3000);
    let target = target(bytes.len());
    target.write(Bytes(0), &bytes[..1000]).unwrap();
    region_of(&target).fill(Bytes(0), Bytes(1000), 0xee).unwrap();
    target.write(Bytes(1000), &bytes[1000..]).unwrap();
    assert_eq!(target.sum(), Some(sum_of(&bytes)));
}
