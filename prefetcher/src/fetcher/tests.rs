//! The invariants of a fetcher, checked for both engines: one body, two runners.

use std::{
    fs,
    fs::File,
    num::{NonZeroU16, NonZeroUsize},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::{Duration, SystemTime},
};

use tempfile::TempDir;
use tierfeed_core::{session::Fault, tier::Locality, units::Bytes};
use tierfeed_dataset::{Dataset, Format, Index, format::Raw, source::Location};
use tierfeed_file_io::{direct, io_uring_available};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_test_needs::{Need, skip};

use super::*;
use tierfeed_dataset::read::{FileSource, page_cache::PageCacheRoom, sample_sum::sum_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Engine {
    Threads,
    Ring,
}

/// Runs each body on threads, and on a ring where this machine has rings.
macro_rules! on_both_engines {
    ($($name:ident)+) => {
        mod threads {
            $(#[test] fn $name() { super::$name(super::Engine::Threads); })+
        }
        mod ring {
            $(#[test] fn $name() {
                match super::io_uring_available() {
                    Ok(()) => super::$name(super::Engine::Ring),
                    Err(reason) => super::skip(super::Need::IoUring, reason),
                }
            })+
        }
    };
}

on_both_engines! {
    every_record_comes_to_its_place_and_nothing_beside_it
    aligned_records_come_to_their_places
    records_longer_than_a_read_come_whole
    a_record_at_the_end_of_a_file_that_ends_within_a_block_comes
    what_the_page_cache_holds_comes_too
    files_of_their_own_come_and_empty_ones
    a_file_that_was_cut_says_which_records_are_truncated
    a_file_that_was_cut_while_it_was_open_is_noticed
    a_file_that_was_rewritten_changed
    a_file_that_is_gone_vanished
    a_file_that_was_replaced_by_an_equal_one_is_read
    what_the_index_does_not_have_is_an_error
    a_place_outside_of_its_memory_is_an_error
    what_is_given_after_a_stop_is_dropped
    a_dropped_fetcher_has_answered_or_dropped_all
}

pub(super) struct Records {
    root: TempDir,
    whole: Vec<u8>,
    pub(super) source: Arc<FileSource>,
}

pub(super) fn index_of(source: &Path, format: Format) -> Arc<Index> {
    let dataset = Dataset::new(Location::Path(source.into()), format);
    Arc::new(Index::build(&dataset, None, &mut |_| ()).unwrap())
}

/// A file of `count` records of `len` bytes, flushed to the disk.
pub(super) fn records(len: usize, count: usize) -> Records {
    let root = tempfile::tempdir().unwrap();
    let whole: Vec<u8> =
        (0..len * count).map(|at| u8::try_from((at * 31 + at / 251) % 251).unwrap()).collect();
    fs::write(root.path().join("records"), &whole).unwrap();
    let format = Format::Raw(Raw::of_records(Bytes(len as u64)));
    let source = FileSource::new(index_of(root.path(), format), 4).past_page_cache();
    let records = Records { root, whole, source: Arc::new(source) };
    File::open(records.path()).unwrap().sync_all().unwrap();
    records
}

impl Records {
    fn path(&self) -> PathBuf {
        self.root.path().join("records")
    }

    /// Drops the file from the page cache, so that a ring reads it.
    pub(super) fn make_cold(&self) {
        direct::drop_cached(&File::open(self.path()).unwrap()).unwrap();
    }

    /// Writes other bytes, with a modification time that differs by more than a clock tick.
    fn rewrite(&self, bytes: &[u8]) {
        fs::write(self.path(), bytes).unwrap();
        let later = SystemTime::now() + Duration::from_secs(2);
        File::options().write(true).open(self.path()).unwrap().set_modified(later).unwrap();
    }
}

fn count(number: usize) -> NonZeroUsize {
    NonZeroUsize::new(number).unwrap()
}

fn ring(source: &Arc<FileSource>, depth: u16) -> RingFetcher {
    let settings = RingSettings {
        threads: count(2),
        cpus: None,
        depth: NonZeroU16::new(depth).unwrap(),
        files_max: 4,
        blocking_threads: count(2),
        queued_max: count(1000),
    };
    RingFetcher::start(Arc::clone(source), &settings).unwrap()
}

fn fetcher(engine: Engine, source: &Arc<FileSource>) -> Box<dyn Fetcher> {
    match engine {
        Engine::Ring => Box::new(ring(source, 4)),
        Engine::Threads => {
            let source = Arc::clone(source) as _;
            Box::new(ThreadFetcher::start(source, count(3), count(1000)).unwrap())
        }
    }
}

/// Staging memory that was filled with a pattern.
fn staging(len: usize) -> Arc<Region> {
    let request = Request {
        len: Bytes(len as u64),
        locality: Locality::Anywhere,
        name: "test",
        pages: Pages::Small,
    };
    let region = Region::allocate(&request).unwrap();
    region.fill(Bytes(0), Bytes(len as u64), 0xee).unwrap();
    Arc::new(region)
}

fn target(region: &Arc<Region>, offset: usize, len: usize) -> Target {
    Target::new(Arc::clone(region), Bytes(offset as u64), Bytes(len as u64))
}

/// The outcome of each fetch, in the order of the fetches; `None` for one that was dropped.
fn outcomes(
    fetcher: &dyn Fetcher,
    asked: impl IntoIterator<Item = (u32, Target)>,
) -> Vec<Option<Result<(), ReadError>>> {
    let answers: Vec<_> = asked
        .into_iter()
        .map(|(sample, to)| {
            let (send, receive) = mpsc::channel();
            fetcher.start(Fetch::new(SampleId(sample), to, move |outcome| {
                send.send(outcome).unwrap();
            }));
            receive
        })
        .collect();
    let once = |answers: mpsc::Receiver<_>| {
        let first = answers.recv().ok();
        assert!(answers.recv().is_err(), "invariant 2: answered once");
        first
    };
    answers.into_iter().map(once).collect()
}

/// Reads all records at once, each `step` bytes behind the one before, and compares.
fn check_all(engine: Engine, records: &Records, len: usize, first: usize, step: usize) {
    let fetcher = fetcher(engine, &records.source);
    check_all_by(&*fetcher, records, len, first, step);
}

/// As [`check_all`] with a file that the page cache does not hold: a ring must read it.
fn check_cold(engine: Engine, records: &Records, len: usize, first: usize, step: usize) {
    records.make_cold();
    if engine == Engine::Threads {
        return check_all(engine, records, len, first, step);
    }
    if let Err(reason) = crate::fetcher::ring::is_for_rings(&records.source) {
        return skip(Need::DirectIo, Choice::Threads(reason));
    }
    let ring = ring(&records.source, 4);
    check_all_by(&ring, records, len, first, step);
    let counts = ring.counts();
    assert!(counts.samples > 0 && counts.reads > 0, "threads read it all: {counts:?}");
}

fn check_all_by(fetcher: &dyn Fetcher, records: &Records, len: usize, first: usize, step: usize) {
    let count = records.whole.len() / len;
    let region = staging(first + step * count + 64);
    // Adjacent records are not requested in sequence.
    let order = (0..count).map(|at| at * 7 % count);
    let order: Vec<usize> =
        if count.is_multiple_of(7) { (0..count).collect() } else { order.collect() };
    // Every second sample is summed on its way.
    let target = |at: usize| match at % 2 {
        0 => target(&region, first + at * step, len),
        _ => Target::summed(
            Arc::clone(&region),
            Bytes((first + at * step) as u64),
            Bytes(len as u64),
        ),
    };
    let targets: Vec<Target> = (0..count).map(target).collect();
    let to = |at: &usize| (u32::try_from(*at).unwrap(), targets[*at].clone());
    for outcome in outcomes(fetcher, order.iter().map(to)) {
        outcome.expect("it was answered").unwrap();
    }
    for (at, (target, record)) in targets.iter().zip(records.whole.chunks(len)).enumerate() {
        assert_eq!(target.sum(), (at % 2 == 1).then(|| sum_of(record)), "sample {at}");
    }
    let mut staged = vec![0; first + step * count + 64];
    region.read(Bytes(0), &mut staged).unwrap();
    let mut expected = vec![0xee; staged.len()];
    for (at, record) in records.whole.chunks(len).enumerate() {
        expected[first + at * step..][..len].copy_from_slice(record);
    }
    let differing = staged.iter().zip(&expected).position(|(is, should)| is != should);
    assert_eq!(differing, None, "the first byte that is wrong");
}

fn check_fault(engine: Engine, records: &Records, sample: u32, len: usize, expected: Fault) {
    let fetcher = fetcher(engine, &records.source);
    let region = staging(len);
    let outcome = outcomes(&*fetcher, [(sample, target(&region, 0, len))]).pop().unwrap();
    let error = outcome.expect("it was answered").unwrap_err();
    assert_eq!(error.fault(), expected, "{error}");
    assert!(error.to_string().contains("records"), "{error}");
}

fn every_record_comes_to_its_place_and_nothing_beside_it(engine: Engine) {
    for len in [1000, 4097] {
        let records = records(len, 100);
        check_cold(engine, &records, len, 64, len.next_multiple_of(64) + 64);
    }
}

fn aligned_records_come_to_their_places(engine: Engine) {
    let records = records(16 << 10, 50);
    check_cold(engine, &records, 16 << 10, 4096, 20 << 10);
    // The same records at places that are not aligned.
    check_cold(engine, &records, 16 << 10, 64, 20 << 10);
}

fn records_longer_than_a_read_come_whole(engine: Engine) {
    for len in [(2 << 20) + 512, 3 << 20, (1 << 20) + 1] {
        let records = records(len, 3);
        check_cold(engine, &records, len, 0, len.next_multiple_of(4096));
    }
}

fn a_record_at_the_end_of_a_file_that_ends_within_a_block_comes(engine: Engine) {
    let records = records(777, 3);
    check_cold(engine, &records, 777, 0, 1024);
}

fn what_the_page_cache_holds_comes_too(engine: Engine) {
    let records = records(5000, 20);
    assert_eq!(fs::read(records.path()).unwrap().len(), 100_000);
    check_all(engine, &records, 5000, 0, 5056);
}

fn files_of_their_own_come_and_empty_ones(engine: Engine) {
    let root = tempfile::tempdir().unwrap();
    for (class, len) in [("cat", 3000), ("dog", 0)] {
        fs::create_dir(root.path().join(class)).unwrap();
        fs::write(root.path().join(class).join("1.jpg"), vec![7; len]).unwrap();
    }
    let source = Arc::new(FileSource::new(index_of(root.path(), Format::ImageFolder), 4));
    let fetcher = fetcher(engine, &source);
    let region = staging(4096);
    let asked = [(0, target(&region, 64, 3000)), (1, target(&region, 0, 0))];
    assert!(outcomes(&*fetcher, asked).into_iter().all(|it| it.is_some_and(|it| it.is_ok())));
    let mut staged = vec![0; 3128];
    region.read(Bytes(0), &mut staged).unwrap();
    assert!(staged[64..3064].iter().all(|byte| *byte == 7));
    assert!(staged[..64].iter().chain(&staged[3064..]).all(|byte| *byte == 0xee));
}

fn a_file_that_was_cut_says_which_records_are_truncated(engine: Engine) {
    let records = records(1000, 5);
    File::options().write(true).open(records.path()).unwrap().set_len(2500).unwrap();
    for (sample, fault) in [Fault::Changed, Fault::Changed, Fault::Truncated].iter().enumerate() {
        records.make_cold();
        check_fault(engine, &records, u32::try_from(sample).unwrap(), 1000, *fault);
    }
}

fn a_file_that_was_cut_while_it_was_open_is_noticed(engine: Engine) {
    let records = records(8192, 5);
    records.make_cold();
    let fetcher = fetcher(engine, &records.source);
    check_all_by(&*fetcher, &records, 8192, 0, 8192);
    File::options().write(true).open(records.path()).unwrap().set_len(10_000).unwrap();
    records.make_cold();
    let region = staging(5 * 8192);
    let to = |sample: u32| (sample, target(&region, sample as usize * 8192, 8192));
    let faults: Vec<_> = outcomes(&*fetcher, (0..3).map(to))
        .into_iter()
        .map(|outcome| outcome.unwrap().unwrap_err().fault())
        .collect();
    assert_eq!(faults, [Fault::Changed, Fault::Truncated, Fault::Truncated]);
}

fn a_file_that_was_rewritten_changed(engine: Engine) {
    let records = records(8192, 5);
    records.rewrite(&vec![1; 5 * 8192]);
    File::open(records.path()).unwrap().sync_all().unwrap();
    records.make_cold();
    check_fault(engine, &records, 2, 8192, Fault::Changed);
}

fn a_file_that_is_gone_vanished(engine: Engine) {
    let records = records(8192, 5);
    fs::write(records.root.path().join("another"), "").unwrap();
    fs::remove_file(records.path()).unwrap();
    check_fault(engine, &records, 2, 8192, Fault::Vanished);
}

fn a_file_that_was_replaced_by_an_equal_one_is_read(engine: Engine) {
    let records = records(8192, 5);
    records.make_cold();
    let fetcher = fetcher(engine, &records.source);
    check_all_by(&*fetcher, &records, 8192, 0, 8192);
    let modified = fs::metadata(records.path()).unwrap().modified().unwrap();
    let (copy, old) = (records.root.path().join("copy"), records.root.path().join("old"));
    fs::write(&copy, &records.whole).unwrap();
    File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    fs::rename(records.path(), &old).unwrap();
    fs::rename(&copy, records.path()).unwrap();
    fs::write(&old, b"what the open descriptor still leads to").unwrap();
    check_all_by(&*fetcher, &records, 8192, 0, 8192);
}

fn what_the_index_does_not_have_is_an_error(engine: Engine) {
    let records = records(1000, 5);
    records.make_cold();
    let fetcher = fetcher(engine, &records.source);
    let region = staging(4096);
    let asked = [(5, target(&region, 0, 1000)), (0, target(&region, 0, 999))];
    let errors: Vec<_> = outcomes(&*fetcher, asked)
        .into_iter()
        .map(|outcome| outcome.unwrap().unwrap_err())
        .collect();
    assert!(matches!(errors[0], ReadError::Unknown { samples: 5, .. }), "{:?}", errors[0]);
    assert!(matches!(errors[1], ReadError::WrongLength { .. }), "{:?}", errors[1]);
}

fn a_place_outside_of_its_memory_is_an_error(engine: Engine) {
    let records = records(8192, 5);
    records.make_cold();
    let fetcher = fetcher(engine, &records.source);
    let region = staging(8192);
    for offset in [4096, 64, 8192] {
        let asked = [(1, target(&region, offset, 8192))];
        let error = outcomes(&*fetcher, asked).pop().unwrap().unwrap().unwrap_err();
        assert_eq!(error.fault(), Fault::Io, "{error}");
    }
}

fn what_is_given_after_a_stop_is_dropped(engine: Engine) {
    let records = records(8192, 5);
    let fetcher = fetcher(engine, &records.source);
    fetcher.stop();
    let region = staging(8192);
    assert!(outcomes(&*fetcher, [(1, target(&region, 0, 8192))])[0].is_none());
}

fn a_dropped_fetcher_has_answered_or_dropped_all(engine: Engine) {
    let records = records(8192, 100);
    records.make_cold();
    let fetcher = fetcher(engine, &records.source);
    let region = staging(100 * 8192);
    let (send, receive) = mpsc::channel();
    for sample in 0..100_usize {
        let (to, send) = (target(&region, sample * 8192, 8192), send.clone());
        let sample = SampleId(u32::try_from(sample).unwrap());
        fetcher.start(Fetch::new(sample, to, move |outcome| send.send(outcome).unwrap()));
    }
    drop((send, fetcher));
    assert_eq!(Arc::strong_count(&region), 1, "invariant 5: the memory is not held any more");
    assert!(receive.iter().all(|outcome| outcome.is_ok()));
}

#[test]
fn cold_records_are_read_by_the_ring() {
    let records = records(8192, 100);
    records.make_cold();
    if let Err(reason) = io_uring_available() {
        return skip(Need::IoUring, reason);
    }
    if let Err(reason) = crate::fetcher::ring::is_for_rings(&records.source) {
        return skip(Need::DirectIo, Choice::Threads(reason));
    }
    let ring = ring(&records.source, 4);
    check_all_by(&ring, &records, 8192, 64, 8192 + 64);
    let counts = ring.counts();
    // Records that another process reads into the page cache meanwhile are read by threads.
    assert_eq!(counts.samples + counts.handed_over, 100);
    assert!(counts.samples > 50, "{counts:?}");
    assert!(counts.reads <= counts.samples, "{counts:?}");
}

#[test]
fn what_may_stay_in_the_page_cache_is_not_read_by_the_ring() {
    let records = records(8192, 100);
    records.make_cold();
    if let Err(reason) = io_uring_available() {
        return skip(Need::IoUring, reason);
    }
    if let Err(reason) = crate::fetcher::ring::is_for_rings(&records.source) {
        return skip(Need::DirectIo, Choice::Threads(reason));
    }
    let room = Arc::new(PageCacheRoom::new(100));
    let index = Arc::clone(records.source.index());
    let source = Arc::new(FileSource::new(index, 4).with_room(Arc::clone(&room)));
    let ring = ring(&source, 4);
    room.set_limit(Bytes(40 * 8192));
    check_all_by(&ring, &records, 8192, 64, 8192 + 64);
    let counts = ring.counts();
    assert_eq!(counts.samples + counts.handed_over, 100);
    assert!(counts.handed_over >= 40, "{counts:?}");
    assert_eq!(room.figures().left, Bytes(40 * 8192));
}

#[test]
fn registered_memory_is_freed_with_its_last_owner() {
    let records = records(8192, 8);
    records.make_cold();
    if let Err(reason) = io_uring_available() {
        return skip(Need::IoUring, reason);
    }
    let ring = ring(&records.source, 4);
    let region = staging(8 * 8192);
    let weak = Arc::downgrade(&region);
    let to = |sample: u32| (sample, target(&region, sample as usize * 8192, 8192));
    let asked: Vec<_> = (0..8).map(to).collect();
    outcomes(&ring, asked).into_iter().for_each(|outcome| outcome.unwrap().unwrap());
    drop(region);
    // The threads of the ring release their references some time after the last read.
    for _ in 0..10_000 {
        if weak.strong_count() == 0 {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("{} still hold the memory after ten seconds", weak.strong_count());
}

#[test]
fn memory_that_was_given_back_and_taken_again_is_read_into_anew() {
    if let Err(reason) = io_uring_available() {
        return skip(Need::IoUring, reason);
    }
    let records = records(8192, 8);
    let ring = ring(&records.source, 4);
    let region = staging(8 * 8192);
    let whole = Bytes(8 * 8192);
    for _ in 0..3 {
        records.make_cold();
        let to = |sample: u32| (sample, target(&region, sample as usize * 8192, 8192));
        let asked: Vec<_> = (0..8).map(to).collect();
        outcomes(&ring, asked).into_iter().for_each(|outcome| outcome.unwrap().unwrap());
        let mut read = vec![0; 8 * 8192];
        region.read(Bytes(0), &mut read).unwrap();
        assert!(read == records.whole, "reads went to pages that the region has no more");
        region.give_back(Bytes(0), whole).unwrap();
        region.restore(Bytes(0), whole).unwrap();
    }
}
