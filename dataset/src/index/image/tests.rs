use proptest::prelude::*;

use super::{encode::encode, *};
use crate::index::FileFault;
use crate::{
    format::Stated,
    index::{
        Damage,
        draft::{Draft, NO_LABEL, RangeTable, RecordTable, Samples},
    },
    source::{Directory, Listing, Object},
};

fn directory(name: &[u8], first_object: usize) -> Directory {
    Directory { name: name.to_vec(), mtime_ns: Some(7), first_object }
}

fn listing(directories: Vec<Directory>, objects: &[(u64, &[u8])]) -> Listing {
    let mut listing = Listing { directories, ..Listing::default() };
    for (size, name) in objects {
        listing.names.extend_from_slice(name);
        let name_end = listing.names.len() as u64;
        listing.objects.push(Object { size: *size, mtime_ns: -7, name_end });
    }
    listing
}

fn image_folder() -> Draft {
    let directories = vec![directory(b"", 0), directory(b"cat", 0), directory(b"\xff", 2)];
    Draft {
        root: b"/data/train".to_vec(),
        kind: SourceKind::FileSystem,
        format: "image-folder".to_owned(),
        contents: Contents::default(),
        classes: Classes::Directories,
        listing: listing(directories, &[(10, b"a"), (0, b"sub-b"), (30, b"c")]),
        samples: Samples::Objects,
    }
}

fn records() -> Draft {
    let mut listing = listing(vec![directory(b"", 0)], &[(23, b"")]);
    listing.directories[0].mtime_ns = None;
    Draft {
        root: b"/data/train.bin".to_vec(),
        format: "raw".to_owned(),
        contents: Contents::default(),
        classes: Classes::None,
        listing,
        samples: Samples::Records(RecordTable {
            record_bytes: 5,
            counts: vec![4],
            starts: vec![3],
        }),
        ..image_folder()
    }
}

fn ranges() -> Draft {
    Draft {
        root: b"s3://bucket/train".to_vec(),
        kind: SourceKind::Bucket,
        format: "npz".to_owned(),
        contents: Contents::default(),
        classes: Classes::None,
        listing: listing(vec![directory(b"a//b", 0)], &[(100, b"x\0\"e-1\""), (50, b"y\0\"e-2\"")]),
        samples: Samples::Ranges(RangeTable {
            counts: vec![2, 1],
            places: vec![(40, 60), (0, 40), (50, 0)],
            encodings: vec![
                Encoding::Plain,
                Encoding::Deflate { len: 1_000, crc32: 9 },
                Encoding::Plain,
            ],
            labels: vec![3, NO_LABEL, 0],
        }),
    }
}

fn bytes_of(draft: Draft) -> Vec<u8> {
    encode(draft).storage.bytes().to_vec()
}

fn read(bytes: Vec<u8>) -> Result<Image, FileFault> {
    open::image(Storage::Memory(bytes))
}

#[test]
fn what_is_written_reads_back() {
    for draft in [image_folder(), records(), ranges()] {
        let written = encode(draft.clone());
        let image = read(written.storage.bytes().to_vec()).unwrap();
        assert_eq!(image, written);
        assert_eq!((image.format(), image.source()), (draft.format.as_str(), &draft.root[..]));
        for number in 0..image.objects() {
            let expected = draft.listing.listed(number);
            let (row, (_, etag)) = (image.object(number), image.object_name(number));
            assert_eq!((row.size, row.mtime_ns), (expected.size, expected.mtime_ns));
            assert_eq!(
                (image.object_path(number), etag),
                (expected.path, expected.etag.as_deref())
            );
        }
        let times = (0..image.directories()).map(|number| image.directory_mtime_ns(number));
        assert!(times.eq(draft.listing.directories.iter().map(|it| it.mtime_ns)));
    }
}

/// The fixtures define version 4; the fuzzer of index files starts with them.
#[test]
fn files_of_this_version_stay_as_they_are() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/index");
    let fixtures = [("image-folder", image_folder()), ("records", records()), ("ranges", ranges())];
    for (name, draft) in fixtures {
        let found = std::fs::read(format!("{folder}/{name}.index")).unwrap();
        assert_eq!(found, bytes_of(draft), "{name}");
    }
}

#[test]
fn labels_of_any_size_read_back_and_take_eight_bytes_only_if_one_needs_them() {
    let with = |labels: [i64; 3]| {
        let mut draft = ranges();
        let Samples::Ranges(table) = &mut draft.samples else { panic!("ranges") };
        table.labels = labels.to_vec();
        draft
    };
    let narrow = [-100, i64::from(i32::MAX), NO_LABEL];
    let wide = [-1, i64::from(i32::MIN), i64::MAX];
    for (labels, bytes) in [(narrow, 12), (wide, 24)] {
        let written = bytes_of(with(labels));
        let image = read(written.clone()).unwrap();
        let expected = labels.map(|label| (label != NO_LABEL).then_some(label));
        assert_eq!([0, 1, 2].map(|it| image.label(it)), expected);
        let without = Samples::Ranges(RangeTable { labels: vec![], ..table_of(with(labels)) });
        let without = bytes_of(Draft { samples: without, ..ranges() });
        assert_eq!(written.len() - without.len(), bytes);
    }
}

fn table_of(draft: Draft) -> RangeTable {
    match draft.samples {
        Samples::Ranges(table) => table,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_objects_say_reads_back() {
    let stated = Some(Stated::tokens("<u2"));
    let contents = Contents { columns: None, stated };
    let image = encode(Draft { contents: contents.clone(), ..records() });
    assert_eq!((image.format(), image.contents()), (records().format.as_str(), contents));
    assert_eq!(encode(records()).contents(), Contents::default());
}

#[test]
fn samples_read_back() {
    let image = encode(records());
    assert_eq!((image.header.record_bytes, image.count(0), image.start(0)), (5, 4, 3));
    let image = encode(ranges());
    assert_eq!([image.count(0), image.count(1)], [2, 1]);
    assert_eq!([0, 1, 2].map(|it| image.place(it)), [(40, 60), (0, 40), (50, 0)]);
    let deflate = Encoding::Deflate { len: 1_000, crc32: 9 };
    let expected = [Encoding::Plain, deflate, Encoding::Plain];
    assert_eq!([0, 1, 2].map(|it| image.encoding(it)), expected);
    assert_eq!([0, 1, 2].map(|it| image.label(it)), [Some(3), None, Some(0)]);
    assert_eq!(image.object_path(1), b"a//b/y");
}

#[test]
fn every_flipped_bit_is_refused() {
    for draft in [image_folder(), records(), ranges()] {
        let good = bytes_of(draft);
        for position in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[position / 8] ^= 1 << (position % 8);
            let fault = read(bytes).unwrap_err();
            let is_right = match position / 8 {
                0..8 => matches!(fault, FileFault::Foreign),
                8..12 => matches!(fault, FileFault::Version { .. }),
                HEADER_BYTES.. => matches!(fault, FileFault::Damaged(Damage::Checksum)),
                _ => !matches!(fault, FileFault::Foreign | FileFault::Version { .. }),
            };
            assert!(is_right, "bit {position}: {fault:?}");
        }
    }
}

#[test]
fn an_index_of_the_version_that_knew_no_columns_is_refused() {
    let mut bytes = bytes_of(ranges());
    bytes[MAGIC.len()..][..4].copy_from_slice(&2_u32.to_le_bytes());
    assert!(matches!(read(bytes), Err(FileFault::Version { found: 2, .. })));
}

#[test]
fn every_truncation_and_every_addition_is_refused() {
    for draft in [image_folder(), records(), ranges()] {
        let good = bytes_of(draft);
        for len in 0..good.len() {
            let fault = read(good[..len].to_vec()).unwrap_err();
            let is_right = match len {
                0..8 => matches!(fault, FileFault::Foreign),
                _ => matches!(fault, FileFault::Length { .. }),
            };
            assert!(is_right, "{len} bytes: {fault:?}");
        }
        let longer = [good.as_slice(), b"x"].concat();
        assert!(matches!(read(longer), Err(FileFault::Length { .. })));
    }
}

/// Bytes with a valid checksum, as a hostile author would write them.
#[track_caller]
fn check_forged(mut draft: Draft, change: impl FnOnce(&mut Draft), expected: Damage) {
    change(&mut draft);
    match read(bytes_of(draft)) {
        Err(FileFault::Damaged(damage)) => assert_eq!(damage, expected),
        other => panic!("{other:?}"),
    }
}

fn rename(draft: &mut Draft, name: &[u8]) {
    let kept = draft.listing.objects.iter().rev().nth(1).map_or(0, |it| it.name_end);
    draft.listing.names.truncate(usize::try_from(kept).unwrap());
    draft.listing.names.extend_from_slice(name);
    draft.listing.objects.last_mut().unwrap().name_end = draft.listing.names.len() as u64;
}

#[test]
fn names_that_lead_out_of_the_source_are_refused() {
    check_forged(image_folder(), |it| it.root = b"data".to_vec(), Damage::Escape);
    check_forged(image_folder(), |it| it.kind = SourceKind::Bucket, Damage::Escape);
    for name in [&b"../x"[..], b"/etc/xx", b"a//b", b"a/", b"./b", b"\0", b"..", b"a/b"] {
        check_forged(image_folder(), |it| rename(it, name), Damage::Escape);
        if name != b"a/b" {
            let change = |it: &mut Draft| it.listing.directories[1].name = name.to_vec();
            check_forged(image_folder(), change, Damage::Escape);
        }
    }
    check_forged(image_folder(), |it| rename(it, b""), Damage::Escape);
    check_forged(ranges(), |it| rename(it, b"a/b\0e"), Damage::Escape);
}

#[test]
fn names_and_directories_that_do_not_follow_each_other_are_refused() {
    let object =
        |number: usize, end: u64| move |it: &mut Draft| it.listing.objects[number].name_end = end;
    check_forged(image_folder(), object(1, 0), Damage::Names);
    check_forged(image_folder(), object(1, 8), Damage::Names);
    check_forged(image_folder(), object(2, u64::MAX), Damage::Names);
    check_forged(image_folder(), |it| it.listing.names.push(b'x'), Damage::Names);
    let first = |number: usize, object: usize| {
        move |it: &mut Draft| it.listing.directories[number].first_object = object
    };
    check_forged(image_folder(), first(0, 1), Damage::Directories);
    check_forged(image_folder(), first(2, 4), Damage::Directories);
    check_forged(records(), |it| it.listing.directories.clear(), Damage::Directories);
    check_forged(image_folder(), first(1, 1), Damage::Classes);
}

fn range_table(draft: &mut Draft) -> &mut RangeTable {
    let Samples::Ranges(table) = &mut draft.samples else { panic!("no ranges") };
    table
}

fn record_table(draft: &mut Draft) -> &mut RecordTable {
    let Samples::Records(table) = &mut draft.samples else { panic!("no records") };
    table
}

#[test]
fn samples_that_lie_outside_their_object_are_refused() {
    check_forged(ranges(), |it| range_table(it).places[0].1 = 61, Damage::Records);
    check_forged(ranges(), |it| range_table(it).places[2] = (u64::MAX, 1), Damage::Records);
    check_forged(ranges(), |it| range_table(it).counts[0] = 1, Damage::Records);
    check_forged(ranges(), |it| range_table(it).counts = vec![0, 3], Damage::Records);
    let long = Encoding::Deflate { len: u64::MAX, crc32: 0 };
    check_forged(ranges(), |it| range_table(it).encodings[1] = long, Damage::Records);
    check_forged(records(), |it| record_table(it).starts[0] = 4, Damage::Records);
    check_forged(records(), |it| record_table(it).counts[0] = 5, Damage::Records);
    check_forged(records(), |it| record_table(it).counts[0] = 0, Damage::Records);
    check_forged(records(), |it| record_table(it).record_bytes = 0, Damage::Format);
    check_forged(image_folder(), |it| it.listing.objects[0].size = u64::MAX, Damage::Sizes);
}

/// The bug: sizes near 2^64 made the layout of a batch wrap.
#[test]
fn samples_longer_than_a_tebibyte_are_refused() {
    const TOO_LONG: u64 = (1 << 40) + 1;
    check_forged(image_folder(), |it| it.listing.objects[0].size = TOO_LONG, Damage::Sizes);
    check_forged(records(), |it| record_table(it).record_bytes = TOO_LONG, Damage::Sizes);
    let long = Encoding::Deflate { len: TOO_LONG, crc32: 0 };
    check_forged(ranges(), |it| range_table(it).encodings[1] = long, Damage::Records);
}

proptest! {
    #[test]
    fn any_header_is_read_without_a_panic(tail in prop::collection::vec(any::<u8>(), 0..300)) {
        let bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &tail].concat();
        prop_assert!(read(bytes).is_err());
    }

    /// Like the fuzzer, with valid checksums.
    #[test]
    fn any_change_with_the_right_sums_is_read_without_a_panic(
        which in 0_usize..3, position in 0_usize..400, value: u8,
    ) {
        let mut bytes = bytes_of([image_folder(), records(), ranges()][which].clone());
        let position = 12 + position % (bytes.len() - 12);
        bytes[position] = value;
        sum(&mut bytes);
        if let Ok(image) = read(bytes) {
            for number in 0..image.objects() {
                image.object_path(number);
            }
        }
    }
}

/// Writes a valid fingerprint and checksum at their positions according to the header, if these
/// exist.
fn sum(bytes: &mut [u8]) {
    let Ok(header) = header::parse(bytes, bytes.len() as u64) else { return };
    let at = header.places();
    let fingerprint = xxhash_rust::xxh3::xxh3_64(&bytes[..at[Section::ObjectNames as usize].end]);
    bytes[at[Section::ObjectNames as usize].end..][..8].copy_from_slice(&fingerprint.to_le_bytes());
    let checksum = xxhash_rust::xxh3::xxh3_64(
        &bytes[at[Section::ObjectNames as usize].end..at[Section::Times as usize].end],
    );
    bytes[at[Section::Times as usize].end..].copy_from_slice(&checksum.to_le_bytes());
}
