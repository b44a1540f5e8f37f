use std::io::Write as _;

use super::*;

type Change = fn(&mut Vec<u8>);

#[derive(Clone)]
struct Packed {
    name: &'static str,
    flags: u16,
    method: u16,
    crc32: u32,
    len: u32,
    stored: Vec<u8>,
    local: Change,
}

fn stored(name: &'static str, data: &[u8]) -> Packed {
    let (crc32, len) = (crc32fast::hash(data), u32::try_from(data.len()).unwrap());
    Packed { name, flags: 0, method: 0, crc32, len, stored: data.to_vec(), local: |_| () }
}

fn deflated(name: &'static str, data: &[u8]) -> Packed {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(data).unwrap();
    Packed { method: 8, stored: encoder.finish().unwrap(), ..stored(name, data) }
}

/// The fields that both headers of a member have: version, flags, method, time, CRC-32, sizes,
/// length of the name.
fn shared(member: &Packed) -> Vec<u8> {
    let short = |it: u16| it.to_le_bytes();
    let word = |it: u32| it.to_le_bytes();
    let stored = u32::try_from(member.stored.len()).unwrap();
    let name = u16::try_from(member.name.len()).unwrap();
    [
        &[20, 0][..],
        &short(member.flags),
        &short(member.method),
        &[0; 4],
        &word(member.crc32),
        &word(stored),
        &word(member.len),
        &short(name),
        &[0; 2],
    ]
    .concat()
}

fn entry(member: &Packed, header: usize) -> Vec<u8> {
    let header = u32::try_from(header).unwrap().to_le_bytes();
    [&b"PK\x01\x02\x14\x00"[..], &shared(member), &[0; 10], &header, member.name.as_bytes()]
        .concat()
}

fn end(entries: u16, start: usize, len: usize) -> Vec<u8> {
    let word = |it: usize| u32::try_from(it).unwrap().to_le_bytes();
    let count = entries.to_le_bytes();
    [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &word(len), &word(start), &[0; 2]].concat()
}

fn archive(members: &[Packed]) -> Vec<u8> {
    let (mut bytes, mut entries) = (Vec::new(), Vec::new());
    for member in members {
        entries.extend(entry(member, bytes.len()));
        let mut header = [&b"PK\x03\x04"[..], &shared(member), member.name.as_bytes()].concat();
        (member.local)(&mut header);
        bytes.extend([header, member.stored.clone()].concat());
    }
    let (start, count) = (bytes.len(), u16::try_from(members.len()).unwrap());
    let end = end(count, start, entries.len());
    [bytes, entries, end].concat()
}

#[track_caller]
fn check_refused(members: &[Packed], expected: &str) {
    check_message(ranges(&archive(members), &[]), expected);
}

#[track_caller]
fn check_message<T: std::fmt::Debug>(found: Result<T, FormatError>, expected: &str) {
    let message = found.unwrap_err().to_string();
    assert!(message.contains(expected), "{message}");
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/npz");
    std::fs::read(format!("{folder}/{name}.npz")).unwrap()
}

#[test]
fn archives_of_these_tests_are_sound_where_nothing_is_wrong() {
    let object = archive(&[stored("a.npy", b"hello"), deflated("b.npy", &[7; 300])]);
    let found = ranges(&object, &[]).unwrap();
    assert_eq!(found[0], Range::plain(35, 5));
    let encoding = Encoding::Deflate { len: 300, crc32: crc32fast::hash(&[7; 300]) };
    assert_eq!(found[1].encoding, encoding);
    check(&object, &[]).unwrap();
}

#[test]
fn members_that_are_not_wanted_or_not_there_are_named() {
    let object = archive(&[stored("a.npy", b"1"), stored("b", b"2"), stored("b.npy", b"3")]);
    let named = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        ranges(&object, &names)
    };
    // The exact name comes first, as in NumPy.
    assert_eq!(named(&["b"]).unwrap()[0], named(&["b", "a"]).unwrap()[0]);
    assert_ne!(named(&["b"]).unwrap(), named(&["b.npy"]).unwrap());
    check_message(named(&["c"]), "no member `c`: there are `a.npy`, `b`, `b.npy`; name members");
    check_message(named(&["a", "a.npy"]), "the member `a.npy`, which is named twice");
    check_message(named(&[]), "the member `b`, which is no .npy file");
}

#[test]
fn members_that_cannot_be_read_are_refused() {
    check_message(
        ranges(&fixture("lzma"), &[]),
        "the member `a.npy`, which is compressed with method 14",
    );
    for flags in [1, 1 << 6, 1 << 13] {
        let member = Packed { flags, ..stored("a.npy", b"secret") };
        check_refused(&[member], "the member `a.npy`, which is encrypted");
    }
    check_refused(&[stored("\u{e9}.npy", b"")], "neither ASCII nor marked as UTF-8");
    let marked = Packed { flags: 1 << 11, ..stored("\u{e9}.npy", b"") };
    assert_eq!(ranges(&archive(&[marked]), &[]).unwrap().len(), 1);
}

#[test]
fn the_header_of_a_member_says_what_the_directory_says() {
    let changes: [(Change, &str); 8] = [
        (|header| header[0] = b'Q', "starts with something else"),
        (|header| header[30] = b'b', "has another name"),
        (|header| header[26] = 4, "has another name"),
        (|header| header[8] = 8, "is stored in another way"),
        (|header| header[6] = 1, "is stored in another way"),
        (|header| header[14] ^= 1, "has another size or CRC-32"),
        (|header| header[18] ^= 1, "has another size or CRC-32"),
        (|header| header[22] ^= 1, "has another size or CRC-32"),
    ];
    for (local, expected) in changes {
        let member = Packed { local, ..stored("a.npy", b"hello") };
        check_refused(&[member], &format!("not as the directory says: `a.npy` {expected}"));
    }
    // If sizes follow the data, the header has none.
    let local = |header: &mut Vec<u8>| header[14..26].fill(0);
    let streamed = Packed { flags: 1 << 3, local, ..stored("a.npy", b"hello") };
    assert_eq!(ranges(&archive(&[streamed]), &[]).unwrap()[0], Range::plain(35, 5));
    // An extra field that makes the header longer than expected.
    let local = |header: &mut Vec<u8>| {
        header[28..30].copy_from_slice(&400_u16.to_le_bytes());
        header.extend([&[9, 9, 140, 1][..], &[0; 396]].concat());
    };
    let padded = Packed { local, ..stored("a.npy", b"hello") };
    assert_eq!(ranges(&archive(&[padded]), &[]).unwrap()[0], Range::plain(435, 5));
}

#[test]
fn no_byte_belongs_to_two_members() {
    let inner = stored("b.npy", b"hello");
    let nested = [&b"PK\x03\x04"[..], &shared(&inner), b"b.npy", b"hello"].concat();
    let outer = stored("a.npy", &nested);
    let bytes = [&b"PK\x03\x04"[..], &shared(&outer), b"a.npy", &nested].concat();
    let entries = [entry(&outer, 0), entry(&inner, 35)].concat();
    let object = [&bytes[..], &entries, &end(2, bytes.len(), entries.len())].concat();
    check_message(ranges(&object, &[]), "a member at byte 35 is inside another one");
    // Each of them alone is valid.
    assert_eq!(ranges(&object, &["a".to_owned()]).unwrap(), [Range::plain(35, 40)]);
    assert_eq!(ranges(&object, &["b".to_owned()]).unwrap(), [Range::plain(70, 5)]);
    check_refused(&[stored("a.npy", b"1"), stored("a.npy", b"2")], "of two members `a.npy`");
}

#[test]
fn members_and_directory_do_not_overlap() {
    let member = stored("a.npy", b"hello");
    let bytes = [&b"PK\x03\x04"[..], &shared(&member), b"a.npy", b"hel"].concat();
    let entries = entry(&member, 0);
    let object = [&bytes[..], &entries, &end(1, bytes.len(), entries.len())].concat();
    check_message(ranges(&object, &[]), "ends behind the start of the directory");
    for (header, expected) in [
        (bytes.len(), "starts with something else"),
        (4_000_000_000, "truncated: the header of a member at byte 4000000000"),
    ] {
        let entries = entry(&member, header);
        let object = [&bytes[..], &entries, &end(1, bytes.len(), entries.len())].concat();
        check_message(ranges(&object, &[]), expected);
    }
}

#[test]
fn the_end_of_an_archive_is_believed_only_where_it_fits() {
    let sound = archive(&[stored("a.npy", b"hello")]);
    let prefixed = [b"#!/bin/sh\n", &sound[..]].concat();
    check_message(ranges(&prefixed, &[]), "it ends where the record starts");
    let followed = [&sound[..], b"\n"].concat();
    check_message(ranges(&followed, &[]), "the record at the end of the archive");
    let with = |place: usize, bytes: &[u8]| {
        let mut object = sound.clone();
        let at = object.len() - 22 + place;
        object[at..at + bytes.len()].copy_from_slice(bytes);
        object
    };
    check_message(ranges(&with(8, &[2, 0, 2, 0]), &[]), "of 1 entries, and said to have 2");
    check_message(ranges(&with(8, &[0, 0, 0, 0]), &[]), "of 1 entries, and said to have 0");
    check_message(ranges(&with(8, &[1, 0, 2, 0]), &[]), "one of several disks");
    check_message(ranges(&with(4, &[1, 0]), &[]), "one of several disks");
    check_message(ranges(&with(12, &[0xFF; 8]), &[]), "4294967295 bytes long and followed by");
    check_message(ranges(&Vec::new(), &[]), "missing in 0 bytes");
    assert_eq!(ranges(&fixture("no-members"), &[]).unwrap(), []);
}

#[test]
fn sizes_of_64_bits_are_believed_only_where_they_fit() {
    let sound = fixture("zip64");
    let record = sound.windows(4).rposition(|it| it == b"PK\x06\x06").unwrap();
    let locator = record + 56;
    for (place, expected) in [
        (locator + 8, "said to be at byte 18446744073709551615"),
        (record + 4, "is something else; it stands right before its locator"),
        (record + 32, "one of several disks"),
        (record + 40, "18446744073709551615 bytes long and followed by the record"),
        (record + 48, "the directory at byte 18446744073709551615"),
    ] {
        let mut object = sound.clone();
        object[place..place + 8].fill(0xFF);
        check_message(ranges(&object, &[]), expected);
    }
    // Entries: as many as would fit at one byte each.
    let mut object = sound.clone();
    object[record + 24..record + 40].fill(0xFF);
    check_message(ranges(&object, &[]), "said to have 18446744073709551615");
    // The length of the last member, then its offset, in the extra field of its entry.
    let entry = sound.windows(4).rposition(|it| it == b"PK\x01\x02").unwrap();
    let extra = entry + 46 + usize::from(sound[entry + 28]);
    let mut object = sound.clone();
    object[extra + 4..extra + 12].fill(0xFF);
    check_message(ranges(&object, &[]), "has another size or CRC-32");
}

#[test]
fn inflating_gives_the_member_or_an_error() {
    let data: Vec<u8> = (0..100_000_u32).flat_map(|it| (it / 7).to_le_bytes()).collect();
    for data in [&data[..], b"x", b"", &vec![0; 70_000]] {
        let packed = deflated("a", data);
        let (bytes, crc32) = (&packed.stored, packed.crc32);
        let mut into = vec![0xAA; data.len()];
        inflate(bytes, data.len() as u64, crc32, &mut into).unwrap();
        assert_eq!(into, data);
        let inflated = |bytes: &[u8], len: usize, crc32| {
            inflate(bytes, len as u64, crc32, &mut vec![0xAA; len])
        };
        check_message(inflated(bytes, data.len() + 1, crc32), "shorter than it says");
        if let Some(less) = data.len().checked_sub(1) {
            check_message(inflated(bytes, less, crc32), "longer than it says");
        }
        check_message(inflated(bytes, data.len(), !crc32), "is damaged: its checksum");
        let more = [&bytes[..], b"x"].concat();
        check_message(inflated(&more, data.len(), crc32), "followed by other bytes");
        check_message(inflated(&bytes[..bytes.len() - 1], data.len(), crc32), "a deflated member");
        let mut small = vec![0; data.len() + 1];
        check_message(inflate(bytes, data.len() as u64, crc32, &mut small), "room for the whole");
    }
    check_message(inflate(&[0xFF; 9], 4, 0, &mut [0; 4]), "no deflate stream");
}

#[test]
fn checking_reads_every_member_in_bounded_memory() {
    let data = vec![5; 3_000_000];
    let good = [stored("a.npy", &data), deflated("b.npy", &data)];
    check(&archive(&good), &[]).unwrap();
    let mut damaged = good.clone();
    damaged[0].stored[2_999_999] ^= 1;
    check_message(check(&archive(&damaged), &[]), "a stored member at byte 35 is damaged");
    check(&archive(&damaged), &["b".to_owned()]).unwrap();
    // A member that claims little and inflates to much is stopped.
    let bomb = Packed { len: 10, ..deflated("a.npy", &data) };
    check_message(check(&archive(&[bomb]), &[]), "longer than it says");
    // A member that claims much and inflates to little takes no memory for the claim.
    let boast = Packed { len: u32::MAX - 1, ..deflated("a.npy", b"little") };
    check_message(check(&archive(&[boast]), &[]), "shorter than it says");
    let other = Packed { crc32: 1, ..deflated("a.npy", b"little") };
    check_message(check(&archive(&[other]), &[]), "its checksum is 0x00000001");
}
