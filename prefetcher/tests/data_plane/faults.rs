//! A failure is reported to the session as a fault, and kept for the user with its reason.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use tierfeed_core::{
    id::{Rank, SampleId},
    session::{Fault, Held, Operation, Origin, Place, Promotion, Slot},
    tier::{Kind, Locality},
    units::Bytes,
};
use tierfeed_prefetcher::{
    plane::{Cause, DataPlane, FAILURES_KEPT, StartError},
    recorder::Endpoint,
    tier::Backing,
};

use crate::{
    faulty_source::{Fate, FaultySource, content},
    rig::{
        ARENA, CHUNK, MAIN, RANK, Rig, SCRATCH, STORAGE, fetcher, four_tiers, place, slot, tier,
    },
};

const LEN: u64 = 4_096;

fn ready(root: &Path, seed: u64) -> Rig {
    let source = FaultySource { seed, ..FaultySource::default() };
    Rig::start_ready(&four_tiers(root), Arc::new(source))
}

/// The unnamed open files of this process in `directory`.
fn unnamed_files_of(directory: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let is_in_directory = |descriptor: &PathBuf| {
        fs::read_link(descriptor).is_ok_and(|target| target.starts_with(directory))
    };
    descriptors.filter(is_in_directory).filter(|descriptor| !is_directory(descriptor)).collect()
}

fn is_directory(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

#[test]
fn every_fate_of_a_read_is_told_by_its_name() {
    for seed in 1..4 {
        let root = tempfile::tempdir().unwrap();
        let source = FaultySource { seed, ..FaultySource::default() };
        let mut rig = ready(root.path(), seed);
        for sample in 0..100 {
            let at = slot(u64::from(sample % 8) * LEN, LEN);
            let fate = source.fate(SampleId(sample));
            assert_eq!(rig.fetch(sample, at), fate.outcome(), "seed {seed}, sample {sample}");
            let place = place(MAIN, &[(0, 0, LEN)]);
            let demoted = rig.demote(sample, Origin::Staging(at), LEN, &place);
            match fate.outcome() {
                Ok(()) => {
                    assert_eq!(rig.staged(at), content(SampleId(sample), Bytes(LEN)));
                    assert_eq!(demoted, Ok(()), "seed {seed}, sample {sample}");
                }
                Err(_) => assert_eq!(demoted, Err(Fault::Corrupt), "half a sample was cached"),
            }
        }
    }
}

#[test]
fn a_failure_names_the_object_and_only_so_many_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = ready(root.path(), 1);
    for sample in 0..500 {
        // The outcome is looked at below.
        let _ = rig.fetch(sample, slot(0, LEN));
    }
    let faults = rig.plane.faults();
    assert_eq!(faults.len(), FAILURES_KEPT);
    assert!(rig.plane.counters().faults > FAILURES_KEPT as u64);
    let vanished = faults.iter().find(|it| it.cause.fault() == Fault::Vanished).unwrap();
    let sample = vanished.sample.unwrap().0;
    assert_eq!(
        vanished.to_string(),
        format!(
            "sample {sample}: /made-up/{sample} is gone; it was there when the dataset was indexed"
        )
    );
}

#[test]
fn a_thread_that_panics_answers_and_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let source = FaultySource { seed: 1, ..FaultySource::default() };
    let panics = (0..1_000).find(|it| source.fate(SampleId(*it)) == Fate::Panics);
    let mut rig = ready(root.path(), 1);
    for _ in 0..20 {
        assert_eq!(rig.fetch(panics.unwrap(), slot(0, LEN)), Err(Fault::Io));
    }
    assert_eq!(rig.plane.counters().abandoned, 20);
    assert!(matches!(rig.plane.faults()[0].cause, Cause::Abandoned));
}

#[test]
fn a_byte_that_changed_on_storage_is_found() {
    for (tier, name) in [(SCRATCH, "scratch"), (STORAGE, "storage")] {
        let root = tempfile::tempdir().unwrap();
        let mut rig = ready(root.path(), 0);
        let (upper, lower) = (place(tier, &[(0, 0, LEN)]), place(STORAGE, &[(1, 64, LEN)]));
        rig.cache(7, LEN, &upper);
        rig.fill_up(tier, 0, LEN);
        for chunk in unnamed_files_of(&root.path().join(name)) {
            OpenOptions::new().write(true).open(chunk).unwrap().write_all_at(b"?", 100).unwrap();
        }
        assert_eq!(rig.promote(7, &upper, slot(0, LEN)), Err(Fault::Corrupt));
        assert_eq!(rig.demote(7, Origin::Tier(upper), LEN, &lower), Err(Fault::Corrupt));
        assert_eq!(rig.promote(7, &lower, slot(0, LEN)), Err(Fault::Corrupt), "it spread");
        let faults = rig.plane.faults();
        assert!(faults[0].to_string().contains(name), "{}", faults[0]);
    }
}

#[test]
fn a_chunk_that_was_cut_off_is_a_fault_and_no_crash() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = ready(root.path(), 0);
    let place = place(STORAGE, &[(0, 0, LEN)]);
    rig.cache(7, LEN, &place);
    rig.fill_up(STORAGE, 0, LEN);
    for chunk in unnamed_files_of(&root.path().join("storage")) {
        OpenOptions::new().write(true).open(chunk).unwrap().set_len(10).unwrap();
    }
    assert_eq!(rig.promote(7, &place, slot(0, LEN)), Err(Fault::Io));
}

#[test]
fn places_that_make_no_sense_are_faults() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = ready(root.path(), 0);
    let good = place(MAIN, &[(0, 0, LEN)]);
    rig.cache(7, LEN, &good);
    rig.fetch(7, slot(0, LEN)).unwrap();
    let staged = Origin::Staging(slot(0, LEN));
    let stranger = Slot { rank: Rank(9), ..slot(0, LEN) };

    assert_eq!(rig.fetch(7, stranger), Err(Fault::Io));
    assert_eq!(rig.promote(7, &good, stranger), Err(Fault::Io));
    assert_eq!(rig.fetch(7, slot(ARENA.0 - 64, LEN)), Err(Fault::Io));
    assert_eq!(rig.fetch(7, slot(u64::MAX, LEN)), Err(Fault::Io));
    assert_eq!(rig.promote(7, &good, slot(ARENA.0 - 64, LEN)), Err(Fault::Io));
    assert_eq!(rig.promote(7, &place(MAIN, &[(5, 0, LEN)]), slot(0, LEN)), Err(Fault::Io));
    assert_eq!(rig.promote(7, &place(MAIN, &[]), slot(0, LEN)), Err(Fault::Io));
    assert_eq!(rig.demote(7, staged.clone(), LEN, &place(MAIN, &[(0, 0, 64)])), Err(Fault::Io));
    for tier in [MAIN, SCRATCH, STORAGE] {
        let behind_the_end = place(tier, &[(0, CHUNK.0 - 64, LEN)]);
        assert_eq!(rig.demote(7, staged.clone(), LEN, &behind_the_end), Err(Fault::Io));
        let at_the_end_of_time = place(tier, &[(0, u64::MAX - 63, LEN)]);
        assert_eq!(rig.demote(7, staged.clone(), LEN, &at_the_end_of_time), Err(Fault::Io));
    }
    assert_eq!(rig.add_chunk(MAIN, 0), Err(Fault::Io), "it is there already");
    let arena = rig.run(Operation::OpenArena { rank: RANK, len: ARENA });
    assert_eq!(arena, Err(Fault::Io), "it is there already");
    assert_eq!(rig.promote(7, &good, slot(0, LEN)), Ok(()), "and nothing was harmed");
}

#[test]
fn parts_of_a_list_fail_apart_from_the_others() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = ready(root.path(), 0);
    let [first, last] = [0, LEN].map(|offset| place(MAIN, &[(0, offset, LEN)]));
    rig.cache(1, LEN, &first);
    rig.cache(2, LEN, &last);
    let part = |sample, from: &Place, at: u64| Promotion {
        sample: SampleId(sample),
        from: from.clone(),
        to: slot(at * LEN, LEN),
        held: Held::Retained,
    };
    let missing = place(MAIN, &[(9, 0, LEN)]);
    let parts = vec![part(1, &first, 0), part(3, &missing, 1), part(2, &last, 2)];
    assert_eq!(rig.run(Operation::Promote { parts }), Err(Fault::Io));
    for (sample, at) in [(1, 0), (2, 2)] {
        assert_eq!(rig.staged(slot(at * LEN, LEN)), content(SampleId(sample), Bytes(LEN)));
    }
    let counters = rig.plane.counters();
    let promoted = counters.moves.iter().find(|it| it.from == Endpoint::Tier(MAIN)).unwrap();
    assert_eq!((promoted.operations, promoted.bytes), (2, Bytes(2 * LEN)));
    assert_eq!(promoted.failed, [(Fault::Io, 1)]);
}

#[test]
fn parts_of_a_list_come_from_the_tier_that_each_names() {
    let root = tempfile::tempdir().unwrap();
    let mut rig = ready(root.path(), 0);
    let places = [MAIN, SCRATCH].map(|tier| place(tier, &[(0, 0, LEN)]));
    let parts = (1..).zip(&places).map(|(number, from)| {
        rig.cache(number, LEN, from);
        let to = slot(u64::from(number) * LEN, LEN);
        Promotion { sample: SampleId(number), from: from.clone(), to, held: Held::Retained }
    });
    let parts = parts.collect();
    assert_eq!(rig.run(Operation::Promote { parts }), Ok(()));
    for number in [1, 2] {
        let staged = rig.staged(slot(u64::from(number) * LEN, LEN));
        assert_eq!(staged, content(SampleId(number), Bytes(LEN)));
    }
}

#[test]
fn more_memory_than_there_is_is_refused_before_it_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let mut settings = four_tiers(root.path());
    settings.chunk = Bytes(1 << 50);
    let mut rig = Rig::start(&settings, Arc::new(FaultySource::default()));
    assert_eq!(rig.add_chunk(MAIN, 0), Err(Fault::NoSpace));
    assert_eq!(rig.add_chunk(STORAGE, 0), Err(Fault::NoSpace));
    let arena = rig.run(Operation::OpenArena { rank: RANK, len: Bytes(1 << 50) });
    assert_eq!(arena, Err(Fault::NoSpace));
    assert_eq!(rig.plane.usage().arenas, Bytes(0));
    assert!(rig.plane.usage().tiers.iter().all(|tier| tier.bytes == Bytes(0)));
}

#[test]
fn settings_that_make_no_sense_do_not_start() {
    let root = tempfile::tempdir().unwrap();
    let start = |settings| {
        let fetcher = fetcher(&settings, Arc::new(FaultySource::default()));
        DataPlane::start(&settings, fetcher, |_| ()).unwrap_err()
    };
    let mut settings = four_tiers(root.path());
    settings.chunk = Bytes(0);
    assert!(matches!(start(settings), StartError::EmptyChunk));

    let mut settings = four_tiers(root.path());
    settings.tiers = vec![tier(Kind::MainMemory, Backing::Memory(Locality::Anywhere), None); 256];
    assert!(matches!(start(settings), StartError::TooManyTiers { tiers: 256, .. }));

    let file = root.path().join("file");
    fs::File::create(&file).unwrap().write_all(b"no directory").unwrap();
    let mut settings = four_tiers(root.path());
    settings.tiers[3].backing = Backing::Directory(file.clone());
    let error = start(settings).to_string();
    let expected = format!("tier 3 (storage): cannot open the directory {}", file.display());
    assert!(error.starts_with(&expected), "{error}");

    let mut settings = four_tiers(root.path());
    settings.tiers[0].cpus = vec![1_000_000];
    assert!(matches!(start(settings), StartError::Threads { .. }));
}
