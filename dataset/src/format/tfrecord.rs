//! TFRecord files: records, each preceded by its length and with checksums of both.
//!
//! A record is `u64` length, `u32` checksum of the length, the data, `u32` checksum of the data,
//! all little endian; the checksums are masked CRC-32C. A sample is the data, which is what
//! `tf.data.TFRecordDataset` returns. Records of a file that is compressed as a whole cannot be
//! read one by one, so such a file is one sample. One rule is stricter than that of TensorFlow:
//! fewer than 12 bytes after the last record are an error, they are not ignored.
//!
//! 1. Each length is used only after its own checksum matched.
//! 2. [`ranges`] reads no data; [`check`] reads it all.
//!
//! Source: `tensorflow/core/lib/io/record_writer.h`; the index is that of DALI's `tfrecord2idx`.

mod dali_index;
mod example;

pub use dali_index::from_dali_index;
pub use example::{Feature, features};

use super::{
    Checksums, DatasetFormat, Format, FormatError, Found, Kind, Parsed, Range, ReadAt, Told,
    keys::Key,
    objects::{Candidates, Objects, ObjectsError, Sidecars, is_index},
    piece::{expect_checksum, malformed},
    read_ahead::{ReadAhead, for_each_piece},
};
use crate::source::{Opened, names::ends_in};

/// Bytes of the length and its checksum.
const HEAD: usize = 12;
const HEAD_BYTES: u64 = HEAD as u64;
/// Bytes of the checksum of the data.
const TAIL: usize = 4;
const TAIL_BYTES: u64 = TAIL as u64;

pub(super) static KIND: Kind = Kind {
    is_beside: is_index,
    alike: Some("tfrec"),
    told: Told::Alone(|name| is_tfrecord(name) && !counts_shards_of_others(name)),
    keys: &[&COMPRESSION],
    ..Kind::new(
        "tfrecord",
        |given| {
            let known = [("none", Compression::None), ("gzip", Compression::Gzip)];
            let compression = given.one_of(&COMPRESSION, &known)?;
            Ok(Format::TfRecord(compression.unwrap_or(Compression::None)))
        },
        is_tfrecord,
        "files with `tfrecord` or `00000-of-00001` in their names, .tfrec, .tfr, .record, .records",
    )
};

static COMPRESSION: Key = Key::new("compression", "NAME", "none or gzip [default: none]");

/// The compression of a file as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    /// gzip: only the file as a whole can be read.
    Gzip,
}

impl DatasetFormat for Compression {
    fn settings(&self) -> String {
        match self {
            Self::None => String::new(),
            Self::Gzip => "gzip".to_owned(),
        }
    }

    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        let all = found.with_indexes();
        Ok(match self {
            Self::None => all,
            // A compressed file is one sample, so the index of its records is not read.
            Self::Gzip => Objects { sidecars: Sidecars::Nothing, ..all },
        })
    }

    fn parse(&self, object: &dyn Opened, index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        Ok(match (self, index) {
            (Self::Gzip, _) => {
                compressed(object)?;
                Found::Whole.into()
            }
            (Self::None, None) => Found::Ranges(ranges(object)?).into(),
            (Self::None, Some(index)) => Found::Ranges(from_dali_index(index, object)?).into(),
        })
    }

    fn has_checksums(&self) -> bool {
        *self == Self::None
    }

    fn check(&self, object: &dyn ReadAt, ranges: &[Range]) -> Result<Checksums, FormatError> {
        check(object, ranges).map(|()| Checksums::Hold)
    }
}

/// The naming conventions of TFDS, `tf.io` and the scripts of `MLPerf`.
fn is_tfrecord(name: &[u8]) -> bool {
    if ends_in(name, &[".bak", ".tmp", ".json", ".txt", ".md", ".md5", ".sha256", "~"]) {
        return false;
    }
    let is_numbered = |part: &[u8]| {
        let [before, middle @ .., after] = part else { return false };
        before.is_ascii_digit() && middle == b"-of-" && after.is_ascii_digit()
    };
    let is_called = name.windows(8).any(|part| part.eq_ignore_ascii_case(b"tfrecord"));
    is_called
        || name.windows(6).any(is_numbered)
        || ends_in(name, &[".tfrec", ".tfr", ".record", ".records"])
}

/// Whether a name counts shards of another format, as `train-00000-of-00002.parquet` does: its ending decides, and
/// without one what stands before the count.
fn counts_shards_of_others(name: &[u8]) -> bool {
    let Some(of) = name.windows(4).rposition(|part| part == b"-of-") else { return false };
    let is_called = name.windows(8).any(|part| part == b"tfrecord");
    let ends_in_digits = name[of + 4..].iter().all(u8::is_ascii_digit);
    let is_count = |it: &u8| it.is_ascii_digit() || b"-_.".contains(it);
    let end = name[..of].iter().rposition(|it| !is_count(it)).unwrap_or_default();
    let is_plain = !name[..end].contains(&b'.');
    !(is_called || ends_in_digits && is_plain)
}

/// The positions of the records of a file, in order.
///
/// # Errors
///
/// [`FormatError::Truncated`] if the last record is cut off, [`FormatError::Checksum`] if a length is
/// damaged, [`FormatError::Unsupported`] if the file is compressed.
pub fn ranges(object: &dyn ReadAt) -> Result<Vec<Range>, FormatError> {
    let mut ahead = ReadAhead::new(object);
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < object.len() {
        let range = match record(&mut ahead, at) {
            Err(error) if at == 0 => return Err(compression(object)?.map_or(error, unsupported)),
            found => found?,
        };
        at = range.offset + range.len + TAIL_BYTES;
        ranges.push(range);
    }
    Ok(ranges)
}

/// Reads the data of every record and compares it with its checksum.
///
/// # Errors
///
/// [`FormatError::Checksum`] if a record is damaged, [`FormatError::Read`] if one of `ranges` does
/// not lie in the object.
pub fn check(object: &dyn ReadAt, ranges: &[Range]) -> Result<(), FormatError> {
    for range in ranges {
        let mut crc = 0;
        for_each_piece(object, range.offset, range.len, &mut |bytes| {
            crc = crc32c::crc32c_append(crc, bytes);
        })?;
        let mut found = [0; TAIL];
        object.read_exact_at(&mut found, range.offset.saturating_add(range.len))?;
        expect_checksum("a record", range.offset, u32::from_le_bytes(found), mask(crc))?;
    }
    Ok(())
}

/// The range of a file that is compressed as a whole, with GZIP or ZLIB, as one sample.
///
/// # Errors
///
/// [`FormatError::Malformed`] if it does not start like such a file.
pub fn compressed(object: &dyn ReadAt) -> Result<Range, FormatError> {
    if compression(object)?.is_some() {
        return Ok(Range::plain(0, object.len()));
    }
    let right = "leave `compression` out for files that are not compressed";
    Err(malformed("the start of the file", 0, "neither that of GZIP nor that of ZLIB", right))
}

fn record(ahead: &mut ReadAhead<'_>, at: u64) -> Result<Range, FormatError> {
    let found = ahead.object_len();
    let truncated = |what, needed: Option<u64>| FormatError::Truncated {
        what,
        at,
        needed: needed.unwrap_or(u64::MAX),
        found,
    };
    let offset = at.checked_add(HEAD_BYTES).filter(|end| *end <= found);
    let offset =
        offset.ok_or_else(|| truncated("the length of a record", at.checked_add(HEAD_BYTES)))?;
    let [l0, l1, l2, l3, l4, l5, l6, l7, crc @ ..] = ahead.array::<HEAD>(at)?;
    let len = [l0, l1, l2, l3, l4, l5, l6, l7];
    let computed = mask(crc32c::crc32c(&len));
    expect_checksum("the length of a record", at, u32::from_le_bytes(crc), computed)?;
    let len = u64::from_le_bytes(len);
    let end = offset.checked_add(len).and_then(|end| end.checked_add(TAIL_BYTES));
    end.filter(|end| *end <= found).ok_or_else(|| truncated("a record", end))?;
    Ok(Range::plain(offset, len))
}

/// A checksum in its stored form, so that the checksum of data that holds checksums is no weaker.
const fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The compression of the file as a whole, according to its first bytes.
fn compression(object: &dyn ReadAt) -> Result<Option<&'static str>, FormatError> {
    if object.len() < 3 {
        return Ok(None);
    }
    let mut magic = [0; 3];
    object.read_exact_at(&mut magic, 0)?;
    Ok(match magic {
        [0x1f, 0x8b, 0x08] => Some("GZIP"),
        [0x78, flags, _] if (0x7800 + u16::from(flags)).is_multiple_of(31) => Some("ZLIB"),
        _ => None,
    })
}

fn unsupported(compression: &str) -> FormatError {
    FormatError::Unsupported {
        what: format!(
            "the file is compressed as a whole ({compression}), its records cannot be read alone"
        ),
        instead: "say `compression: gzip` to have each file as one sample, or write the records uncompressed",
    }
}
