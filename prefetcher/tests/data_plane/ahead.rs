//! A sample that is fetched ahead into a tier has the bytes that the source delivered, or is not there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tierfeed_core::{
    id::{ChunkId, SampleId},
    session::Fault,
    tier::Speed,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_prefetcher::recorder::Endpoint;

use crate::{
    faulty_source::{FaultySource, content},
    rig::{CXL, MAIN, Rig, SCRATCH, STORAGE, four_tiers, place, slot},
};

/// Not a multiple of any alignment, and longer than one piece of a copy.
const LEN: u64 = 600_011;
const ROUNDED: u64 = LEN.next_multiple_of(64);
/// In two chunks, with a gap between the pieces.
const PIECES: [(u32, u64, u64); 3] =
    [(1, 640, 64), (0, 0, 300_032), (0, 300_160, ROUNDED - 300_096)];

fn rig(root: &std::path::Path, seed: u64) -> Rig {
    let source = FaultySource { seed, ..FaultySource::default() };
    Rig::start_ready(&four_tiers(root), Arc::new(source))
}

#[test]
fn a_sample_that_was_fetched_ahead_comes_from_every_tier() {
    for tier in [MAIN, CXL, SCRATCH, STORAGE] {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path(), 0);
        let place = place(tier, &PIECES);
        rig.prefetch(7, LEN, &place).unwrap();
        rig.promote(7, &place, slot(1 << 20, LEN)).unwrap();
        assert_eq!(rig.staged(slot(1 << 20, LEN)), content(SampleId(7), Bytes(LEN)), "{tier:?}");
        let moves = &rig.plane.counters().moves;
        assert!(moves.iter().any(|it| (it.from, it.to) == (Endpoint::Cold, Endpoint::Tier(tier))));
        assert_eq!(rig.plane.counters().source.bytes, Bytes(LEN));
    }
}

#[test]
fn a_sample_moves_up_from_every_tier_to_every_other() {
    let tiers = [MAIN, CXL, SCRATCH, STORAGE];
    for (from, to) in tiers.iter().flat_map(|from| tiers.map(|to| (*from, to))) {
        let root = tempfile::tempdir().unwrap();
        let mut rig = rig(root.path(), 0);
        let origin = place(from, &[(0, 0, ROUNDED)]);
        let target = place(to, &[(1, 0, 64), (1, 512, ROUNDED - 64)]);
        rig.prefetch(7, LEN, &origin).unwrap();
        rig.advance(7, &origin, LEN, &target).unwrap();
        rig.promote(7, &target, slot(1 << 20, LEN)).unwrap();
        let staged = rig.staged(slot(1 << 20, LEN));
        assert!(staged == content(SampleId(7), Bytes(LEN)), "{from:?} to {to:?}");
    }
}

#[test]
fn a_read_that_fails_leaves_no_sample_in_the_tier() {
    for tier in [MAIN, CXL, SCRATCH, STORAGE] {
        let root = tempfile::tempdir().unwrap();
        let source = FaultySource { seed: 1, ..FaultySource::default() };
        let mut rig = rig(root.path(), 1);
        let place = place(tier, &[(0, 0, 4_096)]);
        for sample in 0..40 {
            let fate = source.fate(SampleId(sample)).outcome();
            assert_eq!(rig.prefetch(sample, 4_096, &place), fate, "{tier:?}, sample {sample}");
            let promoted = rig.promote(sample, &place, slot(0, 4_096));
            assert_eq!(promoted, fate.map_err(|_| Fault::Corrupt), "{tier:?}, sample {sample}");
        }
    }
}

#[test]
fn an_empty_sample_arrives_and_a_place_that_is_too_short_or_gone_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = rig(root.path(), 0);
    rig.prefetch(1, 0, &place(MAIN, &[])).unwrap();
    assert_eq!(rig.prefetch(2, 65, &place(CXL, &[(0, 0, 64)])), Err(Fault::Io));
    assert_eq!(rig.prefetch(2, 64, &place(CXL, &[(9, 0, 64)])), Err(Fault::Io));
    let faults = rig.plane.faults();
    assert!(faults.iter().any(|it| it.cause.to_string().contains(&ChunkId(9).0.to_string())));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the point of emulation is time that people measure")]
fn an_emulated_tier_takes_what_is_fetched_ahead_at_its_speed() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = four_tiers(root.path());
    let bandwidth = BytesPerSecond(10_000_000);
    settings.tiers[1].emulated = Some(Speed { latency: Nanoseconds(0), bandwidth });
    let mut rig = Rig::start_ready(&settings, Arc::new(FaultySource::default()));
    let start = Instant::now();
    rig.prefetch(7, 100_000, &place(CXL, &[(0, 0, 100_032)])).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(10));
}
