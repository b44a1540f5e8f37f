//! Tiers whose memory trainers map: a sample lies at the offset that the plane reports.

use std::{os::fd::OwnedFd, sync::Arc};

use tierfeed_core::{
    batch::InPlace,
    id::{ChunkId, SampleId},
    session::{Fault, Origin},
    units::Bytes,
};
use tierfeed_handoff::SharedTier;
use tierfeed_numa_memory::{ReadView, bus_errors::injection::break_page};

use crate::{
    faulty_source::{FaultySource, content},
    rig::{CHUNK, CXL, Rig, SHARED_CHUNKS, four_tiers, place, slot},
};

const LEN: u64 = 8_192;

fn ready() -> (tempfile::TempDir, Rig, SharedTier, ReadView) {
    let root = tempfile::tempdir().unwrap();
    let rig = Rig::start_ready(&four_tiers(root.path()), Arc::new(FaultySource::default()));
    let mut shared_tiers = rig.plane.shared_tiers();
    let shared = shared_tiers.pop().expect("the second of four tiers");
    assert_eq!((shared_tiers.len(), shared.tier()), (0, CXL));
    let descriptor: OwnedFd = shared.memory().fd().try_clone_to_owned().unwrap();
    let view = ReadView::map(descriptor, shared.memory().len()).unwrap();
    (root, rig, shared, view)
}

fn shown(chunk: u32, offset: u64) -> InPlace {
    InPlace { tier: CXL, chunk: ChunkId(chunk), offset: Bytes(offset) }
}

fn seen(view: &ReadView, offset: Bytes) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
    view.read(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_trainer_sees_the_bytes_of_the_source_where_the_plane_says() {
    let (_root, mut rig, shared, view) = ready();
    for (sample, chunk, offset) in [(1, 0, 64), (2, 1, 128 * 64), (3, 1, 0)] {
        rig.cache(sample, LEN, &place(CXL, &[(chunk, offset, LEN)]));
        let at = shared.offset_of(shown(chunk, offset)).unwrap();
        assert_eq!(seen(&view, at), content(SampleId(sample), Bytes(LEN)));
    }
    assert_eq!(shared.offset_of(shown(9, 0)), None, "no such chunk");
}

#[test]
fn chunks_that_go_leave_their_addresses_to_others() {
    let (_root, mut rig, shared, view) = ready();
    let before = shared.offset_of(shown(1, 0)).unwrap();
    for chunk in 2..40 {
        rig.drop_chunk(CXL, chunk - 1);
        rig.add_chunk(CXL, chunk).unwrap();
        assert_eq!(shared.offset_of(shown(chunk - 1, 0)), None);
        assert_eq!(shared.offset_of(shown(chunk, 0)), Some(before));
        rig.cache(chunk, LEN, &place(CXL, &[(chunk, 0, LEN)]));
        assert_eq!(seen(&view, before), content(SampleId(chunk), Bytes(LEN)));
    }
    let held = rig.plane.usage().tiers[usize::from(CXL.0)].bytes;
    assert_eq!(held, Bytes(2 * CHUNK.0));
}

#[test]
fn what_a_trainer_reads_in_place_stays_when_the_plane_ends() {
    let (_root, mut rig, shared, view) = ready();
    rig.cache(1, LEN, &place(CXL, &[(1, 64, LEN)]));
    let at = shared.offset_of(shown(1, 64)).unwrap();
    drop(shared);
    rig.shut_down();
    assert_eq!(seen(&view, at), content(SampleId(1), Bytes(LEN)));
}

#[test]
fn a_tier_has_no_more_chunks_than_addresses() {
    let (_root, mut rig, _, _) = ready();
    for chunk in 2..SHARED_CHUNKS.get() {
        rig.add_chunk(CXL, chunk).unwrap();
    }
    assert_eq!(rig.add_chunk(CXL, 99), Err(Fault::NoSpace));
}

#[test]
fn a_chunk_with_a_memory_error_is_not_read_any_more() {
    let (_root, mut rig, shared, _) = ready();
    let at = |offset| place(CXL, &[(1, offset, LEN)]);
    rig.cache(1, LEN, &at(0));
    rig.cache(2, LEN, &at(LEN));
    let before = shared.offset_of(shown(1, 0)).unwrap();
    let address = address_of_shared_memory() + usize::try_from(before.0).unwrap();
    break_page(address).unwrap();
    let broken = Err(Fault::Poisoned(CXL, ChunkId(1)));
    assert_eq!(rig.promote(1, &at(0), slot(0, LEN)), broken);
    // The agent and a trainer see different pages there, so the memory is not used.
    assert_eq!(rig.promote(2, &at(LEN), slot(0, LEN)), broken);
    rig.fetch(3, slot(0, LEN)).unwrap();
    assert_eq!(rig.demote(3, Origin::Staging(slot(0, LEN)), LEN, &at(2 * LEN)), broken);
    rig.drop_chunk(CXL, 1);
    rig.add_chunk(CXL, 2).unwrap();
    assert_ne!(shared.offset_of(shown(2, 0)), Some(before), "its addresses are not used again");
}

/// The address at which this process maps the shared memory for writing.
fn address_of_shared_memory() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let is_it = |line: &&str| line.contains("/memfd:tierfeed-cxl-memory ") && line.contains("rw-s");
    let line = maps.lines().find(is_it).expect("the shared memory is mapped");
    usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}
