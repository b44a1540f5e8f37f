//! A memory error costs the samples in the poisoned page, never the process.

use std::{fs, sync::Arc};

use tierfeed_core::{
    id::{ChunkId, Rank, SampleId},
    session::{Fault, Operation, Origin, Retention, Slot},
    units::Bytes,
};
use tierfeed_numa_memory::bus_errors::injection::break_page;

use crate::{
    faulty_source::{FaultySource, content},
    rig::{CXL, MAIN, RANK, Rig, STORAGE, four_tiers, place, slot},
};

const LEN: u64 = 8_192;

/// The address of a chunk of main memory. No other test uses its number.
fn address_of_chunk(chunk: u32) -> usize {
    address_of(&format!("main-memory-{chunk}"))
}

fn address_of(name: &str) -> usize {
    let name = format!("/memfd:tierfeed-{name} ");
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains(&name)).expect("the chunk is mapped");
    usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

fn ready() -> (tempfile::TempDir, Rig) {
    let root = tempfile::tempdir().unwrap();
    let rig = Rig::start_ready(&four_tiers(root.path()), Arc::new(FaultySource::default()));
    (root, rig)
}

#[test]
fn a_page_that_breaks_is_told_with_its_chunk_and_all_else_there_is_verified() {
    let (_root, mut rig) = ready();
    rig.add_chunk(MAIN, 7_001).unwrap();
    let at = |offset| place(MAIN, &[(7_001, offset, LEN)]);
    for (sample, offset) in [(1, 0), (2, LEN), (3, 4 * LEN)] {
        rig.cache(sample, LEN, &at(offset));
    }
    break_page(address_of_chunk(7_001) + 4_096).unwrap();
    let broken = Err(Fault::Poisoned(MAIN, ChunkId(7_001)));
    assert_eq!(rig.promote(1, &at(0), slot(0, LEN)), broken);
    assert_eq!(
        rig.promote(1, &at(0), slot(0, LEN)),
        Err(Fault::Corrupt),
        "zeros are not handed out"
    );
    assert_eq!(rig.promote(2, &at(LEN), slot(0, LEN)), Ok(()), "its bytes match their sum");
    assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(2), Bytes(LEN)));
    let failure = &rig.plane.faults()[0];
    assert_eq!(
        failure.to_string(),
        "sample 1: a page of the memory of main-memory is poisoned; chunk 7001 is given up"
    );
}

#[test]
fn a_page_that_breaks_under_what_is_written_or_sinks_is_told_too() {
    let (_root, mut rig) = ready();
    for chunk in [7_002, 7_003] {
        rig.add_chunk(MAIN, chunk).unwrap();
    }
    let at = |chunk| place(MAIN, &[(chunk, 0, LEN)]);
    rig.fetch(1, slot(0, LEN)).unwrap();
    break_page(address_of_chunk(7_002)).unwrap();
    let demoted = rig.demote(1, Origin::Staging(slot(0, LEN)), LEN, &at(7_002));
    assert_eq!(demoted, Err(Fault::Poisoned(MAIN, ChunkId(7_002))));

    for (tier, sample) in [(CXL, 2), (STORAGE, 3)] {
        rig.cache(sample, LEN, &at(7_003));
        break_page(address_of_chunk(7_003)).unwrap();
        let below = place(tier, &[(0, 0, LEN)]);
        let sunk = rig.demote(sample, Origin::Tier(at(7_003)), LEN, &below);
        assert_eq!(sunk, Err(Fault::Poisoned(MAIN, ChunkId(7_003))), "{tier:?}");
        assert_eq!(
            rig.promote(sample, &below, slot(0, LEN)),
            Err(Fault::Corrupt),
            "no copy is there"
        );
    }
}

#[test]
fn staging_memory_that_broke_takes_nothing_any_more() {
    let (_root, mut rig) = ready();
    let upper = place(MAIN, &[(0, 0, LEN)]);
    rig.cache(1, LEN, &upper);
    let arena = rig.plane.arena(RANK).unwrap();
    break_page(arena.as_ptr_range(Bytes(0), Bytes(1)).unwrap().addr()).unwrap();
    assert_eq!(rig.promote(1, &upper, slot(0, LEN)), Err(Fault::NoSpace));
    let elsewhere = slot(1 << 20, LEN);
    assert_eq!(rig.promote(1, &upper, elsewhere), Err(Fault::NoSpace));
    assert_eq!(rig.fetch(1, elsewhere), Err(Fault::NoSpace));
}

#[test]
fn a_page_of_staging_that_breaks_during_a_read_is_no_batch() {
    let root = tempfile::tempdir().unwrap();
    let source = Arc::new(FaultySource::default());
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::clone(&source) as _);
    for (rank, retention) in [(7_004, Retention::Dropped), (7_005, Retention::Kept)] {
        let rank = Rank(rank);
        rig.run(Operation::OpenArena { rank, len: Bytes(LEN) }).unwrap();
        source.gate.close();
        let to = Slot { rank, offset: Bytes(0), len: Bytes(LEN) };
        let op = rig.start_op(Operation::Fetch { sample: SampleId(1), to, retention });
        break_page(address_of(&format!("staging-{}", rank.0))).unwrap();
        source.gate.open();
        assert_eq!(rig.wait(op), Err(Fault::NoSpace), "{retention:?}");
    }
}
