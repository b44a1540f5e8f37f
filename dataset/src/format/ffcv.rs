//! Checks that an object is an FFCV file (`.beton`) that a trainer can open.
//!
//! FFCV's own loader maps the file and reads pages of it, so the file is staged as a whole. It has
//! a header, a description of each field, a row of each sample, pages of data, and at the end a
//! table of the parts of those pages that samples own.
//!
//! Deliberately absent: the rows of the samples, whose shape depends on code that the writer may
//! have registered.
//!
//! # Source
//!
//! `ffcv/types.py`, `ffcv/reader.py` and `ffcv/writer.py` of FFCV 1.0.

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Parsed, ReadAt,
    piece::{end_of, malformed, read_array, u16_at, u32_at, u64_at},
};
use crate::source::{Opened, names::ends_in};

/// `CURRENT_VERSION` of `ffcv/types.py`; FFCV refuses every other.
const VERSION: u16 = 2;

const HEADER_BYTES: usize = 24;

/// Type, name and arguments of a field: 1 + 16 + 1024 bytes.
const FIELD_BYTES: u64 = 1041;

/// Sample, place and size, each of 8 bytes.
const ENTRY_BYTES: usize = 24;

const ENTRIES_AT_ONCE: usize = 1024;

pub(super) static KIND: Kind = Kind {
    alike: Some(".beton"),
    ..Kind::by_name(
        "ffcv",
        |_| Ok(Format::Ffcv),
        |name| ends_in(name, &[".beton", ".ffcv"]),
        ".beton, .ffcv",
    )
};

pub(super) struct Ffcv;

impl DatasetFormat for Ffcv {
    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        check(object).map(|_| Found::Whole.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beton {
    pub samples: u64,
    pub fields: u16,
    pub page_bytes: u32,
    /// Number of parts of pages that samples own.
    pub allocations: u64,
}

/// Reads the header of `object` and the table at its end.
///
/// # Errors
///
/// [`FormatError::Truncated`] if a part does not fit, [`FormatError::Malformed`] if a number is
/// invalid.
pub fn check(object: &dyn ReadAt) -> Result<Beton, FormatError> {
    let Header { version, fields, page_bytes, samples, table } = header(object)?;
    if version != VERSION {
        return Err(malformed("the version", 0, version.to_string(), "FFCV 1.0 writes version 2"));
    }
    if fields == 0 {
        return Err(malformed("the number of fields", 2, "0", "a sample has at least one"));
    }
    if !page_bytes.is_power_of_two() {
        let found = page_bytes.to_string();
        return Err(malformed("the page size", 4, found, "FFCV takes powers of two"));
    }
    let rows = end_of(object, "the fields", HEADER_BYTES as u64, u64::from(fields) * FIELD_BYTES)?;
    // A field has at least one byte in the row of a sample.
    let least = samples.saturating_mul(u64::from(fields));
    end_of(object, "the rows of the samples", rows, least)?;
    let allocations = allocations(object, table, rows + least, samples)?;
    Ok(Beton { samples, fields, page_bytes, allocations })
}

struct Header {
    version: u16,
    fields: u16,
    page_bytes: u32,
    samples: u64,
    /// Offset of the allocation table.
    table: u64,
}

fn header(object: &dyn ReadAt) -> Result<Header, FormatError> {
    let header: [u8; HEADER_BYTES] = read_array(object, "the header", 0)?;
    let short = |at| u16_at(&header, at).expect("the array is long enough");
    let long = |at| u64_at(&header, at).expect("the array is long enough");
    let page_bytes = u32_at(&header, 4).expect("the array is long enough");
    Ok(Header {
        version: short(0),
        fields: short(2),
        page_bytes,
        samples: long(8),
        table: long(16),
    })
}

fn allocations(
    object: &dyn ReadAt,
    table: u64,
    rows_end: u64,
    samples: u64,
) -> Result<u64, FormatError> {
    let what = "the allocation table";
    let len = end_of(object, what, table, 0).map(|_| object.len() - table)?;
    if table < rows_end {
        let found = format!("before byte {rows_end}");
        return Err(malformed(what, table, found, "it stands behind the rows of the samples"));
    }
    if !len.is_multiple_of(ENTRY_BYTES as u64) {
        let found = format!("{len} bytes long");
        return Err(malformed(what, table, found, "it has 24 bytes for each piece, up to the end"));
    }
    let mut entries = vec![0; ENTRY_BYTES * ENTRIES_AT_ONCE];
    let mut at = table;
    while at < object.len() {
        let left = usize::try_from(object.len() - at).unwrap_or(usize::MAX);
        let part = &mut entries[..left.min(ENTRY_BYTES * ENTRIES_AT_ONCE)];
        object.read_exact_at(part, at)?;
        for entry in part.chunks_exact(ENTRY_BYTES) {
            check_entry(entry, at, rows_end..table, samples)?;
            at += ENTRY_BYTES as u64;
        }
    }
    Ok(len / ENTRY_BYTES as u64)
}

fn check_entry(
    entry: &[u8],
    at: u64,
    data: std::ops::Range<u64>,
    samples: u64,
) -> Result<(), FormatError> {
    let long = |place| u64_at(entry, place).expect("an entry has 24 bytes");
    let (sample, start, size) = (long(0), long(8), long(16));
    if sample >= samples {
        let found = format!("for sample {sample} of {samples}");
        return Err(malformed("an allocation", at, found, "samples are counted from 0"));
    }
    if start < data.start || start.saturating_add(size) > data.end {
        let found = format!("of {size} bytes at byte {start}");
        return Err(malformed("an allocation", at, found, "it lies between rows and table"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: usize = 3072;

    fn fixture() -> Vec<u8> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/ffcv");
        std::fs::read(format!("{folder}/bytes.beton")).unwrap()
    }

    #[track_caller]
    fn check_refused(at: usize, bytes: &[u8], expected: &str) {
        let mut object = fixture();
        object[at..at + bytes.len()].copy_from_slice(bytes);
        let message = check(&object).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }

    #[test]
    fn headers_that_cannot_be_right_are_refused() {
        check_refused(0, &[1, 0], "the version at byte 0 is 1; FFCV 1.0 writes version 2");
        check_refused(2, &[0, 0], "the number of fields at byte 2 is 0");
        check_refused(2, &[9, 0], "truncated: the fields at byte 24 ends at byte 9393");
        check_refused(4, &[1], "the page size at byte 4 is 513; FFCV takes powers of two");
        check_refused(4, &[0; 4], "the page size at byte 4 is 0");
        check_refused(8, &[0xFF; 8], "truncated: the rows of the samples");
        check_refused(8, &[0, 9], "truncated: the rows of the samples");
        assert!(check(&Vec::new()).is_err());
    }

    #[test]
    fn the_table_lies_behind_the_rows_and_ends_the_file() {
        check_refused(16, &[0xFF; 8], "truncated: the allocation table");
        check_refused(16, &[100, 0], "the allocation table at byte 100 is before byte 2118");
        check_refused(16, &[1], "143 bytes long; it has 24 bytes for each piece");
        let mut object = fixture();
        object.truncate(TABLE);
        assert_eq!(check(&object).unwrap().allocations, 0);
    }

    #[test]
    fn pieces_lie_between_rows_and_table() {
        for entry in [TABLE, TABLE + 24, TABLE + 120] {
            check_refused(entry, &[6], "for sample 6 of 6; samples are counted from 0");
            check_refused(entry + 8, &[0, 0], "it lies between rows and table");
            check_refused(entry + 8, &[0xFF; 8], "it lies between rows and table");
            check_refused(entry + 16, &[0xFF; 8], "it lies between rows and table");
            check_refused(entry + 16, &[0, 9], "it lies between rows and table");
        }
    }
}
