use std::{
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use crate::{Dataset, Format, format::Raw, source::Location};
use nix::{sys::stat::Mode, unistd::mkfifo};
use tempfile::TempDir;
use tierfeed_core::{session::Fault, tier::Locality};
use tierfeed_numa_memory::{Pages, Region, Request};
use tierfeed_test_needs::{Need, skip};

use super::*;

const RECORD: usize = 1_000;
const RECORDS: usize = 5;

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|index| u8::try_from((index * 31 + salt * 7) % 251).unwrap()).collect()
}

fn index(source: &Path, format: Format) -> Arc<Index> {
    let dataset = Dataset::new(Location::Path(source.into()), format);
    Arc::new(Index::build(&dataset, None, &mut |_| ()).unwrap())
}

fn records() -> (TempDir, FileSource) {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("records"), bytes(RECORD * RECORDS, 0)).unwrap();
    let format = Format::Raw(Raw::of_records(Bytes(RECORD as u64)));
    let index = index(root.path(), format);
    (root, FileSource::new(index, 4))
}

/// Two classes with one image each, of 3 000 and 0 bytes.
fn images() -> (TempDir, FileSource) {
    let root = tempfile::tempdir().unwrap();
    for (class, len) in [("cat", 3_000), ("dog", 0)] {
        fs::create_dir(root.path().join(class)).unwrap();
        fs::write(root.path().join(class).join("1.jpg"), bytes(len, 1)).unwrap();
    }
    let index = index(root.path(), Format::ImageFolder);
    (root, FileSource::new(index, 4))
}

fn read(source: &FileSource, sample: u32, len: usize) -> Result<Vec<u8>, ReadError> {
    let mut buffer = vec![0xee; len];
    source.read_into(SampleId(sample), &mut buffer).map(|()| buffer)
}

fn check_fault(source: &FileSource, expected: Fault, part_of_message: &str) {
    let error = read(source, 0, source.index.size(SampleId(0)).0.try_into().unwrap()).unwrap_err();
    assert_eq!(error.fault(), expected, "{error}");
    assert!(error.to_string().contains(part_of_message), "{error}");
}

/// Writes other bytes to `path`, with a clearly later time.
fn rewrite(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    let later = SystemTime::now() + Duration::from_secs(2);
    fs::File::options().write(true).open(path).unwrap().set_modified(later).unwrap();
}

#[test]
fn every_record_is_its_part_of_the_file() {
    let (_root, source) = records();
    let whole = bytes(RECORD * RECORDS, 0);
    for (sample, record) in (0..).zip(whole.chunks(RECORD)) {
        assert_eq!(read(&source, sample, RECORD).unwrap(), record);
    }
}

#[test]
fn an_image_is_its_file_even_an_empty_one() {
    let (_root, source) = images();
    assert_eq!(read(&source, 0, 3_000).unwrap(), bytes(3_000, 1));
    assert!(read(&source, 1, 0).unwrap().is_empty());
}

#[test]
fn staging_gets_the_same_bytes_and_no_others() {
    let (_root, source) = records();
    let (len, locality) = (Bytes(1 << 20), Locality::Anywhere);
    let request = Request { len, locality, name: "test", pages: Pages::Small };
    let region = Arc::new(Region::allocate(&request).unwrap());
    let target = Target::new(Arc::clone(&region), Bytes(64), Bytes(RECORD as u64));
    source.read(SampleId(3), &target).unwrap();
    let mut staged = vec![0; RECORD + 64 + 1];
    region.read(Bytes(0), &mut staged).unwrap();
    assert_eq!(staged[..64], [0; 64]);
    assert_eq!(staged[64..64 + RECORD], bytes(RECORD * RECORDS, 0)[3 * RECORD..4 * RECORD]);
    assert_eq!(staged[64 + RECORD], 0);
}

#[test]
fn a_removed_file_vanished() {
    let (root, source) = images();
    fs::remove_file(root.path().join("cat/1.jpg")).unwrap();
    check_fault(&source, Fault::Vanished, "cat/1.jpg is gone");
}

#[test]
fn a_file_whose_directory_is_gone_is_none_that_vanished() {
    let (root, source) = images();
    let cat = root.path().join("cat");
    fs::remove_dir_all(&cat).unwrap();
    let missing = format!("{} is not there, or is empty", cat.display());
    check_fault(&source, Fault::Io, &missing);
    fs::write(&cat, "a file").unwrap();
    check_fault(&source, Fault::Io, &missing);
}

/// What an unmounted file system leaves behind.
#[test]
fn a_file_below_an_empty_root_is_none_that_vanished() {
    let (root, source) = records();
    let aside = tempfile::tempdir().unwrap();
    fs::rename(root.path().join("records"), aside.path().join("records")).unwrap();
    check_fault(
        &source,
        Fault::Io,
        &format!("{} is not there, or is empty", root.path().display()),
    );
    fs::write(root.path().join("another"), "").unwrap();
    check_fault(&source, Fault::Vanished, "records is gone");
}

#[test]
fn a_file_that_its_server_forgot_is_opened_again_by_name() {
    let (_root, source) = images();
    let read_when = |fails: u32| {
        let mut tries = 0;
        let read = source.read_with(SampleId(0), Bytes(3_000), |contents| {
            tries += 1;
            let Contents::File(file, from) = contents else { panic!("it is not compressed") };
            if tries <= fails {
                return Err(io::Error::from_raw_os_error(libc::ESTALE));
            }
            read_to_end_of(&mut [0; 3_000], file, from)
        });
        (read.map_err(|error| error.fault()), tries)
    };
    assert_eq!(read_when(0), (Ok(()), 1));
    assert_eq!(read_when(1), (Ok(()), 2));
    assert_eq!(read_when(2), (Err(Fault::Io), 2), "the server is away");
}

#[test]
fn a_file_of_the_same_size_but_another_time_changed() {
    let (root, source) = images();
    rewrite(&root.path().join("cat/1.jpg"), &bytes(3_000, 2));
    check_fault(&source, Fault::Changed, "indexed with 3000 bytes");
}

#[test]
fn a_file_that_grew_changed() {
    let (root, source) = images();
    rewrite(&root.path().join("cat/1.jpg"), &bytes(3_001, 1));
    check_fault(&source, Fault::Changed, "found with 3001 bytes");
}

#[test]
fn a_file_that_shrank_is_truncated() {
    let (root, source) = images();
    fs::write(root.path().join("cat/1.jpg"), bytes(2_999, 1)).unwrap();
    let part = "the sample ends at byte 3000, the object at byte 2999";
    check_fault(&source, Fault::Truncated, part);
}

#[test]
fn records_before_the_cut_changed_and_those_behind_it_are_truncated() {
    let (root, source) = records();
    let file = fs::File::options().write(true).open(root.path().join("records")).unwrap();
    file.set_len(2_500).unwrap();
    let faults = [0, 1, 2, 3].map(|sample| read(&source, sample, RECORD).unwrap_err().fault());
    assert_eq!(faults, [Fault::Changed, Fault::Changed, Fault::Truncated, Fault::Truncated]);
}

#[test]
fn a_pipe_or_a_directory_in_place_of_the_file_does_not_block() {
    let (root, source) = images();
    let path = root.path().join("cat/1.jpg");
    fs::remove_file(&path).unwrap();
    mkfifo(&path, Mode::S_IRUSR).unwrap();
    check_fault(&source, Fault::Vanished, "cat/1.jpg is gone");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    check_fault(&source, Fault::Vanished, "cat/1.jpg is gone");
}

#[test]
fn a_file_that_was_replaced_is_seen_once_the_old_one_is_closed() {
    let (root, source) = records();
    let old = bytes(RECORD * RECORDS, 0);
    assert_eq!(read(&source, 0, RECORD).unwrap(), old[..RECORD]);
    let path = root.path().join("records");
    let new = root.path().join("new");
    rewrite(&new, &bytes(RECORD * RECORDS, 9));
    fs::rename(&new, &path).unwrap();
    assert_eq!(read(&source, 1, RECORD).unwrap(), old[RECORD..2 * RECORD], "the indexed object");
    source.open_files.forget(&path);
    check_fault(&source, Fault::Changed, "records");
}

#[test]
fn a_fault_closes_the_file_so_that_a_repaired_one_is_found() {
    let (root, source) = records();
    let path = root.path().join("records");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    rewrite(&path, &bytes(10, 0));
    read(&source, 0, RECORD).unwrap_err();
    let repaired = root.path().join("repaired");
    fs::write(&repaired, bytes(RECORD * RECORDS, 0)).unwrap();
    fs::File::options().write(true).open(&repaired).unwrap().set_modified(modified).unwrap();
    fs::rename(&repaired, &path).unwrap();
    assert_eq!(read(&source, 0, RECORD).unwrap(), bytes(RECORD * RECORDS, 0)[..RECORD]);
}

#[test]
fn a_file_kept_open_that_went_bad_is_read_again_through_its_path() {
    let (root, source) = records();
    let path = root.path().join("records");
    let whole = bytes(RECORD * RECORDS, 0);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    read(&source, 0, RECORD).unwrap();
    let (copy, old) = (root.path().join("copy"), root.path().join("old"));
    fs::write(&copy, &whole).unwrap();
    fs::File::options().write(true).open(&copy).unwrap().set_modified(modified).unwrap();
    fs::rename(&path, &old).unwrap();
    fs::rename(&copy, &path).unwrap();
    rewrite(&old, b"what the open descriptor still leads to");
    assert_eq!(read(&source, 1, RECORD).unwrap(), whole[RECORD..2 * RECORD]);
}

#[test]
fn what_the_index_does_not_have_is_an_error_and_no_panic() {
    let (_root, source) = records();
    assert!(matches!(read(&source, 5, RECORD), Err(ReadError::Unknown { samples: 5, .. })));
    assert!(matches!(read(&source, 0, RECORD - 1), Err(ReadError::WrongLength { .. })));
}

/// Reads sample 0 of `source` to memory of its own, if that needs no wait.
fn read_ready(source: &FileSource, len: usize) -> Option<Vec<u8>> {
    let bytes = Bytes(len as u64);
    let (locality, pages) = (Locality::Anywhere, Pages::Small);
    let request = Request { len: bytes, locality, name: "test", pages };
    let region = Arc::new(Region::allocate(&request).unwrap());
    let mut buffer = vec![0; len];
    let target = Target::new(Arc::clone(&region), Bytes(0), bytes);
    source.read_ready(SampleId(0), &target).then(|| {
        region.read(Bytes(0), &mut buffer).unwrap();
        buffer
    })
}

#[test]
fn what_is_read_without_a_wait_is_the_same_and_what_is_wrong_is_not_read_that_way() {
    let (root, source) = images();
    // Not every file system can tell; the test is for those that can.
    if let Some(found) = read_ready(&source, 3_000) {
        assert_eq!(found, bytes(3_000, 1));
    }
    assert_eq!(read_ready(&source, 2_999), None, "a place of another length");
    let image = root.path().join("cat/1.jpg");
    rewrite(&image, &bytes(3_000, 2));
    assert_eq!(read_ready(&source, 3_000), None, "changed");
    fs::remove_file(image).unwrap();
    assert_eq!(read_ready(&source, 3_000), None, "vanished");
}

#[test]
fn a_file_of_many_samples_is_read_without_a_wait_once_it_is_open() {
    let (_root, source) = records();
    assert_eq!(read_ready(&source, RECORD), None);
    read(&source, 0, RECORD).unwrap();
    if let Some(found) = read_ready(&source, RECORD) {
        assert_eq!(found, bytes(RECORD * RECORDS, 0)[..RECORD]);
    }
}

/// Records of one page each, on the disk and not in the page cache; `None` where pages cannot be dropped.
fn cold_pages() -> Option<(TempDir, Arc<PageCacheRoom>, FileSource)> {
    const PAGE: usize = 4096;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    fs::write(&path, bytes(PAGE * RECORDS, 0)).unwrap();
    let file = fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    drop_pages(file.as_fd(), Bytes(0), Bytes(0));
    match cached(file.as_fd(), Bytes(0), Bytes(0)) {
        Ok(Bytes(0)) => (),
        Ok(left) => {
            skip(Need::DirectIo, format!("{left} stay in the page cache"));
            return None;
        }
        Err(error) => {
            skip(Need::Cachestat, error);
            return None;
        }
    }
    let room = Arc::new(PageCacheRoom::new(u32::try_from(RECORDS).unwrap()));
    let format = Format::Raw(Raw::of_records(Bytes(PAGE as u64)));
    let source = FileSource::new(index(folder.path(), format), 4).with_room(Arc::clone(&room));
    Some((folder, room, source))
}

fn page_target(is_kept: bool) -> Target {
    let (len, locality) = (Bytes(4096), Locality::Anywhere);
    let request = Request { len, locality, name: "test", pages: Pages::Small };
    let region = Arc::new(Region::allocate(&request).unwrap());
    if is_kept { Target::summed(region, Bytes(0), len) } else { Target::new(region, Bytes(0), len) }
}

fn cached_samples(root: &TempDir) -> Vec<u64> {
    let file = fs::File::open(root.path().join("records")).unwrap();
    let is_cached =
        |sample: &u64| cached(file.as_fd(), Bytes(sample * 4096), Bytes(4096)).unwrap() > Bytes(0);
    (0..RECORDS as u64).filter(is_cached).collect()
}

#[test]
fn reads_leave_their_own_pages_up_to_the_limit_and_none_beyond() {
    let Some((folder, room, source)) = cold_pages() else { return };
    room.set_limit(Bytes(2 * 4096));
    for sample in [3, 1, 0] {
        source.read(SampleId(sample), &page_target(false)).unwrap();
    }
    assert_eq!(cached_samples(&folder), [1, 3]);
    assert_eq!(room.figures().left, Bytes(2 * 4096));
    assert_eq!(room.figures().served, Bytes(0), "all of it came from the disk");
    source.read(SampleId(1), &page_target(false)).unwrap();
    assert!(source.read_ready(SampleId(3), &page_target(false)));
    assert_eq!(room.figures().served, Bytes(2 * 4096));
    assert_eq!(room.figures().served_samples, 2);
}

#[test]
fn a_sample_that_a_tier_keeps_leaves_no_pages_and_loses_those_that_reads_left() {
    let Some((folder, room, source)) = cold_pages() else { return };
    room.set_limit(Bytes(1 << 20));
    source.read(SampleId(4), &page_target(true)).unwrap();
    assert!(cached_samples(&folder).is_empty());
    for sample in 0..3 {
        source.read(SampleId(sample), &page_target(false)).unwrap();
    }
    source.read(SampleId(0), &page_target(true)).unwrap();
    assert!(source.read_ready(SampleId(1), &page_target(true)));
    source.drop_pages(SampleId(2));
    assert!(cached_samples(&folder).is_empty());
    assert_eq!(room.figures().left, Bytes(0));
    assert_eq!(room.figures().served, Bytes(2 * 4096), "they came from there once more");
}

#[test]
fn pages_that_another_program_brought_are_used_and_stay() {
    let Some((folder, room, source)) = cold_pages() else { return };
    let mut page = [0; 4096];
    fs::File::open(folder.path().join("records")).unwrap().read_at(&mut page, 4096).unwrap();
    let before = cached_samples(&folder);
    assert!(before.contains(&1));
    room.set_limit(Bytes(1 << 20));
    source.read(SampleId(1), &page_target(true)).unwrap();
    source.drop_pages(SampleId(1));
    assert_eq!(cached_samples(&folder), before);
    assert_eq!(room.figures().served, Bytes(4096));
    assert_eq!(room.figures().left, Bytes(0));
}

#[test]
fn what_is_left_in_the_page_cache_of_an_object_that_changed_is_not_handed_out() {
    let Some((folder, room, source)) = cold_pages() else { return };
    room.set_limit(Bytes(1 << 20));
    source.read(SampleId(0), &page_target(false)).unwrap();
    rewrite(&folder.path().join("records"), &bytes(4096 * RECORDS, 1));
    assert!(!source.read_ready(SampleId(0), &page_target(false)));
    let outcome = source.read(SampleId(0), &page_target(false));
    assert!(matches!(outcome, Err(ReadError::Changed { .. })), "{outcome:?}");
}
