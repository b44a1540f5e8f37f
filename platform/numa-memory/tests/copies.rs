//! Every operation that moves bytes into, out of and between mappings, compared with the same on a
//! `Vec<u8>`.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare fails")]

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    os::{fd::AsFd, unix::fs::FileExt as _},
    sync::{LazyLock, atomic::Ordering},
    thread,
};

use proptest::prelude::*;
use tierfeed_numa_memory::{PageCache, Pages, RangeError, Region, Request, cached};
use tierfeed_test_needs::{Need, skip};
use tierfeed_units::{Bytes, Locality};

const LEN: usize = 100_000;

/// Every byte differs from its neighbours, and the pattern from itself shifted by a page.
static PATTERN: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LEN).map(|it| u8::try_from(it % 251).unwrap()).collect());

fn region() -> Region {
    let request = Request {
        len: Bytes(LEN as u64),
        locality: Locality::Anywhere,
        name: "copies",
        pages: Pages::Small,
    };
    Region::allocate(&request).unwrap()
}

fn patterned() -> Region {
    let region = region();
    region.write(Bytes(0), &PATTERN).unwrap();
    region
}

fn bytes_of(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    region.read(Bytes(0), &mut bytes).unwrap();
    bytes
}

fn bytes(number: usize) -> Bytes {
    Bytes(number as u64)
}

/// Ranges of which about half lie inside `LEN` bytes.
fn any_range() -> impl Strategy<Value = (usize, usize)> {
    (0..LEN + 10, prop_oneof![0..100_usize, 0..LEN])
}

fn is_inside((offset, len): (usize, usize)) -> bool {
    offset + len <= LEN
}

proptest! {
    #[test]
    fn a_copy_moves_the_range_and_nothing_else(to in 0..LEN + 10, from in any_range()) {
        let (source, target) = (patterned(), region());
        let (from, len) = from;
        let outcome = target.copy_from(bytes(to), &source, bytes(from), bytes(len));
        let mut expected = vec![0; LEN];
        if is_inside((to, len)) && is_inside((from, len)) {
            prop_assert_eq!(outcome, Ok(()));
            expected[to..to + len].copy_from_slice(&PATTERN[from..from + len]);
        } else {
            prop_assert!(outcome.is_err());
        }
        prop_assert_eq!(bytes_of(&target), expected);
    }

    #[test]
    fn a_copy_past_the_caches_moves_the_range_and_nothing_else(to in 0..LEN + 10, from in any_range()) {
        let (source, target) = (patterned(), region());
        let (from, len) = from;
        let outcome = target.copy_from_non_temporal(bytes(to), &source, bytes(from), bytes(len));
        let mut expected = vec![0; LEN];
        if is_inside((to, len)) && is_inside((from, len)) {
            prop_assert_eq!(outcome, Ok(()));
            expected[to..to + len].copy_from_slice(&PATTERN[from..from + len]);
        } else {
            prop_assert!(outcome.is_err());
        }
        prop_assert_eq!(bytes_of(&target), expected);
    }

    #[test]
    fn a_copy_past_the_caches_within_one_mapping_may_overlap(
        to in 0..LEN / 2, from in 0..LEN / 2, len in 0..LEN / 2,
    ) {
        let region = patterned();
        region.copy_from_non_temporal(bytes(to), &region, bytes(from), bytes(len)).unwrap();
        let mut expected = PATTERN.clone();
        expected.copy_within(from..from + len, to);
        prop_assert_eq!(bytes_of(&region), expected);
    }

    #[test]
    fn a_copy_within_one_mapping_may_overlap(to in 0..LEN / 2, from in 0..LEN / 2, len in 0..LEN / 2) {
        let region = patterned();
        region.copy_from(bytes(to), &region, bytes(from), bytes(len)).unwrap();
        let mut expected = PATTERN.clone();
        expected.copy_within(from..from + len, to);
        prop_assert_eq!(bytes_of(&region), expected);
    }

    #[test]
    fn a_file_is_read_up_to_its_end(range in any_range(), start in 0..2 * LEN) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&PATTERN).unwrap();
        let region = region();
        let (offset, len) = range;
        let outcome = region.read_from_file(bytes(offset), bytes(len), file.as_fd(), bytes(start));
        let mut expected = vec![0; LEN];
        if is_inside(range) {
            let count = len.min(LEN.saturating_sub(start));
            prop_assert_eq!(outcome.unwrap(), bytes(count));
            let start = start.min(LEN);
            expected[offset..offset + count].copy_from_slice(&PATTERN[start..start + count]);
        } else {
            prop_assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        prop_assert_eq!(bytes_of(&region), expected);
    }

    #[test]
    fn a_range_is_written_to_its_place_in_a_file(range in any_range(), start in 0..1000_usize) {
        let mut file = tempfile::tempfile().unwrap();
        let (offset, len) = range;
        let outcome = patterned().write_to_file(bytes(offset), bytes(len), file.as_fd(), bytes(start));
        let mut written = Vec::new();
        file.seek(SeekFrom::Start(start as u64)).unwrap();
        file.read_to_end(&mut written).unwrap();
        if is_inside(range) {
            outcome.unwrap();
            prop_assert_eq!(&written[..], &PATTERN[offset..offset + len]);
        } else {
            prop_assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::InvalidInput);
            prop_assert!(written.is_empty());
        }
    }
}

#[test]
fn offsets_that_overflow_are_outside() {
    let region = region();
    let outcome = region.fill(Bytes(u64::MAX), Bytes(2), 1);
    let mapped = bytes(LEN);
    let expected = RangeError::Outside { offset: Bytes(u64::MAX), len: Bytes(2), mapped };
    assert_eq!(outcome, Err(expected));
    assert!(region.as_ptr_range(Bytes(1), Bytes(u64::MAX)).is_err());
    assert!(region.atomic_u64(Bytes(u64::MAX - 7)).is_err());
    assert_eq!(
        expected.to_string(),
        "a range of 2 bytes at offset 18446744073709551615 leaves a mapping of 100000 bytes"
    );
}

#[test]
fn the_last_byte_is_inside_and_the_next_is_not() {
    let region = region();
    assert_eq!(region.fill(bytes(LEN - 1), Bytes(1), 1), Ok(()));
    assert_eq!(region.fill(bytes(LEN), Bytes(0), 1), Ok(()));
    assert!(region.fill(bytes(LEN), Bytes(1), 1).is_err());
    assert!(region.fill(bytes(LEN - 1), Bytes(2), 1).is_err());
    assert!(region.fill(Bytes(0), bytes(LEN + 1), 1).is_err());
}

/// Files of `/proc` return less than was requested, about a page at a time.
#[test]
fn short_reads_are_continued_and_stay_in_the_range() {
    const COUNT: usize = 50_001;
    let path = "/proc/kallsyms";
    let mut expected = vec![0; COUNT];
    File::open(path).unwrap().read_exact(&mut expected).unwrap();
    expected.resize(LEN, 0);
    let (region, file) = (region(), File::open(path).unwrap());
    let read = region.read_from_file(Bytes(0), bytes(COUNT), file.as_fd(), Bytes(0));
    assert_eq!(read.unwrap(), bytes(COUNT));
    assert!(bytes_of(&region) == expected);
}

#[test]
fn fill_sets_the_range_and_nothing_else() {
    let region = region();
    region.fill(Bytes(3), Bytes(5), 9).unwrap();
    assert_eq!(&bytes_of(&region)[..10], [0, 0, 0, 9, 9, 9, 9, 9, 0, 0]);
}

#[test]
fn atomics_must_be_aligned_and_inside() {
    let region = region();
    region.atomic_u64(Bytes(16)).unwrap().store(0x0102, Ordering::Release);
    assert_eq!(&bytes_of(&region)[16..19], [2, 1, 0]);
    assert!(matches!(region.atomic_u64(Bytes(12)), Err(RangeError::Misaligned { .. })));
    assert!(matches!(region.atomic_u64(bytes(LEN)), Err(RangeError::Outside { .. })));
}

#[test]
fn a_read_past_the_page_cache_reads_the_same() {
    // In the build directory, which is more likely than `/tmp` to be on a disk.
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&PATTERN).unwrap();
    let region = region();
    let read =
        region.read_from_file_with(Bytes(0), bytes(LEN), file.as_fd(), Bytes(0), PageCache::Drop);
    assert_eq!(read.unwrap(), bytes(LEN));
    assert_eq!(bytes_of(&region), *PATTERN);
}

#[test]
fn a_read_past_the_page_cache_leaves_nothing_there_and_another_one_does() {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&PATTERN).unwrap();
    file.sync_all().unwrap();
    let held = || cached(file.as_fd(), Bytes(0), bytes(LEN)).map(|it| it.0);
    let drop_all = || {
        let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        nix::fcntl::posix_fadvise(file.as_fd(), 0, 0, advice).unwrap();
    };
    drop_all();
    // Kernels before Linux 6.5 cannot tell, and a file system in memory keeps its pages.
    match held() {
        Ok(0) => (),
        Ok(kept) => return skip(Need::DirectIo, format_args!("the file system keeps {kept}")),
        Err(error) => return skip(Need::Cachestat, error),
    }
    // An overlay reports the pages of its own file, which has none.
    file.read_exact_at(&mut vec![0; LEN], 0).unwrap();
    if matches!(held(), Ok(0)) {
        return skip(Need::Cachestat, "the file system does not tell what is cached");
    }
    drop_all();
    let region = region();
    let read = |page_cache| {
        let from = file.as_fd();
        region.read_from_file_with(Bytes(0), bytes(LEN), from, Bytes(0), page_cache).unwrap();
        held().unwrap()
    };
    assert_eq!(read(PageCache::Drop), 0);
    assert!(read(PageCache::Keep) > 0);
}

#[test]
fn what_the_page_cache_has_is_read_without_a_wait_and_the_rest_is_not() {
    let mut file = tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    file.write_all(&PATTERN).unwrap();
    file.sync_all().unwrap();
    let region = region();
    let read = || region.read_cached_from_file(Bytes(0), bytes(LEN), file.as_fd(), Bytes(0));
    // A file system that cannot tell gives the same result.
    match read().unwrap() {
        Some(_) => assert_eq!(bytes_of(&region), *PATTERN),
        None => skip(Need::Cachestat, "the file system does not tell what is cached"),
    }
    let advice = nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED;
    nix::fcntl::posix_fadvise(file.as_fd(), 0, 0, advice).unwrap();
    let held = || cached(file.as_fd(), Bytes(0), bytes(LEN));
    match held() {
        Ok(Bytes(0)) => {
            assert_eq!(read().unwrap(), None);
            assert_eq!(held().unwrap(), Bytes(0), "and nothing was read in");
        }
        Ok(kept) => skip(Need::DirectIo, format_args!("the file system keeps {kept}")),
        Err(error) => skip(Need::Cachestat, error),
    }
    let beyond = region.read_cached_from_file(bytes(LEN), Bytes(1), file.as_fd(), Bytes(0));
    assert_eq!(beyond.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn errors_of_the_file_come_through() {
    let directory = File::open(env!("CARGO_MANIFEST_DIR")).unwrap();
    let read = region().read_from_file(Bytes(0), Bytes(1), directory.as_fd(), Bytes(0));
    assert_eq!(read.unwrap_err().kind(), io::ErrorKind::IsADirectory);
    let read_only = File::open("/dev/null").unwrap();
    let written = patterned().write_to_file(Bytes(0), Bytes(1), read_only.as_fd(), Bytes(0));
    assert_eq!(written.unwrap_err().raw_os_error(), Some(9), "EBADF");
    let far = region().read_from_file(Bytes(0), Bytes(1), read_only.as_fd(), Bytes(u64::MAX));
    assert_eq!(far.unwrap_err().kind(), io::ErrorKind::InvalidInput);
}

/// Copies a chunk as the runtime does: each thread a part.
#[test]
fn several_threads_copy_one_region() {
    let (source, target) = (patterned(), region());
    let part = LEN / 4;
    let copy = |start| target.copy_from_non_temporal(start, &source, start, bytes(part)).unwrap();
    thread::scope(|scope| {
        for index in 0..4 {
            scope.spawn(move || copy(bytes(index * part)));
        }
    });
    assert_eq!(bytes_of(&target), *PATTERN);
}
