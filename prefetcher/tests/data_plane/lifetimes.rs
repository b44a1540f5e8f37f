//! Invariants 1, 2, 4 and 5: commands do not block, operations are answered, memory and files are freed.

use std::{fs, num::NonZeroUsize, path::Path, sync::Arc};

use proptest::prelude::*;
use tierfeed_core::{
    id::{ChunkId, Rank, SampleId, TierId},
    session::{Fault, Memory, Operation, Origin, Retention, Slot},
    units::Bytes,
};
use tierfeed_prefetcher::tier::Medium;

use crate::{
    faulty_source::{FaultySource, content},
    rig::{ARENA, CHUNK, MAIN, RANK, Rig, SCRATCH, STORAGE, four_tiers, place, promote, slot},
};

const LEN: u64 = 65_536;

fn entries_below(root: &Path) -> usize {
    ["scratch", "storage"].map(|it| fs::read_dir(root.join(it)).unwrap().count()).iter().sum()
}

#[test]
fn a_full_queue_answers_instead_of_blocking() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = four_tiers(root.path());
    settings.operations_max = NonZeroUsize::new(4).unwrap();
    let source = Arc::new(FaultySource::default());
    let mut rig = Rig::start_ready(&settings, Arc::clone(&source) as _);
    source.gate.close();
    let ops: Vec<_> = (0..20)
        .map(|sample| {
            let to = slot(u64::from(sample) * LEN, LEN);
            rig.start_op(Operation::Fetch {
                sample: SampleId(sample),
                to,
                retention: Retention::Kept,
            })
        })
        .collect();
    source.gate.open();
    let outcomes: Vec<_> = ops.into_iter().map(|op| rig.wait(op)).collect();
    let refused = outcomes.iter().filter(|outcome| **outcome == Err(Fault::Io)).count();
    // Two queues hold four each, and eight threads may have taken one each before the last was started: four
    // that wait, and as many as there are processors, at most four, that only copy.
    assert!((4..=16).contains(&refused), "{outcomes:?}");
    assert_eq!(rig.plane.counters().abandoned, refused as u64);
}

#[test]
fn stopping_answers_what_runs_and_what_waits() {
    let root = tempfile::tempdir().unwrap();
    let source = Arc::new(FaultySource::default());
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::clone(&source) as _);
    source.gate.close();
    for sample in 0..50 {
        let to = slot(u64::from(sample) * LEN, LEN);
        rig.start_op(Operation::Fetch { sample: SampleId(sample), to, retention: Retention::Kept });
    }
    let outcomes = rig.shut_down();
    assert!(outcomes.values().filter(|outcome| **outcome == Err(Fault::Io)).count() >= 46);
}

#[test]
fn nothing_of_a_tier_is_ever_in_its_directory() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::new(FaultySource::default()));
    rig.cache(7, LEN, &place(STORAGE, &[(0, 0, LEN)]));
    assert_eq!(entries_below(root.path()), 0, "so kill -9 leaves nothing either");
    rig.shut_down();
    assert_eq!(entries_below(root.path()), 0);
}

#[test]
fn usage_is_what_was_taken_and_not_yet_given_back() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::new(FaultySource::default()));
    let usage = rig.plane.usage();
    assert_eq!(usage.arenas, ARENA);
    assert!(usage.tiers.iter().all(|tier| tier.bytes.0 == 2 * CHUNK.0), "{usage:?}");
    assert_eq!(usage.on(Medium::Memory).0, ARENA.0 + 4 * CHUNK.0);
    assert_eq!(usage.on(Medium::Tmpfs).0 + usage.on(Medium::Disk).0, 4 * CHUNK.0);

    rig.drop_chunk(MAIN, 0);
    rig.drop_chunk(STORAGE, 1);
    rig.plane.free(Memory::Arena(RANK));
    // One thread frees and takes memory in order, so that a node never holds both.
    rig.add_chunk(SCRATCH, 9).unwrap();
    let usage = rig.plane.usage();
    assert_eq!(usage.arenas, Bytes(0));
    let chunks = usage.tiers.iter().map(|tier| tier.bytes.0 / CHUNK.0).collect::<Vec<_>>();
    assert_eq!(chunks, [1, 2, 3, 1]);
}

#[test]
fn a_part_of_an_arena_is_given_back_and_used_again() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::new(FaultySource::default()));
    let (offset, len) = (Bytes(ARENA.0 / 2), Bytes(ARENA.0 / 2));
    rig.run(Operation::TrimArena { rank: RANK, offset, len }).unwrap();
    assert_eq!(rig.plane.usage().arenas.0, ARENA.0 - len.0);
    rig.run(Operation::RestoreArena { rank: RANK, offset, len }).unwrap();
    assert_eq!(rig.plane.usage().arenas, ARENA);
    let to = slot(offset.0, LEN);
    rig.run(Operation::Fetch { sample: SampleId(7), to, retention: Retention::Dropped }).unwrap();
    let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
    rig.plane.arena(RANK).unwrap().read(offset, &mut bytes).unwrap();
    assert_eq!(bytes, content(SampleId(7), Bytes(LEN)));

    rig.run(Operation::TrimArena { rank: RANK, offset, len }).unwrap();
    rig.plane.free(Memory::Arena(RANK));
    rig.add_chunk(SCRATCH, 9).unwrap();
    // The thread that fetched may let go of the arena only after it has answered.
    while rig.plane.usage().arenas == Bytes(ARENA.0 - len.0) {
        std::thread::yield_now();
    }
    assert_eq!(rig.plane.usage().arenas, Bytes(0), "what was given back is not counted twice");
    let late = rig.run(Operation::RestoreArena { rank: RANK, offset, len });
    assert!(late.is_err(), "an arena that is closed stays closed");
}

#[test]
fn an_arena_lives_as_long_as_somebody_uses_it() {
    let root = tempfile::tempdir().unwrap();
    let source = Arc::new(FaultySource::default());
    let mut rig = Rig::start_ready(&four_tiers(root.path()), Arc::clone(&source) as _);
    let arena = rig.plane.arena(RANK).unwrap();
    source.gate.close();
    let op = rig.start_op(Operation::Fetch {
        sample: SampleId(7),
        to: slot(0, LEN),
        retention: Retention::Kept,
    });
    source.gate.open();
    rig.plane.free(Memory::Arena(RANK));
    // Whether the fetch found the arena or came too late: it ended, and harmed nothing.
    let outcome = rig.wait(op);
    if outcome.is_ok() {
        let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
        arena.read(Bytes(0), &mut bytes).unwrap();
        assert_eq!(bytes, content(SampleId(7), Bytes(LEN)));
    }
    assert!(rig.plane.arena(RANK).is_none());
}

/// One command to the plane, which may be invalid at this moment.
#[derive(Debug, Clone, Copy)]
enum Act {
    Open(u32),
    Close(u32),
    Add(u8, u32),
    Drop(u8, u32),
    Fetch(u32, u32),
    Promote(u32, u8, u32, u32),
    DemoteStaged(u32, u32, u8, u32),
    DemoteCached(u32, u8, u32, u8, u32),
    Prefetch(u32, u8, u32),
    Advance(u32, u8, u32, u8, u32),
}

fn any_act() -> impl Strategy<Value = Act> {
    let (rank, tier, chunk, sample) = (0_u32..2, 0_u8..5, 0_u32..2, 0_u32..3);
    prop_oneof![
        1 => rank.clone().prop_map(Act::Open),
        1 => rank.clone().prop_map(Act::Close),
        2 => (tier.clone(), chunk.clone()).prop_map(|(tier, chunk)| Act::Add(tier, chunk)),
        2 => (tier.clone(), chunk.clone()).prop_map(|(tier, chunk)| Act::Drop(tier, chunk)),
        4 => (sample.clone(), rank.clone()).prop_map(|(sample, rank)| Act::Fetch(sample, rank)),
        4 => (sample.clone(), tier.clone(), chunk.clone(), rank.clone())
            .prop_map(|(sample, tier, chunk, rank)| Act::Promote(sample, tier, chunk, rank)),
        4 => (sample.clone(), rank, tier.clone(), chunk.clone())
            .prop_map(|(sample, rank, tier, chunk)| Act::DemoteStaged(sample, rank, tier, chunk)),
        4 => (sample.clone(), tier.clone(), chunk.clone())
            .prop_map(|(sample, tier, chunk)| Act::Prefetch(sample, tier, chunk)),
        2 => (sample.clone(), tier.clone(), chunk.clone(), tier.clone(), chunk.clone())
            .prop_map(|(sample, from, of, to, chunk)| Act::Advance(sample, from, of, to, chunk)),
        2 => (sample, tier.clone(), chunk.clone(), tier, chunk)
            .prop_map(|(sample, from, of, to, chunk)| Act::DemoteCached(sample, from, of, to, chunk)),
    ]
}

/// All samples share one slot and one range per chunk, so that operations race for the same bytes.
fn start(rig: &mut Rig, act: Act) {
    let at = |rank| Slot { rank: Rank(rank), ..slot(0, LEN) };
    let cached = |tier, chunk| place(TierId(tier), &[(chunk, 0, LEN)]);
    match act {
        Act::Open(rank) => {
            rig.start_op(Operation::OpenArena { rank: Rank(rank), len: CHUNK });
        }
        Act::Close(rank) => {
            rig.plane.free(Memory::Arena(Rank(rank)));
        }
        Act::Add(tier, chunk) => {
            let (tier, chunk) = (TierId(tier), ChunkId(chunk));
            rig.start_op(Operation::AddChunk { tier, chunk });
        }
        Act::Drop(tier, chunk) => rig.drop_chunk(TierId(tier), chunk),
        Act::Fetch(sample, rank) => {
            rig.start_op(Operation::Fetch {
                sample: SampleId(sample),
                to: at(rank),
                retention: Retention::Kept,
            });
        }
        Act::Promote(sample, tier, chunk, rank) => {
            let (sample, from, to) = (SampleId(sample), cached(tier, chunk), at(rank));
            rig.start_op(promote(sample, from, to));
        }
        Act::DemoteStaged(sample, rank, tier, chunk) => {
            let (sample, from) = (SampleId(sample), Origin::Staging(at(rank)));
            let (len, to) = (Bytes(LEN), cached(tier, chunk));
            rig.start_op(Operation::Demote { sample, from, len, to });
        }
        Act::Prefetch(sample, tier, chunk) => {
            let (sample, len, to) = (SampleId(sample), Bytes(LEN), cached(tier, chunk));
            rig.start_op(Operation::Prefetch { sample, len, to });
        }
        Act::Advance(sample, tier, of, to, chunk) => {
            let (sample, from) = (SampleId(sample), cached(tier, of));
            let (len, to) = (Bytes(LEN), cached(to, chunk));
            rig.start_op(Operation::Advance { sample, from, len, to });
        }
        Act::DemoteCached(sample, tier, of, to, chunk) => {
            let (sample, from) = (SampleId(sample), Origin::Tier(cached(tier, of)));
            let (len, to) = (Bytes(LEN), cached(to, chunk));
            rig.start_op(Operation::Demote { sample, from, len, to });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn commands_in_any_order_end_once_and_leave_nothing(
        acts in prop::collection::vec(any_act(), 1..80),
        seed in 0_u64..3,
    ) {
        let root = tempfile::tempdir().unwrap();
        let source = FaultySource { seed, ..FaultySource::default() };
        let mut rig = Rig::start(&four_tiers(root.path()), Arc::new(source));
        for act in acts {
            start(&mut rig, act);
        }
        rig.shut_down();
        prop_assert_eq!(entries_below(root.path()), 0, "invariant 5");
    }
}
