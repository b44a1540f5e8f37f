use std::{fs, path::PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;
use tierfeed_core::units::Bytes;

use super::*;
use crate::index::{
    Damage, Format, IndexError,
    layout::{Class, Directory, Object},
};

fn image_folder() -> Layout {
    let object = |size, name_end| Object { size, mtime_ns: -7, name_end };
    Layout {
        root: PathBuf::from("/data/train"),
        format: Format::ImageFolder,
        classes: vec![
            Class { name: b"cat".to_vec(), first_object: 0 },
            Class { name: b"\xff".to_vec(), first_object: 2 },
        ],
        directories: vec![
            Directory { name: Vec::new(), mtime_ns: 1 },
            Directory { name: b"cat/sub".to_vec(), mtime_ns: 2 },
        ],
        objects: vec![object(10, 1), object(0, 6), object(30, 7)],
        names: b"asub/bc".to_vec(),
    }
}

fn raw_file() -> Layout {
    Layout {
        root: PathBuf::from("/data/train.bin"),
        format: Format::Raw { record_bytes: Bytes(5) },
        classes: Vec::new(),
        directories: Vec::new(),
        objects: vec![Object { size: 20, mtime_ns: 3, name_end: 0 }],
        names: Vec::new(),
    }
}

fn bytes_of(layout: &Layout, directory: &TempDir) -> Vec<u8> {
    let path = directory.path().join("good.index");
    write(layout, &path).unwrap();
    fs::read(path).unwrap()
}

fn read_bytes(bytes: &[u8], directory: &TempDir) -> Result<Layout, IndexError> {
    let path = directory.path().join("x.index");
    fs::write(&path, bytes).unwrap();
    read(&path)
}

#[test]
fn what_is_written_reads_back() {
    let directory = tempfile::tempdir().unwrap();
    for layout in [image_folder(), raw_file()] {
        let bytes = bytes_of(&layout, &directory);
        assert_eq!(read_bytes(&bytes, &directory).unwrap(), layout);
        let (body, checksum) = bytes.split_last_chunk().unwrap();
        assert_eq!(u64::from_le_bytes(*checksum), xxhash_rust::xxh3::xxh3_64(body));
    }
}

#[test]
fn every_flipped_bit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for layout in [image_folder(), raw_file()] {
        let good = bytes_of(&layout, &directory);
        for position in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[position / 8] ^= 1 << (position % 8);
            let error = read_bytes(&bytes, &directory).unwrap_err();
            let is_right = match position / 8 {
                0..8 => matches!(error, IndexError::Foreign { .. }),
                8..12 => matches!(error, IndexError::Version { .. }),
                24..72 => matches!(error, IndexError::Length { .. }),
                _ => matches!(error, IndexError::Damaged { damage: Damage::Checksum, .. }),
            };
            assert!(is_right, "bit {position}: {error}");
        }
    }
}

#[test]
fn every_truncation_and_every_addition_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let good = bytes_of(&image_folder(), &directory);
    for len in 0..good.len() {
        let error = read_bytes(&good[..len], &directory).unwrap_err();
        let is_right = match len {
            0..8 => matches!(error, IndexError::Foreign { .. }),
            _ => matches!(error, IndexError::Length { .. }),
        };
        assert!(is_right, "{len} bytes: {error}");
    }
    let longer = [good.as_slice(), b"x"].concat();
    assert!(matches!(read_bytes(&longer, &directory), Err(IndexError::Length { .. })));
}

/// A file whose checksum is right: whoever wrote it knew the format.
#[track_caller]
fn check_forged(change: impl FnOnce(&mut Layout), expected: Damage) {
    let directory = tempfile::tempdir().unwrap();
    let mut layout = image_folder();
    change(&mut layout);
    match read_bytes(&bytes_of(&layout, &directory), &directory) {
        Err(IndexError::Damaged { damage, .. }) => assert_eq!(damage, expected),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_forged_index_is_refused() {
    check_forged(|it| it.root = PathBuf::from("data"), Damage::Escape);
    for name in [&b"../x"[..], b"/etc/xx", b"a//b", b"a/", b"./b", b"\0", b"..", b""] {
        check_forged(
            |it| {
                it.names = [b"asub/b", name].concat();
                it.objects[2].name_end = it.names.len() as u64;
            },
            Damage::Escape,
        );
        if !name.is_empty() {
            check_forged(|it| it.directories[1].name = name.to_vec(), Damage::Escape);
        }
        check_forged(|it| it.classes[1].name = name.to_vec(), Damage::Escape);
    }
    check_forged(|it| it.classes[1].name = b"a/b".to_vec(), Damage::Escape);
    check_forged(|it| it.objects[1].name_end = 0, Damage::Names);
    check_forged(|it| it.objects[1].name_end = 8, Damage::Names);
    check_forged(|it| it.objects[2].name_end = u64::MAX, Damage::Names);
    check_forged(|it| it.names.push(b'x'), Damage::Names);
    check_forged(|it| it.classes[0].first_object = 1, Damage::Classes);
    check_forged(|it| it.classes[1].first_object = 0, Damage::Classes);
    check_forged(|it| it.classes[1].first_object = 3, Damage::Classes);
    check_forged(|it| it.classes.clear(), Damage::Classes);
    check_forged(|it| it.format = Format::Raw { record_bytes: Bytes(0) }, Damage::Format);
    check_forged(|it| it.format = Format::Raw { record_bytes: Bytes(5) }, Damage::Classes);
    check_forged(|it| it.objects[0].size = u64::MAX, Damage::Sizes);
    let raw = |it: &mut Layout| *it = raw_file();
    check_forged(
        |it| {
            raw(it);
            it.objects[0].size = 21;
        },
        Damage::Records,
    );
}

#[test]
fn another_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let text = b"name: resnet50\ndataset: { source: /data/train, format: image-folder }\n";
    let error = read_bytes(text, &directory).unwrap_err();
    assert!(error.to_string().ends_with("not a tierfeed index; `tierfeed index` writes one"));
}

proptest! {
    #[test]
    fn any_header_is_read_without_a_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        let directory = tempfile::tempdir().unwrap();
        let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &tail].concat();
        prop_assert!(read_bytes(&bytes, &directory).is_err());
    }
}
