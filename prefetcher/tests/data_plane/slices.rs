//! Chunks of several slices: the first one has memory when the chunk is added, the others get it later.

#![expect(
    clippy::disallowed_methods,
    reason = "what happens in the background has no event to wait on"
)]

use std::{
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use tierfeed_core::{
    id::{ChunkId, Rank, SampleId, TierId},
    session::{Fault, Operation, Origin},
    tier::Kind,
    units::Bytes,
};
use tierfeed_numa_memory::{SLICE, late_slices};
use tierfeed_prefetcher::plane::{Cause, CopyError, Settings};

use crate::{
    faulty_source::{FaultySource, content},
    rig::{ARENA, CXL, MAIN, RANK, Rig, SCRATCH, four_tiers, place, slot},
};

const LEN: u64 = 8_192;
const CHUNK: Bytes = Bytes(4 * SLICE.0);
/// The time that each slice takes, for the tests that look at what happens meanwhile.
const LATE: Duration = Duration::from_millis(300);

fn settings(root: &Path) -> Settings {
    Settings { chunk: CHUNK, ..four_tiers(root) }
}

/// A plane with an arena. A RAM disk for the scratch tier if the host has one.
fn start() -> (tempfile::TempDir, Rig) {
    let root = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut rig = Rig::start(&settings(root.path()), Arc::new(FaultySource::default()));
    rig.run(Operation::OpenArena { rank: RANK, len: ARENA }).unwrap();
    (root, rig)
}

/// Bytes of memory of all chunks of this process in a tier: the kernel's count of their files.
fn resident(tier: TierId, root: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;

    let names = [
        "/memfd:tierfeed-main-memory-".to_owned(),
        "/memfd:tierfeed-cxl-memory".to_owned(),
        format!("{}/", root.join("scratch").display()),
    ];
    let name = &names[usize::from(tier.0)];
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_it = |it: &std::path::PathBuf| {
        fs::read_link(it).is_ok_and(|target| target.to_string_lossy().starts_with(name))
    };
    let mut files: Vec<_> = descriptors.filter(is_it).map(|it| fs::metadata(it).unwrap()).collect();
    files.sort_by_key(MetadataExt::ino);
    files.dedup_by_key(|it| it.ino());
    files.iter().map(|it| it.blocks() * 512).sum()
}

/// Waits until the chunks of a tier have as much memory.
fn wait_for(tier: TierId, root: &Path, bytes: u64) {
    let start = Instant::now();
    while resident(tier, root) != bytes {
        assert!(start.elapsed() < Duration::from_secs(60), "{}", resident(tier, root));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn held(rig: &Rig, tier: TierId) -> Bytes {
    rig.plane.usage().tiers[usize::from(tier.0)].bytes
}

#[test]
fn a_chunk_is_added_with_its_first_slice_and_has_all_memory_in_the_end() {
    for tier in [MAIN, CXL, SCRATCH] {
        late_slices::populate_late(LATE);
        let (root, mut rig) = start();
        rig.add_chunk(tier, 0).unwrap();
        assert_eq!(resident(tier, root.path()), SLICE.0, "{tier:?}");
        assert_eq!(held(&rig, tier), CHUNK, "its room is claimed");
        late_slices::populate_late(Duration::ZERO);
        wait_for(tier, root.path(), CHUNK.0);
        assert_eq!((held(&rig, tier), rig.plane.counters().faults), (CHUNK, 0));
        rig.drop_chunk(tier, 0);
        // On the thread that drops the chunk, after that.
        rig.run(Operation::OpenArena { rank: Rank(1), len: ARENA }).unwrap();
        assert_eq!((resident(tier, root.path()), held(&rig, tier)), (0, Bytes(0)));
    }
}

#[test]
fn bytes_behind_the_first_slice_are_right_at_once() {
    late_slices::populate_late(Duration::from_millis(50));
    for tier in [MAIN, CXL, SCRATCH] {
        let (root, mut rig) = start();
        rig.add_chunk(tier, 0).unwrap();
        let across = place(tier, &[(0, 3 * SLICE.0 - LEN / 2, LEN)]);
        let in_pieces = place(tier, &[(0, SLICE.0 + 64, LEN / 2), (0, 2 * SLICE.0, LEN / 2)]);
        rig.cache(7, LEN, &across);
        rig.prefetch(8, LEN, &in_pieces).unwrap();
        let after_all = |rig: &mut Rig| {
            for (sample, from) in [(7, &across), (8, &in_pieces)] {
                rig.promote(sample, from, slot(0, LEN)).unwrap();
                assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(sample), Bytes(LEN)));
            }
        };
        after_all(&mut rig);
        wait_for(tier, root.path(), CHUNK.0);
        after_all(&mut rig);
    }
}

#[test]
fn an_arena_does_not_wait_for_a_chunk() {
    late_slices::populate_late(LATE);
    let (_root, mut rig) = start();
    let begun = Instant::now();
    for chunk in 0..4 {
        rig.add_chunk(MAIN, chunk).unwrap();
    }
    rig.run(Operation::OpenArena { rank: Rank(1), len: ARENA }).unwrap();
    assert!(begun.elapsed() < 9 * LATE, "of the 12 slices that are missing");
}

#[test]
fn chunks_that_are_dropped_and_planes_that_end_wait_for_one_slice_at_most() {
    late_slices::populate_late(LATE);
    for tier in [MAIN, CXL, SCRATCH] {
        let (root, mut rig) = start();
        for chunk in [0, 1, 2] {
            rig.add_chunk(tier, chunk).unwrap();
        }
        let begun = Instant::now();
        rig.drop_chunk(tier, 0);
        rig.drop_chunk(tier, 1);
        // On the same thread, after these.
        rig.run(Operation::OpenArena { rank: Rank(1), len: ARENA }).unwrap();
        assert!(resident(tier, root.path()) <= CHUNK.0, "only the last one is left");
        assert_eq!(held(&rig, tier), CHUNK);
        rig.shut_down();
        assert!(begun.elapsed() < 6 * LATE, "{tier:?}: {:?}", begun.elapsed());
    }
}

#[test]
fn a_slice_without_room_is_a_fault_that_names_the_chunk() {
    for (tier, kind) in [(MAIN, Kind::MainMemory), (CXL, Kind::CxlMemory), (SCRATCH, Kind::Scratch)]
    {
        late_slices::take_all_memory();
        let (root, mut rig) = start();
        rig.add_chunk(tier, 3).unwrap();
        let at = |offset| place(tier, &[(3, offset, LEN)]);
        rig.cache(7, LEN, &at(0));
        rig.fetch(8, slot(0, LEN)).unwrap();
        let staged = Origin::Staging(slot(0, LEN));
        assert_eq!(rig.demote(8, staged.clone(), LEN, &at(SLICE.0)), Err(Fault::NoSpace));
        assert_eq!(rig.prefetch(9, LEN, &at(2 * SLICE.0)), Err(Fault::NoSpace));
        assert_eq!(resident(tier, root.path()), SLICE.0, "and nothing was taken");
        // The thread may come to it later than the copies.
        let mut failures = rig.plane.faults();
        while !failures.iter().any(|it| matches!(it.cause, Cause::Chunk { .. })) {
            std::thread::yield_now();
            failures = rig.plane.faults();
        }
        let is_of_copy = |cause: &Cause| {
            let chunk = Some(ChunkId(3));
            matches!(cause, Cause::Copy(CopyError::NoMemory { to, chunk: at, .. })
                if (*to, *at) == (Some(kind), chunk))
        };
        assert_eq!(failures.iter().filter(|it| is_of_copy(&it.cause)).count(), 2, "{failures:?}");
        for failure in failures {
            let text = failure.to_string();
            assert!(text.contains(&format!("chunk 3 of tier {kind}: asked for")), "{text}");
        }
        late_slices::return_memory();
        rig.demote(8, staged, LEN, &at(SLICE.0)).unwrap();
        for (sample, offset) in [(7, 0), (8, SLICE.0)] {
            rig.promote(sample, &at(offset), slot(0, LEN)).unwrap();
            assert_eq!(rig.staged(slot(0, LEN)), content(SampleId(sample), Bytes(LEN)));
        }
    }
}
