use std::io::Read as _;

use proptest::prelude::*;
use serde_json::{Map, Value};
use tar::{Archive, EntryType, Header};
use tierfeed_dataset::format::{
    FormatError, Range,
    webdataset::{check, parts, ranges},
};

use crate::{
    assert_sound,
    damage::{any_damage, bits_accepted, lengths_accepted},
    described, expected, fixture, slice,
};

const SHARDS: [&str; 3] = ["plain.tar", "pax.tar", "odd.tar"];

pub(crate) fn shard(name: &str) -> Vec<u8> {
    fixture(&format!("webdataset/{name}"))
}

fn parse(object: &[u8]) -> Result<Vec<Range>, FormatError> {
    ranges(&object)
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The parts of a sample, in the form of `expected.json`.
fn members(sample: &[u8]) -> Value {
    let parts = parts(sample).unwrap().into_iter();
    let members = parts.map(|part| (lossy(&part.extension), described(part.bytes)));
    Value::Object(members.collect::<Map<_, _>>())
}

#[test]
fn samples_are_what_webdataset_reads() {
    for name in SHARDS {
        let object = shard(name);
        let ranges = ranges(&object).unwrap();
        let expected = expected("webdataset", name);
        let expected = expected.as_array().unwrap();
        assert_eq!(ranges.len(), expected.len(), "{name}");
        for (range, expected) in ranges.iter().zip(expected) {
            assert_eq!(members(slice(&object, *range)), expected["members"], "{name} {range:?}");
        }
        check(&object, &ranges).unwrap();
        assert!(check(&object, &ranges[1..]).is_err());
    }
}

#[test]
fn the_bytes_of_a_sample_are_a_tar_for_another_reader_too() {
    for name in SHARDS {
        let object = shard(name);
        for range in ranges(&object).unwrap() {
            let sample = slice(&object, range);
            let mut archive = Archive::new(sample);
            let mut found = Vec::new();
            for entry in archive.entries().unwrap() {
                let mut entry = entry.unwrap();
                let path = lossy(&entry.path_bytes());
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                found.push((path.to_lowercase(), bytes));
            }
            for part in parts(sample).unwrap() {
                let end = format!(".{}", lossy(&part.extension));
                let is_part =
                    |(path, bytes): &(String, _)| path.ends_with(&end) && bytes == part.bytes;
                assert!(found.iter().any(is_part), "{name} {end} {found:?}");
            }
        }
    }
}

#[test]
fn a_sample_starts_with_the_headers_that_extend_its_first() {
    let object = shard("pax.tar");
    for range in ranges(&object).unwrap() {
        assert_eq!(slice(&object, range)[156], b'x');
    }
    let object = shard("odd.tar");
    let kinds = ranges(&object).unwrap().into_iter().map(|range| slice(&object, range)[156]);
    assert_eq!(kinds.collect::<Vec<_>>(), b"00000L0");
}

#[test]
fn the_label_of_a_sample_is_its_class_whatever_others_have() {
    let labels =
        |object: &[u8]| parse(object).unwrap().iter().map(|it| it.label).collect::<Vec<_>>();
    let classes = [0, 1, 2, 0, 1, 2].map(Some);
    assert_eq!(labels(&shard("plain.tar")), classes);
    assert_eq!(labels(&shard("pax.tar")), classes);
    let cases: [(&str, Option<i64>); 14] = [
        ("7", Some(7)),
        (" 7\r\n", Some(7)),
        ("+7", Some(7)),
        ("4294967294", Some(4_294_967_294)),
        ("4294967296", Some(4_294_967_296)),
        ("-1", Some(-1)),
        ("-100", Some(-100)),
        ("1_000", Some(1_000)),
        ("7.0", None),
        ("seven", None),
        ("", None),
        ("++7", None),
        ("7 7", None),
        ("0000000000000000000000000000000000000007", None),
    ];
    for (class, label) in cases {
        let good = |name| file(name, b"1");
        let object = tar(&[good("a.cls"), file("b.cls", class.as_bytes()), good("c.cls")]);
        let expected = [Some(1), label, Some(1)];
        assert_eq!(labels(&object), expected, "{class:?}");
    }
}

/// The offset of the kind of a member in its header. The oldest kind, 0, stays 0.
const KIND_AT: usize = 156;

/// A member: its headers, its data, its padding.
fn member(kind: u8, name: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[KIND_AT] = kind;
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_size(data.len() as u64);
    sealed(header, data)
}

fn sealed(mut header: Header, data: &[u8]) -> Vec<u8> {
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(name: &str, data: &[u8]) -> Vec<u8> {
    member(b'0', name.as_bytes(), data)
}

fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    [members.concat().as_slice(), &[0; 1024]].concat()
}

fn pax(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let rest = key.len() + value.len() + 3;
        let len = (rest..rest + 20).find(|len| len.to_string().len() + rest == *len).unwrap();
        bytes.extend([len.to_string().as_bytes(), b" ", key, b"=", value, b"\n"].concat());
    }
    bytes
}

fn contents(members: &[Vec<u8>]) -> Vec<Vec<String>> {
    let object = tar(members);
    let ranges = ranges(&object).unwrap();
    let samples = ranges.iter().map(|range| parts(slice(&object, *range)).unwrap());
    samples.map(|parts| parts.iter().map(|part| lossy(&part.extension)).collect()).collect()
}

#[test]
fn long_names_may_have_any_bytes() {
    let long = [b"\xff\xfe/".as_slice(), &[b'n'; 300], b"\n.JPG"].concat();
    let members = [
        member(b'x', b"pax", &pax(&[(b"comment", b"\n\n"), (b"path", &long)])),
        file("short", b"1"),
        member(b'L', b"gnu", &[&long[..long.len() - 3], b"png\0"].concat()),
        member(b'K', b"gnu", b"link"),
        file("short", b"2"),
        file("other.png", b"3"),
    ];
    assert_eq!(contents(&members), [vec!["jpg", "png"], vec!["png"]]);
    let object = tar(&members);
    assert_eq!(ranges(&object).unwrap()[1].offset, 512 * (2 + 2 + 2 + 2 + 2));
}

#[test]
fn a_name_may_stand_in_two_fields_of_the_header() {
    let mut header = Header::new_ustar();
    header.set_path(format!("{}/{}.jpg", "d".repeat(90), "e".repeat(90))).unwrap();
    header.set_size(1);
    let other = file(&format!("{}.png", "e".repeat(90)), b"2");
    assert_eq!(contents(&[sealed(header, b"1"), other]), [["jpg"], ["png"]]);
}

#[test]
fn a_size_in_a_pax_header_counts_more_than_that_in_the_header() {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..5].copy_from_slice(b"a.jpg");
    header.set_size(0);
    let body = sealed(header, &[7; 700]);
    let members = [member(b'x', b"pax", &pax(&[(b"size", b"700")])), body, file("a.png", b"1")];
    assert_eq!(contents(&members), [["jpg", "png"]]);
    let object = tar(&members);
    assert_eq!(parts(&object).unwrap()[0].bytes, [7; 700]);
}

#[test]
fn what_is_no_file_has_no_data_in_spite_of_its_header() {
    let mut link = Header::new_ustar();
    link.set_entry_type(EntryType::Link);
    link.as_mut_bytes()[..10].copy_from_slice(b"a.link.jpg");
    link.set_size(1 << 30);
    let mut folder = Header::new_ustar();
    folder.as_mut_bytes()[KIND_AT] = 0;
    folder.as_mut_bytes()[..4].copy_from_slice(b"a.d/");
    folder.set_size(1 << 30);
    let longer = member(b'x', b"", &pax(&[(b"path", b"a.d.jpg/")]));
    let [link, folder] = [link, folder].map(|header| sealed(header, b""));
    let members = [file("a.jpg", b"1"), link, longer, folder, file("a.png", b"2")];
    assert_eq!(contents(&members), [["jpg", "png"]]);
}

#[track_caller]
fn check_refused(members: &[Vec<u8>], expected: &str) {
    let message = ranges(&tar(members)).unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

#[test]
fn what_webdataset_would_refuse_or_misread_is_refused() {
    let a = || file("a.jpg", b"1");
    check_refused(&[a(), a()], "at byte 1024 is a.jpg, the second jpg of its sample");
    check_refused(&[a(), file("a.JPG", b"2")], "a.JPG, the second jpg");
    check_refused(&[a(), file("a.__key__", b"2")], "the second __key__");
    check_refused(&[a(), member(b'S', b"a.png", b"2")], "the member at byte 1024 is a sparse file");
    let sparse = pax(&[(b"GNU.sparse.major", b"1")]);
    check_refused(&[member(b'x', b"", &sparse), a()], "is a sparse file");
    check_refused(&[member(b'g', b"", &sparse), a()], "is a sparse file");
    let path = pax(&[(b"path", b"b.jpg")]);
    check_refused(&[member(b'g', b"", &path), a()], "for all members that gives names or sizes");
    assert_eq!(contents(&[member(b'g', b"", &pax(&[(b"comment", b"v1")])), a()]), [["jpg"]]);
    let (x, long) = (member(b'x', b"", &path), member(b'L', b"", b"c.jpg"));
    check_refused(&[x.clone(), x.clone(), a()], "the second extension of one kind");
    check_refused(&[long.clone(), long.clone(), a()], "the second extension of one kind");
    check_refused(&[long.clone(), x.clone(), a()], "a member with two long names");
    check_refused(&[a(), x], "zeros after an extension header");
    check_refused(&[member(b'x', b"", b"8 path=a\n"), a()], "a PAX header at byte 0 is broken");
    check_refused(&[member(b'L', b"", &vec![b'n'; (1 << 20) + 1]), a()], "more than 1 MiB");
}

#[test]
fn sizes_that_lead_outside_are_refused() {
    for size in [1, 512, 1 << 40, u64::MAX - 1024, u64::MAX - 511, u64::MAX] {
        for kind in [b'0', b'L', b'x'] {
            let mut header = Header::new_gnu();
            header.set_entry_type(EntryType::new(kind));
            header.as_mut_bytes()[..5].copy_from_slice(b"a.jpg");
            header.set_size(size);
            let object = sealed(header, b"");
            assert!(ranges(&object).is_err(), "{size} of {}", char::from(kind));
        }
        let sized = pax(&[(b"size", size.to_string().as_bytes())]);
        let object = [member(b'x', b"", &sized), file("a.jpg", b"")].concat();
        let error = ranges(&object).unwrap_err();
        assert!(matches!(error, FormatError::Truncated { at: 1024, .. }), "{error}");
    }
}

#[test]
fn shards_without_end_are_refused_and_nothing_after_it_is_read() {
    let error = ranges(&Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "truncated: the end mark at byte 0 ends at byte 512, the object at byte 0");
    assert_eq!(ranges(&vec![0; 512]).unwrap(), []);
    let [a, b] = ["a.jpg", "b.jpg"].map(|name| file(name, b"1"));
    assert!(ranges(&a).unwrap_err().to_string().contains("the end mark at byte 1024"));
    assert_eq!(contents(&[a, vec![0; 512], b]), [["jpg"]]);
}

#[test]
fn a_shard_that_is_cut_off_is_refused() {
    for name in SHARDS {
        let object = shard(name);
        let whole = ranges(&object).unwrap();
        let end =
            usize::try_from(whole.last().map(|last| last.offset + last.len).unwrap()).unwrap();
        let accepted = lengths_accepted(&object, &parse);
        assert_eq!(accepted, (end + 512..object.len()).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn every_damaged_bit_of_a_header_is_found() {
    for name in ["plain.tar", "odd.tar"] {
        let object = shard(name);
        let mut archive = Archive::new(object.as_slice());
        for entry in archive.entries().unwrap().raw(true) {
            let at = usize::try_from(entry.unwrap().raw_header_position()).unwrap();
            let accepted = bits_accepted(&object, at..at + 512, &parse);
            // The checksum does not cover its own field, where a number can be written in two ways.
            let spelling = |(byte, _): &(usize, u32)| (148..156).contains(&(byte - at));
            assert!(accepted.iter().all(spelling), "{name} at {at}: {accepted:?}");
        }
    }
}

#[test]
fn compressed_shards_say_what_to_do() {
    let magics: [&[u8]; 4] = [b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
    for magic in magics {
        let object = [magic, &[1; 2000]].concat();
        let message = ranges(&object).unwrap_err().to_string();
        assert!(message.starts_with("the shard is compressed as a whole"), "{message}");
    }
    assert_eq!(contents(&[file("BZh91/a.jpg", b"1")]), [["jpg"]]);
}

/// Tars of members that are each valid, in an order that may not be.
fn any_tar() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::collection::vec(prop::sample::select(b"ab./_\n\xff".to_vec()), 0..6);
    let kind = prop::sample::select(b"00000\x00\x0012567LKxgSVD".to_vec());
    let data = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..600),
        (0..3_u32, name.clone()).prop_map(|(size, path)| {
            pax(&[(b"path", &path), (b"size", size.to_string().as_bytes())])
        }),
        name.clone(),
    ];
    let member = (kind, name, data).prop_map(|(kind, name, data)| member(kind, &name, &data));
    prop::collection::vec(member, 0..8).prop_map(|members| tar(&members))
}

proptest! {
    #[test]
    fn nothing_leads_outside_of_the_object(
        object in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..2000),
            any_tar(),
            any_tar().prop_flat_map(any_damage),
            prop::sample::select(SHARDS.to_vec()).prop_flat_map(|name| any_damage(shard(name))),
        ],
    ) {
        if let Ok(ranges) = ranges(&object) {
            assert_sound(&ranges, object.len());
            for range in ranges {
                let sample = slice(&object, range);
                prop_assert!(!parts(sample).unwrap().is_empty());
            }
        }
        let _any_bytes_may_be_asked = parts(&object);
    }
}
