use std::{fs::Permissions, os::unix::fs::PermissionsExt as _, os::unix::net::UnixListener};

use tempfile::TempDir;
use tierfeed_test_needs::again_without_file_rights;

use super::*;
use crate::{
    Format,
    format::{Files, Raw, Rest},
    source::Location,
};

fn tree(files: &[(&str, usize)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, len) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![b'x'; *len]).unwrap();
    }
    directory
}

fn images(source: &Path) -> Dataset {
    let source = Location::Path(source.to_owned());
    Dataset::new(source, Format::ImageFolder)
}

fn records(source: &Path, bytes: u64) -> Dataset {
    let (record_bytes, header_bytes) = (Bytes(bytes), Bytes(0));
    let raw = Raw { record_bytes, header_bytes, rest: Rest::Refuse };
    Dataset { format: Format::Raw(raw), ..images(source) }
}

fn files(source: &Path, files: Files) -> Dataset {
    Dataset { format: Format::Files(files), ..images(source) }
}

fn build(dataset: &Dataset) -> Result<Index, IndexError> {
    Index::build(dataset, None, &mut |_| ())
}

fn names(index: &Index) -> Vec<String> {
    (0..index.len()).map(|sample| index.object_name(SampleId(sample))).collect()
}

/// The message, with `directory` written as `D`.
fn message(error: &IndexError, directory: &TempDir) -> String {
    error.to_string().replace(directory.path().to_str().unwrap(), "D")
}

#[track_caller]
fn check_refused(dataset: &Dataset, directory: &TempDir, expected: &str) {
    assert_eq!(message(&build(dataset).unwrap_err(), directory), expected);
}

#[test]
fn a_sample_has_a_size_a_label_an_extent_and_a_name() {
    let directory = tree(&[("cat/a.jpg", 10), ("cat/sub/b.jpg", 0), ("dog/a.png", 30)]);
    let index = build(&images(directory.path())).unwrap();
    assert_eq!(index.len(), 3);
    assert_eq!(index.sizes().collect::<Vec<_>>(), [Bytes(10), Bytes(0), Bytes(30)]);
    assert_eq!(index.total(), Bytes(40));
    let labels = [0, 1, 2].map(|sample| index.label(SampleId(sample)));
    assert_eq!(labels, [Some(0), Some(0), Some(1)]);
    assert_eq!(index.object_name(SampleId(1)), "cat/sub/b.jpg");
    let path = directory.path().join("dog/a.png");
    let object_mtime_ns = mtime_ns(&path.metadata().unwrap());
    let expected = Extent {
        path,
        offset: 0,
        stored_len: 30,
        len: 30,
        encoding: Encoding::Plain,
        object_size: 30,
        object_mtime_ns,
        etag: None,
    };
    assert_eq!(index.extent(SampleId(2)), expected);
}

#[test]
fn a_class_without_an_image_is_named() {
    let directory = tree(&[("cat/a.jpg", 1), ("dog/a.txt", 1), ("eel/b/c.gif", 1)]);
    let ends = "remove the directory or put a file there that ends in \
                .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff or .webp";
    let expected = format!("D: no image for the class `dog` and 1 other; {ends}");
    check_refused(&images(directory.path()), &directory, &expected);
}

#[test]
fn what_is_no_image_folder_is_refused() {
    let directory = tree(&[("a.jpg", 1)]);
    let has = "an image folder has one directory per class";
    let source = images(directory.path());
    check_refused(&source, &directory, &format!("D: no class directory; {has}"));
    let source = images(&directory.path().join("a.jpg"));
    check_refused(&source, &directory, &format!("D/a.jpg: not a directory; {has}"));
    let source = images(&directory.path().join("b"));
    let expected = "D/b: no such file or directory; correct the source of the dataset";
    check_refused(&source, &directory, expected);
}

#[test]
fn a_link_that_leads_back_up_is_refused_and_one_that_leads_aside_is_not() {
    let directory = tree(&[("cat/a.jpg", 1), ("dog/sub/b.jpg", 1)]);
    std::os::unix::fs::symlink("../cat", directory.path().join("dog/aside")).unwrap();
    std::os::unix::fs::symlink("sub", directory.path().join("dog/twin")).unwrap();
    assert_eq!(build(&images(directory.path())).unwrap().len(), 4);
    std::os::unix::fs::symlink("..", directory.path().join("dog/sub/up")).unwrap();
    let expected = "D/dog/sub/up: a symbolic link that leads back to D/dog; remove it";
    check_refused(&images(directory.path()), &directory, expected);
}

#[test]
fn an_image_that_is_no_file_is_named_and_other_such_things_are_passed_over() {
    let directory = tree(&[("cat/a.jpg", 1)]);
    std::os::unix::fs::symlink("gone", directory.path().join("cat/notes")).unwrap();
    assert_eq!(build(&images(directory.path())).unwrap().len(), 1);
    let link = directory.path().join("cat/b.jpg");
    std::os::unix::fs::symlink("gone", &link).unwrap();
    let expected =
        "D/cat/b.jpg: a symbolic link to nothing; remove it, or bring back what it names";
    check_refused(&images(directory.path()), &directory, expected);
    std::fs::remove_file(&link).unwrap();
    let _socket = UnixListener::bind(&link).unwrap();
    let expected = "D/cat/b.jpg: not a regular file; samples lie in such files alone";
    check_refused(&images(directory.path()), &directory, expected);
}

#[test]
fn records_are_numbered_through_the_files_in_the_order_of_their_names() {
    let files = [("data_2", 20), ("data_10", 30), (".hidden", 3), ("data_3", 0), ("data_9", 10)];
    let directory = tree(&files);
    let index = build(&records(directory.path(), 10)).unwrap();
    let places = (0..index.len()).map(|sample| {
        let extent = index.extent(SampleId(sample));
        (extent.path.file_name().unwrap().to_str().unwrap().to_owned(), extent.offset, extent.len)
    });
    let expected = [
        ("data_10", 0),
        ("data_10", 10),
        ("data_10", 20),
        ("data_2", 0),
        ("data_2", 10),
        ("data_9", 0),
    ];
    assert!(places.eq(expected.map(|(name, offset)| (name.to_owned(), offset, 10))));
    assert_eq!((index.total(), index.size(SampleId(5))), (Bytes(60), Bytes(10)));
    assert_eq!(index.label(SampleId(0)), None);
    assert_eq!(index.class_names(), [""; 0]);
    assert_eq!(index.object_name(SampleId(4)), "data_2 at byte 10");
}

#[test]
fn one_file_of_records_is_a_dataset() {
    let directory = tree(&[("train.bin", 30)]);
    let path = directory.path().join("train.bin");
    let index = build(&records(&path, 10)).unwrap();
    assert_eq!(index.extent(SampleId(2)).path, path);
    assert_eq!((index.len(), index.extent(SampleId(2)).offset), (3, 20));
    assert!(index.object_name(SampleId(2)).ends_with("/train.bin at byte 20"));
}

#[test]
fn what_is_no_set_of_records_is_refused_with_the_numbers() {
    let directory = tree(&[("a", 20), ("b", 25), ("c/d", 10), ("e/empty", 0)]);
    let of = |name: &str| records(&directory.path().join(name), 10);
    let expected = "D/b: 25 B of records, which are 2 of 10 B and 5 B more; \
                    correct the size of a record, or leave the file out by a `glob` for the others";
    check_refused(&of(""), &directory, expected);
    check_refused(
        &of("e"),
        &directory,
        "D/e: no samples; format raw looks for files that no dot hides, with at least one record in them",
    );
}

#[test]
fn more_samples_than_ids_are_refused() {
    let directory = tree(&[("a", 0)]);
    let file = std::fs::File::create(directory.path().join("a")).unwrap();
    file.set_len(1 << 32).unwrap();
    let expected = "D/a: 4294967296 samples; at most 4294967295 can be numbered";
    check_refused(&records(directory.path(), 1), &directory, expected);
}

#[test]
fn many_files_are_measured_in_parallel_with_the_same_result() {
    let names: Vec<String> = (0..5_000).map(|number| format!("c/{number:04}.jpg")).collect();
    let files: Vec<_> =
        names.iter().zip(0..).map(|(name, len)| (name.as_str(), len % 97)).collect();
    let directory = tree(&files);
    let mut seen = Vec::new();
    let index = Index::build(&images(directory.path()), None, &mut |it| seen.push(it)).unwrap();
    let sizes = files.iter().map(|(_, len)| Bytes(*len as u64));
    assert!(index.sizes().eq(sizes));
    let last = Progress { stage: Stage::Listing, done: 5_000, total: None };
    assert_eq!(seen.last(), Some(&last));
    for name in ["c/4990.jpg", "c/1500.jpg", "c/3000.jpg"] {
        std::fs::remove_file(directory.path().join(name)).unwrap();
        std::os::unix::fs::symlink("gone", directory.path().join(name)).unwrap();
    }
    for _ in 0..20 {
        let expected =
            "D/c/1500.jpg: a symbolic link to nothing; remove it, or bring back what it names";
        check_refused(&images(directory.path()), &directory, expected);
    }
}

#[test]
fn a_saved_index_opens_as_it_was() {
    let directory = tree(&[("cat/a.jpg", 10), ("cat/sub/b.jpg", 0), ("dog/a.png", 30)]);
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("train.index");
    for dataset in [images(directory.path()), records(&directory.path().join("cat/a.jpg"), 5)] {
        let index = build(&dataset).unwrap();
        index.save(&path).unwrap();
        assert_eq!(Index::open(&path).unwrap(), index);
    }
    let names = std::fs::read_dir(elsewhere.path()).unwrap().count();
    assert_eq!(names, 1, "nothing but the index is left behind");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o600, 0o600);
}

/// The bug: a trainer that read without an agent had the index mapped, and ended by `SIGBUS` when
/// the file server failed or another node replaced the index.
#[test]
fn an_index_in_memory_survives_any_change_of_its_file() {
    let directory = tree(&[("cat/a.jpg", 10), ("dog/a.png", 30)]);
    let index = build(&images(directory.path())).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().join("train.index");
    index.save(&path).unwrap();
    let read = Index::read(&path).unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    assert_eq!(read, index);
    assert!(Index::read(&path).is_err());
}

#[test]
fn an_index_that_cannot_be_written_is_named() {
    let directory = tree(&[("a", 10)]);
    let index = build(&records(directory.path(), 10)).unwrap();
    let path = directory.path().join("none/x.index");
    let error = message(&index.save(&path).unwrap_err(), &directory);
    assert!(error.starts_with("D/none/x.index: cannot be written: "), "{error}");
}

#[test]
fn a_sample_takes_24_bytes_and_its_name() {
    let names: Vec<String> = (0..100).map(|number| format!("c/{number:03}.jpg")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let (few, many) = (tree(&files[..1]), tree(&files));
    let len = |directory: &TempDir| {
        let path = directory.path().join("x.index");
        build(&images(directory.path())).unwrap().save(&path).unwrap();
        path.metadata().unwrap().len()
    };
    assert_eq!(len(&many) - len(&few), 99 * (24 + "000.jpg".len() as u64));
}

#[test]
fn the_same_source_has_the_same_fingerprint_and_a_changed_one_has_not() {
    let directory = tree(&[("cat/a.jpg", 10), ("dog/a.png", 30)]);
    let before = build(&images(directory.path())).unwrap().fingerprint();
    assert_eq!(build(&images(directory.path())).unwrap().fingerprint(), before);
    std::fs::write(directory.path().join("dog/a.png"), [0; 31]).unwrap();
    assert_ne!(build(&images(directory.path())).unwrap().fingerprint(), before);
}

/// Moves the time of a file or directory forward, as a later change would.
fn age(path: &Path) {
    let file = std::fs::File::open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.set_modified(modified - std::time::Duration::from_secs(1)).unwrap();
}

#[test]
fn a_directory_that_changed_makes_the_index_stale() {
    let directory = tree(&[("cat/a.jpg", 10), ("dog/sub/a.png", 30)]);
    let dataset = images(directory.path());
    for below in ["cat", "dog/sub"] {
        let index = build(&dataset).unwrap();
        index.check(&dataset).unwrap();
        age(&directory.path().join(below));
        let error = message(&index.check(&dataset).unwrap_err(), &directory);
        let expected = "changed since it was indexed; build the index again";
        assert_eq!(error, format!("D/{below}: {expected}"));
    }
    let directory = tree(&[("a", 20)]);
    let index = build(&records(directory.path(), 10)).unwrap();
    age(directory.path());
    let error = message(&index.check(&records(directory.path(), 10)).unwrap_err(), &directory);
    assert!(error.starts_with("D: changed"), "{error}");
}

#[test]
fn files_that_were_written_in_place_make_the_index_stale() {
    let directory = tree(&[("cat/a.jpg", 10), ("cat/b.jpg", 20), ("dog/a.png", 30)]);
    let dataset = images(directory.path());
    let index = build(&dataset).unwrap();
    index.check(&dataset).unwrap();
    fs::write(directory.path().join("cat/b.jpg"), [7; 21]).unwrap();
    let error = message(&index.check(&dataset).unwrap_err(), &directory);
    assert_eq!(error, "D/cat/b.jpg: changed since it was indexed; build the index again");
}

/// An index that is kept in the root of an image folder changes the time of that root.
#[test]
fn the_root_of_an_image_folder_is_stale_if_and_only_if_its_classes_changed() {
    let directory = tree(&[("cat/a.jpg", 10), ("dog/a.png", 30)]);
    let dataset = images(directory.path());
    let index = build(&dataset).unwrap();
    age(directory.path());
    index.save(&directory.path().join("train.index")).unwrap();
    index.check(&dataset).unwrap();
    assert_eq!(build(&dataset).unwrap().fingerprint(), index.fingerprint());
    std::fs::create_dir(directory.path().join("eel")).unwrap();
    let error = index.check(&dataset).unwrap_err();
    assert_eq!(
        message(&error, &directory),
        "D: changed since it was indexed; build the index again"
    );
    std::fs::remove_dir(directory.path().join("eel")).unwrap();
    std::fs::rename(directory.path().join("cat"), directory.path().join("eel")).unwrap();
    assert!(matches!(index.check(&dataset), Err(IndexError::Stale { .. })));
}

#[test]
fn a_file_that_changed_in_place_is_found_and_named() {
    let directory = tree(&[("cat/a.jpg", 10), ("dog/a.png", 30)]);
    let dataset = images(directory.path());
    let file = directory.path().join("dog/a.png");
    for change in [|file: &Path| age(file), |file: &Path| std::fs::write(file, [0; 31]).unwrap()] {
        let index = build(&dataset).unwrap();
        index.verify(&dataset, &mut |_| ()).unwrap();
        change(&file);
        assert!(matches!(index.check(&dataset), Err(IndexError::Stale { .. })));
        let error = index.verify(&dataset, &mut |_| ()).unwrap_err();
        assert!(
            matches!(error, IndexError::Stale { place } if file.ends_with(&place[1..]) || file == Path::new(&place))
        );
    }
}

#[test]
fn a_single_file_that_changed_is_found_by_check() {
    let directory = tree(&[("a", 20)]);
    let file = directory.path().join("a");
    let index = build(&records(&file, 10)).unwrap();
    index.check(&records(&file, 10)).unwrap();
    age(&file);
    assert!(matches!(index.check(&records(&file, 10)), Err(IndexError::Stale { .. })));
}

#[test]
fn the_index_of_another_dataset_is_refused() {
    let directory = tree(&[("a", 20), ("b", 20)]);
    let index = build(&records(&directory.path().join("a"), 10)).unwrap();
    let error = index.check(&records(&directory.path().join("b"), 20)).unwrap_err();
    let expected = "the index is that of D/a (raw, records of 10 B), \
                    not of D/b (raw, records of 20 B); build it again";
    assert_eq!(message(&error, &directory), expected);
    let same_otherwise_named = records(&directory.path().join("./a/"), 10);
    index.check(&same_otherwise_named).unwrap();
}

#[test]
fn an_unreadable_directory_is_named() {
    let directory = tree(&[("cat/a.jpg", 1), ("cat/sub/b.jpg", 1)]);
    let closed = directory.path().join("cat/sub");
    std::fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    if std::fs::read_dir(&closed).is_ok() {
        again_without_file_rights("index::tests::an_unreadable_directory_is_named");
    } else {
        let expected = "D/cat/sub: permission denied; a dataset needs the rights to read its files and to read and \
                        search its directories";
        check_refused(&images(directory.path()), &directory, expected);
    }
    std::fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn classes_that_are_no_text_are_told_apart_by_their_bytes() {
    use std::os::unix::ffi::OsStrExt as _;
    let directory = tempfile::tempdir().unwrap();
    for class in [&b"\xfe"[..], b"\xff"] {
        let path = directory.path().join(OsStr::from_bytes(class));
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("a.jpg"), "").unwrap();
    }
    let index = build(&images(directory.path())).unwrap();
    assert_eq!([0, 1].map(|sample| index.label(SampleId(sample))), [Some(0), Some(1)]);
    assert_eq!(index.class_names(), [&b"\xfe"[..], b"\xff"].map(OsStr::from_bytes));
}

#[test]
fn files_are_samples_by_pattern_or_in_the_order_of_a_manifest() {
    let tree =
        tree(&[("a/x.npz", 1), ("a/y.txt", 2), ("b.npz", 3), ("a/.z.npz", 4), ("c/d/e.npz", 5)]);
    let with = |pattern: &str| files(tree.path(), Files::Glob(pattern.to_owned()));
    let of = |pattern: &str| names(&build(&with(pattern)).unwrap());
    assert_eq!(of("**/*.npz"), ["b.npz", "a/.z.npz", "a/x.npz", "c/d/e.npz"]);
    assert_eq!(of("*.npz"), ["b.npz"]);
    assert_eq!(of("a/[xy].*"), ["a/x.npz", "a/y.txt"]);
    check_refused(
        &with("*.png"),
        &tree,
        "D: no samples; format files looks for files that match its pattern",
    );
    let error = build(&with("a[")).unwrap_err().to_string();
    assert!(error.starts_with("`a[` is no pattern for paths: "), "{error}");

    let elsewhere = tempfile::tempdir().unwrap();
    let manifest = elsewhere.path().join("train.txt");
    let listed = |text: &str| {
        std::fs::write(&manifest, text).unwrap();
        build(&files(tree.path(), Files::Manifest(manifest.clone())))
    };
    let index = listed("c/d/e.npz\nb.npz\r\n\n./a/y.txt\nb.npz\n").unwrap();
    assert_eq!(names(&index), ["c/d/e.npz", "b.npz", "a/y.txt", "b.npz"]);
    assert_eq!(index.sizes().map(|it| it.0).collect::<Vec<_>>(), [5, 3, 2, 3]);
    index.save(&elsewhere.path().join("index")).unwrap();
    assert_eq!(Index::open(&elsewhere.path().join("index")).unwrap(), index);
    index.check(&files(tree.path(), Files::Manifest(manifest.clone()))).unwrap();
    std::fs::write(&manifest, "b.npz\n").unwrap();
    let changed = index.check(&files(tree.path(), Files::Manifest(manifest.clone())));
    assert!(matches!(changed, Err(IndexError::OtherDataset { .. })));
    let error = message(&listed("b.npz\na/gone\n").unwrap_err(), &elsewhere);
    let expected = "D/train.txt:2: `a/gone` is not in the source; a line is a path below it";
    assert_eq!(error, expected);
}

#[test]
fn a_pattern_that_is_advised_takes_files_and_none_that_is_held_out() {
    for (other, held_out, advice) in [
        ("part-0.tar", "test-0.tar", "`glob`, for example `part-*`"),
        ("a/part-0.tar", "a/test/part-0.tar", "`glob`, for example `a/part-*`"),
        ("x-train-0.tar", "x-val-0.tar", "`glob`, for example `**/*train*`"),
        ("Train-0.tar", "Test-0.tar", "`glob`, for example `Train-*`"),
        ("a-0.tar", "a-test-0.tar", "a `manifest`, which lists them"),
        ("0.tar", "test-0.tar", "a `manifest`, which lists them"),
        ("data.tar", "test.tar", "a `manifest`, which lists them"),
        ("[a]-0.tar", "test-0.tar", "a `manifest`, which lists them"),
    ] {
        let directory = tree(&[(other, 10), (held_out, 10)]);
        let error = message(&build(&records(directory.path(), 5)).unwrap_err(), &directory);
        let expected = format!("pick its files with {advice}, or all with `glob: \"**\"`");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn records_may_have_a_header_and_a_rest() {
    let directory = tree(&[("a", 23), ("b", 8), ("c/d", 9)]);
    let raw = Raw { record_bytes: Bytes(5), header_bytes: Bytes(4), rest: Rest::Drop };
    let dataset = Dataset { format: Format::Raw(raw), ..images(directory.path()) };
    let index = build(&dataset).unwrap();
    assert_eq!(names(&index), ["a at byte 4", "a at byte 9", "a at byte 14", "c/d at byte 4"]);
    let raw = Raw { header_bytes: Bytes(9), ..raw };
    let dataset = Dataset { format: Format::Raw(raw), ..images(directory.path()) };
    let expected = "D/b: truncated: the header at byte 0 ends at byte 9, the object at byte 8";
    check_refused(&dataset, &directory, expected);
}

#[test]
fn classes_come_in_the_order_of_their_names_and_not_of_paths() {
    let directory =
        tree(&[("a/z/1.jpg", 1), ("a-b/2.jpg", 1), ("a/0.jpg", 1), ("a/z/sub/3.jpg", 1)]);
    std::fs::create_dir(directory.path().join("a/empty")).unwrap();
    let index = build(&images(directory.path())).unwrap();
    assert_eq!(names(&index), ["a/0.jpg", "a/z/1.jpg", "a/z/sub/3.jpg", "a-b/2.jpg"]);
    let labels = (0..4).map(|sample| index.label(SampleId(sample)).unwrap());
    assert_eq!(labels.collect::<Vec<_>>(), [0, 0, 0, 1]);
    assert_eq!(index.class_names(), ["a", "a-b"]);
    index.check(&images(directory.path())).unwrap();
    std::fs::write(directory.path().join("a/empty/4.jpg"), "").unwrap();
    assert!(matches!(index.check(&images(directory.path())), Err(IndexError::Stale { .. })));
}

#[test]
fn an_index_gives_no_way_to_another_file_and_does_not_lie_in_its_dataset() {
    let directory = tree(&[("data/a", 20), ("data/sub/b", 10), ("labels.csv", 5)]);
    let dataset = records(&directory.path().join("data"), 10);
    let index = build(&dataset).unwrap();
    let other = directory.path().join("labels.csv");
    let error = message(&index.save(&other).unwrap_err(), &directory);
    assert_eq!(error, "D/labels.csv: is there and no index; name another place for the index");
    assert_eq!(std::fs::read(&other).unwrap(), b"xxxxx");
    let place = |name: &str| Index::check_place(&dataset, &directory.path().join(name));
    for inside in ["data/x.tfx", "data/sub/x.tfx", "./data/sub/../x.tfx"] {
        assert!(matches!(place(inside), Err(IndexError::Inside { .. })), "{inside}");
    }
    for outside in ["x.tfx", "data.tfx", "gone/x.tfx"] {
        place(outside).unwrap();
    }
    let folder = tree(&[("cat/a.jpg", 1)]);
    let of_folder =
        |name: &str| Index::check_place(&images(folder.path()), &folder.path().join(name));
    of_folder("x.tfx").unwrap();
    assert!(of_folder("cat/x.tfx").is_err());
}
