//! Invariant 3: a staged sample equals the one that the source delivered, for every path through the tiers.

use std::sync::Arc;

use proptest::prelude::*;
use tierfeed_core::{
    id::{SampleId, TierId},
    session::{Fault, Origin, Place},
    units::Bytes,
};
use tierfeed_prefetcher::plane::{Traffic, Verify};

use crate::{
    faulty_source::{FaultySource, content},
    rig::{CXL, MAIN, Rig, SCRATCH, STORAGE, four_tiers, place, slot},
};

/// Not a multiple of any alignment, and longer than one piece of a copy.
const LEN: u64 = 600_011;
const ROUNDED: u64 = LEN.next_multiple_of(64);

fn rig(root: &std::path::Path) -> Rig {
    Rig::start_ready(&four_tiers(root), Arc::new(FaultySource::default()))
}

#[test]
fn a_fetched_sample_lies_in_its_slot_and_nowhere_else() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    rig.scribble(slot(0, 2 << 20));
    rig.fetch(7, slot(64, LEN)).unwrap();
    assert_eq!(rig.staged(slot(64, LEN)), content(SampleId(7), Bytes(LEN)));
    assert_eq!(rig.staged(slot(0, 64)), [0xee; 64]);
    assert_eq!(rig.staged(slot(64 + LEN, 64)), [0xee; 64]);
}

#[test]
fn a_sample_comes_back_from_every_tier() {
    for tier in [MAIN, CXL, SCRATCH, STORAGE] {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path());
        let place = place(tier, &[(0, 128, ROUNDED)]);
        rig.cache(7, LEN, &place);
        rig.promote(7, &place, slot(1 << 20, LEN)).unwrap();
        assert_eq!(rig.staged(slot(1 << 20, LEN)), content(SampleId(7), Bytes(LEN)), "{tier:?}");
    }
}

#[test]
fn a_sample_in_pieces_comes_back_whole_from_every_tier() {
    for tier in [MAIN, CXL, SCRATCH, STORAGE] {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path());
        let pieces = [(1, 640, 64), (0, 0, 300_032), (0, 300_160, 192), (1, 1_024, 300_032)];
        let place = place(tier, &pieces);
        rig.cache(7, LEN, &place);
        rig.promote(7, &place, slot(1 << 20, LEN)).unwrap();
        assert_eq!(rig.staged(slot(1 << 20, LEN)), content(SampleId(7), Bytes(LEN)), "{tier:?}");
    }
}

#[test]
fn a_sample_survives_every_move_between_tiers() {
    let tiers = [MAIN, CXL, SCRATCH, STORAGE];
    for (from, to) in tiers.iter().flat_map(|from| tiers.map(|to| (*from, to))) {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path());
        let origin = place(from, &[(0, 0, 300_032), (0, 400_000, ROUNDED - 300_032)]);
        let target = place(to, &[(1, 0, 64), (1, 512, ROUNDED - 64)]);
        rig.cache(7, LEN, &origin);
        rig.demote(7, Origin::Tier(origin), LEN, &target).unwrap();
        rig.promote(7, &target, slot(1 << 20, LEN)).unwrap();
        let staged = rig.staged(slot(1 << 20, LEN));
        assert!(staged == content(SampleId(7), Bytes(LEN)), "{from:?} to {to:?}");
    }
}

#[test]
fn a_promoted_sample_can_be_demoted_again() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let (upper, lower) = (place(CXL, &[(0, 0, ROUNDED)]), place(STORAGE, &[(0, 0, ROUNDED)]));
    rig.cache(7, LEN, &upper);
    rig.promote(7, &upper, slot(0, LEN)).unwrap();
    rig.demote(7, Origin::Staging(slot(0, LEN)), LEN, &lower).unwrap();
    rig.promote(7, &lower, slot(1 << 20, LEN)).unwrap();
    assert_eq!(rig.staged(slot(1 << 20, LEN)), content(SampleId(7), Bytes(LEN)));
}

#[test]
fn an_empty_sample_goes_everywhere_and_harms_no_neighbour() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let (empty, full) = (place(STORAGE, &[(0, 0, 64)]), place(STORAGE, &[(0, 64, 64)]));
    rig.fetch(1, slot(0, 0)).unwrap();
    rig.fetch(2, slot(0, 64)).unwrap();
    rig.demote(1, Origin::Staging(slot(0, 0)), 0, &empty).unwrap();
    rig.demote(2, Origin::Staging(slot(0, 64)), 64, &full).unwrap();
    rig.promote(1, &empty, slot(0, 0)).unwrap();
    rig.promote(2, &full, slot(128, 64)).unwrap();
    assert_eq!(rig.staged(slot(128, 64)), content(SampleId(2), Bytes(64)));
}

#[test]
fn a_sample_that_a_trainer_overwrote_is_not_cached() {
    for tier in [MAIN, CXL, SCRATCH, STORAGE] {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path());
        rig.fetch(7, slot(0, LEN)).unwrap();
        rig.scribble(slot(LEN - 1, 1));
        let place = place(tier, &[(0, 0, ROUNDED)]);
        let demoted = rig.demote(7, Origin::Staging(slot(0, LEN)), LEN, &place);
        assert_eq!(demoted, Err(Fault::Corrupt), "{tier:?}");
        let promoted = rig.promote(7, &place, slot(1 << 20, LEN));
        assert_eq!(promoted, Err(Fault::Corrupt), "{tier:?}: no complete copy is there");
    }
}

#[test]
fn a_place_does_not_answer_for_another_sample() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let place = place(MAIN, &[(0, 0, ROUNDED)]);
    rig.cache(7, LEN, &place);
    assert_eq!(rig.promote(8, &place, slot(0, LEN)), Err(Fault::Corrupt));
}

#[test]
fn a_place_that_was_written_over_answers_for_the_new_sample_only() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let (old, new) = (place(MAIN, &[(0, 64, 128)]), place(MAIN, &[(0, 0, 256)]));
    rig.cache(7, 128, &old);
    rig.cache(8, 256, &new);
    assert_eq!(rig.promote(7, &old, slot(0, 128)), Err(Fault::Corrupt));
    assert_eq!(rig.promote(8, &new, slot(0, 256)), Ok(()));
}

#[test]
fn a_chunk_number_that_is_used_again_holds_nothing_of_the_old_chunk() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let place = place(STORAGE, &[(0, 0, ROUNDED)]);
    rig.cache(7, LEN, &place);
    rig.drop_chunk(STORAGE, 0);
    rig.add_chunk(STORAGE, 0).unwrap();
    assert_eq!(rig.promote(7, &place, slot(0, LEN)), Err(Fault::Corrupt));
}

#[test]
fn memory_is_checked_if_the_settings_say_so() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = four_tiers(root.path());
    settings.verify = Verify::Always;
    let mut rig = Rig::start_ready(&settings, Arc::new(FaultySource::default()));
    let place = place(MAIN, &[(0, 0, ROUNDED)]);
    rig.cache(7, LEN, &place);
    assert_eq!(rig.promote(7, &place, slot(0, LEN)), Ok(()));
    assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(7), Bytes(LEN)));
}

#[test]
fn every_byte_is_counted_where_it_went() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let place = place(SCRATCH, &[(0, 0, ROUNDED)]);
    rig.cache(7, LEN, &place);
    rig.promote(7, &place, slot(0, LEN)).unwrap();
    rig.promote(8, &place, slot(0, LEN)).unwrap_err();
    let counters = rig.plane.counters();
    let once = Traffic { operations: 1, bytes: Bytes(LEN), failed: 0 };
    assert_eq!(counters.source, once);
    let scratch = counters.tiers[usize::from(SCRATCH.0)];
    assert_eq!(scratch.written, once);
    assert_eq!(scratch.read, Traffic { failed: 1, ..once });
    assert_eq!(counters.tiers[usize::from(MAIN.0)].read, Traffic::default());
    assert_eq!((counters.faults, counters.abandoned), (1, 0));
}

#[test]
fn a_tier_that_does_not_exist_is_a_fault() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path());
    let nowhere = place(TierId(200), &[(0, 0, ROUNDED)]);
    assert_eq!(rig.promote(7, &nowhere, slot(0, LEN)), Err(Fault::Io));
    assert_eq!(rig.add_chunk(TierId(200), 0), Err(Fault::Io));
}

/// Cuts `ROUNDED` bytes into pieces at multiples of 64, with a gap of 64 after each, over two chunks.
fn cut(tier: TierId, cuts: &[u64]) -> Place {
    let mut ends: Vec<u64> = cuts.iter().map(|cut| cut % (ROUNDED / 64) * 64).collect();
    ends.push(ROUNDED);
    ends.sort_unstable();
    let (mut pieces, mut start) = (Vec::new(), 0);
    for (index, end) in (0_u32..).zip(ends) {
        if end > start {
            pieces.push((index % 2, start + u64::from(index) * 64, end - start));
        }
        start = end;
    }
    // The order of the pieces is the order of the bytes; the offsets do not matter.
    place(tier, &pieces)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn however_a_sample_is_cut_its_bytes_stay_in_order(
        tiers in (0_u8..4, 0_u8..4),
        cuts in (prop::collection::vec(0_u64..u64::MAX, 0..20), prop::collection::vec(0_u64..u64::MAX, 0..20)),
        sample in 0_u32..1_000,
    ) {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path());
        let origin = cut(TierId(tiers.0), &cuts.0);
        let mut target = cut(TierId(tiers.1), &cuts.1);
        for piece in &mut target.pieces {
            piece.chunk.0 += 2;
        }
        for chunk in [2, 3] {
            rig.add_chunk(TierId(tiers.1), chunk).unwrap();
        }
        rig.cache(sample, LEN, &origin);
        rig.demote(sample, Origin::Tier(origin), LEN, &target).unwrap();
        rig.promote(sample, &target, slot(1 << 20, LEN)).unwrap();
        let staged = rig.staged(slot(1 << 20, LEN));
        prop_assert!(staged == content(SampleId(sample), Bytes(LEN)));
    }
}
