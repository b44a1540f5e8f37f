use std::sync::atomic::AtomicUsize;

use tierfeed_dataset::{Format, read::FileSource, source::Location};
use tierfeed_transform::PipelineFile;

use super::*;

fn png(width: u32, height: u32) -> Vec<u8> {
    let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
    [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", &sides[..], &[0; 8]].concat()
}

/// A JPEG image whose frame stands behind so much metadata.
fn jpeg(width: u16, height: u16, metadata: usize) -> Vec<u8> {
    let mut bytes = b"\xff\xd8".to_vec();
    for _ in 0..metadata / 60_000 {
        bytes.extend(b"\xff\xe1\xea\x62");
        bytes.extend(vec![0xff; 60_000]);
    }
    bytes.extend(b"\xff\xc0\0\x11\x08");
    bytes.extend([height.to_be_bytes(), width.to_be_bytes()].concat());
    bytes
}

/// An index of files with these contents, named by their numbers.
fn index(folder: &Path, files: &[Vec<u8>]) -> Arc<Index> {
    let data = folder.join("data/class");
    fs::create_dir_all(&data).unwrap();
    for (number, bytes) in files.iter().enumerate() {
        fs::write(data.join(format!("{number:03}.jpg")), bytes).unwrap();
    }
    Arc::new(Index::build(&dataset(folder), None, &mut |_| ()).unwrap())
}

fn dataset(folder: &Path) -> Dataset {
    Dataset::new(Location::Path(folder.join("data")), Format::ImageFolder)
}

fn pipeline(text: &str) -> Pipeline {
    let file: PipelineFile = serde_json::from_str(text).unwrap();
    Pipeline::try_new(&file).unwrap()
}

fn go_on(_: u32) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn the_sizes_of_all_images_are_found_also_behind_metadata() {
    let folder = tempfile::tempdir().unwrap();
    let mut files: Vec<_> = (1..200).map(|side| png(side, 2 * side)).collect();
    files.extend([jpeg(70, 80, 0), jpeg(71, 81, 600_000), b"no image".to_vec(), Vec::new()]);
    let index = index(folder.path(), &files);
    let source = FileSource::new(Arc::clone(&index), 4);
    let told = AtomicUsize::new(0);
    for threads in [1, 5, 300] {
        let sizes = ImageSizes::scan_blocking(&index, &source, threads, &|done| {
            told.fetch_max(done as usize, Ordering::Relaxed);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(sizes.unknown(), 2, "{threads} threads");
        assert_eq!(sizes.sizes[6], Some(Size { width: 7, height: 14 }));
        assert_eq!(sizes.sizes[199], Some(Size { width: 70, height: 80 }));
        assert_eq!(sizes.sizes[200], Some(Size { width: 71, height: 81 }));
        assert_eq!(told.load(Ordering::Relaxed), files.len());
    }
}

#[test]
fn an_image_that_states_more_pixels_than_allowed_has_no_prepared_length() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path(), &[png(10, 20), png(100_000, 100_000), png(9, 9)]);
    let source = FileSource::new(Arc::clone(&index), 4);
    let sizes = ImageSizes::scan_blocking(&index, &source, 2, &go_on).unwrap();
    let lens = |text| sizes.prepared(&pipeline(text)).iter().map(|it| it.0).collect::<Vec<_>>();
    let crop = r#"{"steps": [{"random_resized_crop": 8}]}"#;
    assert_eq!(lens(crop), [12 + 600, 0, 12 + 243]);
    let small = r#"{"steps": [{"random_resized_crop": 8}], "limits": {"pixels": 100}}"#;
    assert_eq!(lens(small), [0, 0, 12 + 243]);
}

#[test]
fn sizes_are_kept_for_the_index_that_they_are_of_and_damaged_files_count_as_none() {
    let folder = tempfile::tempdir().unwrap();
    let known = index(folder.path(), &[png(10, 20), b"none".to_vec()]);
    let source = FileSource::new(Arc::clone(&known), 4);
    let sizes = ImageSizes::scan_blocking(&known, &source, 2, &go_on).unwrap();
    let cache = ImageSizeCache::new(&folder.path().join("cache"));
    assert_eq!(cache.get(&known), None);
    cache.keep(&dataset(folder.path()), &known, &sizes).unwrap();
    assert_eq!(cache.get(&known), Some(sizes.clone()));
    let path = cache.path_of(&known);
    let bytes = fs::read(&path).unwrap();
    assert_eq!(ImageSizes::decode(&bytes, known.fingerprint() + 1, 2), None);
    assert_eq!(ImageSizes::decode(&bytes, known.fingerprint(), 3), None);
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        assert_eq!(ImageSizes::decode(&damaged, known.fingerprint(), 2), None, "byte {at}");
        assert_eq!(ImageSizes::decode(&bytes[..at], known.fingerprint(), 2), None, "{at} bytes");
    }
    fs::write(&path, &bytes[1..]).unwrap();
    assert_eq!(cache.get(&known), None);
}

#[test]
fn the_least_recently_used_sizes_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = ImageSizeCache::new(&folder.path().join("cache"));
    fs::create_dir(&cache.folder).unwrap();
    let old = cache.folder.join("0000000000000000.sizes");
    fs::write(&old, "").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH;
    fs::File::options().append(true).open(&old).unwrap().set_modified(long_ago).unwrap();
    for number in 1..FILES_MAX {
        fs::write(cache.folder.join(format!("{number:016x}.sizes")), "").unwrap();
    }
    let index = index(folder.path(), &[png(1, 1)]);
    cache
        .keep(&dataset(folder.path()), &index, &ImageSizes { sizes: vec![None], unread: 0 })
        .unwrap();
    assert!(!old.exists());
    assert!(cache.path_of(&index).exists());
    assert_eq!(fs::read_dir(&cache.folder).unwrap().count(), FILES_MAX);
}

#[test]
fn a_head_that_cannot_be_read_states_no_size_and_nothing_is_kept_of_that_scan() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (1..40).map(|side| png(side, side)).collect();
    let index = index(folder.path(), &files);
    let source = FileSource::new(Arc::clone(&index), 4);
    let gone = &index.extent(SampleId(20)).path;
    fs::rename(gone, gone.with_extension("away")).unwrap();
    let cache = ImageSizeCache::new(&folder.path().join("cache"));
    let sizes = ImageSizes::scan_blocking(&index, &source, 3, &go_on).unwrap();
    assert_eq!((sizes.unread(), sizes.unknown()), (1, 1));
    cache.keep(&dataset(folder.path()), &index, &sizes).unwrap();
    assert_eq!(cache.get(&index), None);
    fs::rename(gone.with_extension("away"), gone).unwrap();
    let sizes = ImageSizes::scan_blocking(&index, &source, 3, &go_on).unwrap();
    assert_eq!((sizes.unread(), sizes.unknown()), (0, 0));
}

#[test]
fn a_scan_of_a_store_that_is_down_ends_after_some_failures_in_a_row() {
    let folder = tempfile::tempdir().unwrap();
    for count in [1, 1_000] {
        let files = vec![png(1, 1); count as usize];
        let index = index(folder.path(), &files);
        let source = FileSource::new(Arc::clone(&index), 4);
        fs::remove_dir_all(folder.path().join("data")).unwrap();
        let told = AtomicUsize::new(0);
        let scan = ImageSizes::scan_blocking(&index, &source, 4, &|_| {
            told.fetch_add(1, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        let error = scan.unwrap_err();
        let ScanError::Unreadable { failures, last } = error else { panic!("{error}") };
        assert_eq!(failures, FAILURES_MAX.min(count));
        assert!(last.to_string().contains("see whether its file system is mounted"), "{last}");
        assert!(told.into_inner() < FAILURES_MAX as usize + 4, "each thread ends with its image");
    }
}

#[test]
fn a_scan_ends_when_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let index = index(folder.path(), &vec![png(1, 1); 500]);
    let source = FileSource::new(Arc::clone(&index), 4);
    let told = AtomicUsize::new(0);
    let scan = ImageSizes::scan_blocking(&index, &source, 4, &|done| {
        told.fetch_add(1, Ordering::Relaxed);
        if done < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert!(matches!(scan, Err(ScanError::Ended)));
    assert!(told.into_inner() < 10 + 4);
}
