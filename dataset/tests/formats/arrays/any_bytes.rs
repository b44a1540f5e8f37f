//! For any bytes: no panic, no range outside of the object, no excess of reads or memory.

use std::io;

use proptest::prelude::*;
use tierfeed_dataset::format::{
    Encoding, FormatError, Range, ReadAt, arrow, ffcv,
    hdf5::{self, Samples},
    lmdb, npy, npz,
    parquet::{self, Unit},
};

use super::{bytes, stems};

/// A parser, reduced to the ranges that it returns.
type Parser = fn(&dyn ReadAt) -> Result<Vec<Range>, FormatError>;

/// The folder and ending of a format's fixtures, and its parser.
const FORMATS: [(&str, &str, Parser); 6] = [
    ("npy", "npy", |object| {
        let records = npy::records(object)?.records;
        assert!(records.record_bytes > 0);
        let bytes = records.record_bytes.checked_mul(records.count).unwrap();
        Ok(vec![Range::plain(records.offset, bytes)])
    }),
    ("npz", "npz", |object| {
        let ranges = npz::ranges(object, &[])?;
        if object.len() < 1 << 20 {
            // Stored members have a CRC-32 too, which only the check reads.
            let is_stored = |range: &Range| range.encoding == Encoding::Plain;
            let (is_sound, is_inflated) =
                (npz::check(object, &[]).is_ok(), inflate_all(object, &ranges));
            assert!(is_sound == is_inflated || ranges.iter().any(is_stored) && is_inflated);
        }
        Ok(ranges)
    }),
    ("parquet", "parquet", |object| {
        let mut layout = parquet::ranges(object, Unit::RowGroup, &[])?;
        let chunks = parquet::ranges(object, Unit::ColumnChunk, &[])?;
        assert_eq!(layout.ranges.len(), layout.rows.len());
        assert_eq!(chunks.ranges.len(), layout.ranges.len() * chunks.columns.len());
        layout.ranges.extend(chunks.ranges);
        layout.ranges.push(layout.footer);
        Ok(layout.ranges)
    }),
    ("arrow", "arrow", |object| {
        let mut layout = arrow::layout(object)?;
        assert_eq!(layout.batches.len(), layout.rows.len());
        layout.batches.extend(layout.dictionaries);
        layout.batches.extend(layout.schema.into_iter().chain(layout.footer));
        Ok(layout.batches)
    }),
    ("lmdb", "mdb", |object| {
        let found = lmdb::check(object)?;
        Ok(vec![Range::plain(0, found.used_bytes)])
    }),
    ("ffcv", "beton", |object| {
        let found = ffcv::check(object)?;
        Ok(vec![Range::plain(0, found.allocations * 24)])
    }),
];

fn inflate_all(object: &dyn ReadAt, ranges: &[Range]) -> bool {
    ranges.iter().all(|range| {
        let stored = super::read(object, *range);
        match range.encoding {
            Encoding::Plain => true,
            // Deflate cannot expand more than a thousandfold, so no memory is tried for it.
            Encoding::Deflate { len, .. } if len / 1100 > range.len => false,
            Encoding::Deflate { len, crc32 } => {
                let mut into = vec![0; usize::try_from(len).unwrap()];
                npz::inflate(&stored, len, crc32, &mut into).is_ok()
            }
        }
    })
}

fn parse(parser: Parser, object: &dyn ReadAt, what: &str) -> bool {
    let Ok(ranges) = parser(object) else { return false };
    for range in ranges {
        let end = range.offset.checked_add(range.len);
        assert!(end.is_some_and(|end| end <= object.len()), "{what}: {range:?}");
    }
    true
}

fn fixtures() -> impl Iterator<Item = (&'static str, Parser, String, Vec<u8>)> {
    FORMATS.into_iter().flat_map(|(folder, extension, parser)| {
        stems(folder, extension).into_iter().map(move |stem| {
            let name = format!("{folder}/{stem}.{extension}");
            let bytes = bytes(&name);
            (folder, parser, name, bytes)
        })
    })
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_refused() {
    for (folder, parser, name, bytes) in fixtures() {
        if parser(&bytes).is_err() {
            continue;
        }
        let ends = (0..bytes.len()).filter(|len| parse(parser, &bytes[..*len].to_vec(), &name));
        // A stream may end behind each message, and the table of FFCV behind each entry.
        let ends_allowed = match folder {
            "arrow" if name.contains("stream") => parser(&bytes).unwrap().len(),
            "ffcv" => 6,
            _ => 0,
        };
        assert_eq!(ends.count(), ends_allowed, "{name}");
    }
}

/// The offsets of a file that its parser may read: for LMDB the ends of pages.
fn places(folder: &str, bytes: &[u8]) -> Vec<usize> {
    let is_read = |at: &usize| folder != "lmdb" || !(160..4000).contains(&(at % 4096));
    (0..bytes.len()).filter(is_read).collect()
}

#[test]
fn a_bit_that_flips_breaks_nothing_else() {
    for (folder, parser, name, mut bytes) in fixtures() {
        for at in places(folder, &bytes) {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                parse(parser, &bytes, &name);
                bytes[at] ^= 1 << bit;
            }
        }
    }
}

#[test]
fn lengths_at_the_edge_of_numbers_break_nothing() {
    let edges: [&[u8]; 7] = [
        &[0; 8],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[0xFF; 2],
        &[0xFF; 4],
        &[0xFF, 0xFF, 0xFF, 0x7F],
        &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F],
        &[0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF],
    ];
    for (folder, parser, name, mut bytes) in fixtures() {
        for at in places(folder, &bytes) {
            for edge in edges {
                let end = (at + edge.len()).min(bytes.len());
                let before = bytes[at..end].to_vec();
                bytes[at..end].copy_from_slice(&edge[..end - at]);
                parse(parser, &bytes, &name);
                bytes[at..end].copy_from_slice(&before);
            }
        }
    }
}

/// An object with zeros in its middle, as long as an object can be.
struct Sparse {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        u64::MAX
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(into.len() <= 1 << 30, "{} bytes at once", into.len());
        let tail_at = self.len() - self.tail.len() as u64;
        if offset.checked_add(into.len() as u64).is_none() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for (byte, at) in into.iter_mut().zip(offset..) {
            let head = usize::try_from(at).ok().and_then(|at| self.head.get(at));
            let tail = at.checked_sub(tail_at).and_then(|at| usize::try_from(at).ok());
            let tail = tail.and_then(|at| self.tail.get(at));
            *byte = head.or(tail).copied().unwrap_or(0);
        }
        Ok(())
    }
}

#[test]
fn an_object_of_any_length_is_read_in_bounded_pieces() {
    for (folder, parser, name, bytes) in fixtures() {
        // A table of FFCV reaches to the end of the file, and is read part by part: it would take
        // years.
        if folder != "ffcv" {
            parse(parser, &Sparse { head: bytes.clone(), tail: bytes.clone() }, &name);
        }
    }
}

fn check_hdf5(answer: &[u8], object: &dyn ReadAt) {
    let Ok(dataset) = hdf5::parse(answer, object) else { return };
    let len = object.len();
    match dataset.samples {
        Samples::Rows(rows) => {
            assert!(rows.record_bytes > 0);
            assert!(rows.offset + rows.record_bytes * rows.count <= len);
            assert_eq!(rows.count, dataset.shape[0]);
        }
        Samples::Chunks(chunks) => {
            assert!(chunks.chunks.iter().all(|it| it.range.offset + it.range.len <= len));
            let tiles = dataset.shape.iter().zip(&chunks.shape);
            let tiles: u64 = tiles.map(|(axis, chunk)| axis.div_ceil(*chunk)).product();
            assert_eq!(chunks.chunks.len() as u64, tiles);
        }
    }
}

#[derive(Debug, Clone)]
enum Edit {
    Set(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, u8),
    Insert(prop::sample::Index, Vec<u8>),
    Copy(prop::sample::Index, prop::sample::Index, u8),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = any::<prop::sample::Index>;
    let some = || {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..9),
            any::<u64>().prop_map(|it| it.to_le_bytes().to_vec()),
            (0..400_u64).prop_map(|it| it.to_le_bytes().to_vec()),
            Just(vec![0xFF; 8]),
        ]
    };
    let edit = prop_oneof![
        4 => (place(), some()).prop_map(|(at, new)| Edit::Set(at, new)),
        1 => (place(), any::<u8>()).prop_map(|(at, len)| Edit::Remove(at, len)),
        1 => (place(), some()).prop_map(|(at, new)| Edit::Insert(at, new)),
        1 => (place(), place(), any::<u8>()).prop_map(|(from, to, len)| Edit::Copy(from, to, len)),
    ];
    prop::collection::vec(edit, 1..6)
}

fn apply(bytes: &mut Vec<u8>, edit: &Edit) {
    if bytes.is_empty() {
        return;
    }
    let len = bytes.len();
    let until = |at: usize, count: usize| (at + count).min(len);
    match edit {
        Edit::Set(at, new) => {
            let at = at.index(len);
            let end = until(at, new.len());
            bytes[at..end].copy_from_slice(&new[..end - at]);
        }
        Edit::Remove(at, count) => {
            let at = at.index(len);
            bytes.drain(at..until(at, usize::from(*count)));
        }
        Edit::Insert(at, new) => {
            let at = at.index(len);
            bytes.splice(at..at, new.iter().copied());
        }
        Edit::Copy(from, to, count) => {
            let (from, to) = (from.index(len), to.index(len));
            let part = bytes[from..until(from, usize::from(*count))].to_vec();
            let end = until(to, part.len());
            bytes[to..end].copy_from_slice(&part[..end - to]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_bytes_are_refused_or_read_within(
        head in prop::collection::vec(any::<u8>(), 0..300),
        format in 0..FORMATS.len(),
        magic in any::<bool>(),
    ) {
        const STARTS: [&[u8]; 6] = [
            b"\x93NUMPY\x01\x00\x40\x00", b"PK\x03\x04", b"PAR1", b"ARROW1\0\0", b"", b"\x02\0\x01\0",
        ];
        const ENDS: [&[u8]; 6] = [b"", b"PK\x05\x06", b"PAR1", b"ARROW1", b"", b""];
        let (start, end) = if magic { (STARTS[format], ENDS[format]) } else { (&[][..], &[][..]) };
        let object = [start, &head, end].concat();
        parse(FORMATS[format].2, &object, FORMATS[format].0);
    }

    #[test]
    fn edited_answers_of_the_indexer_of_hdf5_are_refused_or_true(
        pick in any::<prop::sample::Index>(),
        edits in edits(),
        number in prop_oneof![any::<u64>(), 0..9000_u64],
        at in any::<prop::sample::Index>(),
    ) {
        let stems = stems("hdf5", "index");
        let stem = &stems[pick.index(stems.len())];
        let object = bytes(&format!("hdf5/{}.h5", stem.split('.').next().unwrap()));
        let answer = bytes(&format!("hdf5/{stem}.index"));
        let mut damaged = answer.clone();
        edits.iter().for_each(|edit| apply(&mut damaged, edit));
        check_hdf5(&damaged, &object);
        // One of its numbers is replaced.
        let text = String::from_utf8(answer).unwrap();
        let is_start = |(at, byte): &(usize, u8)| {
            byte.is_ascii_digit() && !text.as_bytes()[at - 1].is_ascii_digit()
        };
        let starts: Vec<usize> = text.bytes().enumerate().filter(is_start).map(|it| it.0).collect();
        let start = starts[at.index(starts.len())];
        let digits = text[start..].bytes().take_while(u8::is_ascii_digit).count();
        let other = format!("{}{number}{}", &text[..start], &text[start + digits..]);
        check_hdf5(other.as_bytes(), &object);
    }

    #[test]
    fn edited_files_are_refused_or_read_within(
        pick in any::<prop::sample::Index>(),
        edits in edits(),
    ) {
        let fixtures: Vec<_> = fixtures().collect();
        let (_, parser, name, bytes) = &fixtures[pick.index(fixtures.len())];
        let mut bytes = bytes.clone();
        edits.iter().for_each(|edit| apply(&mut bytes, edit));
        parse(*parser, &bytes, name);
    }
}
