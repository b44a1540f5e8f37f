//! Reads the positions of the chunks from the footer of a Parquet file.

use super::thrift::{Field, Stop, Walk, Walked};
use crate::format::{
    FormatError, Range, ReadAt,
    piece::{Window, malformed, read, read_array},
};

/// Bytes before the first chunk: `PAR1`.
pub(super) const MAGIC_BYTES: u64 = 4;

/// Length of the metadata, and the magic.
const TAIL_BYTES: u64 = 8;

/// The longest footer that is read: tables of thousands of columns have some tens of MiB.
const FOOTER_BYTES_MAX: u32 = 1 << 29;

/// Bytes that are read at once, at the end of the file.
const FOOTER_BYTES_EXPECTED: u32 = 1 << 16;

const FIXED: &str = "fixed_len_byte_array";

/// `Type` of `parquet.thrift`, by its number.
const PHYSICAL_TYPES: [&str; 8] =
    ["boolean", "int32", "int64", "int96", "float", "double", "byte_array", FIXED];

#[derive(Debug)]
pub(super) struct Footer {
    pub(super) row_groups: Vec<RowGroup>,
    /// The paths of the columns; every row group has a chunk for each, in this order.
    pub(super) paths: Vec<Vec<String>>,
    /// The type of each of the columns, in the same order; `None` for one that has only nulls. Empty if the
    /// schema lists others.
    pub(super) types: Vec<Option<String>>,
    pub(super) range: Range,
}

#[derive(Debug, Default)]
pub(super) struct RowGroup {
    pub(super) rows: u64,
    pub(super) chunks: Vec<Chunk>,
}

/// The pages of one column in one row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) start: u64,
    pub(super) len: u64,
}

pub(super) fn read_footer(object: &dyn ReadAt) -> Result<Footer, FormatError> {
    let object = &Window::tail(object, FOOTER_BYTES_EXPECTED)?;
    let end = object.len();
    let tail_at = end.saturating_sub(TAIL_BYTES);
    let tail: [u8; 8] = read_array(object, "the end of the file", tail_at)?;
    let [a, b, c, d, magic @ ..] = tail;
    if &magic == b"PARE" {
        return Err(encrypted("a Parquet file whose footer is encrypted".to_owned()));
    }
    if &magic != b"PAR1" {
        let found = format!("`{}`", magic.escape_ascii());
        let right = "a Parquet file ends with PAR1; it may be cut off";
        return Err(malformed("the magic", end - 4, found, right));
    }
    let len = u64::from(u32::from_le_bytes([a, b, c, d]));
    let Some(at) = tail_at.checked_sub(len).filter(|&at| at >= MAGIC_BYTES) else {
        let found = format!("of {len} bytes");
        return Err(malformed("the footer", tail_at, found, "it fits between the two PAR1"));
    };
    let bytes = read(object, "the footer", at, len, FOOTER_BYTES_MAX)?;
    let mut found = Found::default();
    found.file(&mut Walk::new(&bytes)).map_err(|Stop { at: stop }| {
        let right = "it is FileMetaData of parquet.thrift, in the compact protocol";
        malformed("the footer", at + stop as u64, "damaged", right)
    })?;
    found.finish(Range::plain(at, end - at))
}

fn encrypted(what: String) -> FormatError {
    FormatError::Unsupported { what, instead: "write it without encryption" }
}

#[derive(Debug, Default)]
struct Found {
    rows: Option<u64>,
    row_groups: Vec<RowGroup>,
    paths: Vec<Vec<String>>,
    types: Vec<Option<String>>,
    is_encrypted: bool,
    /// The first column whose data is in another file.
    elsewhere: Option<String>,
    /// The first row group whose columns differ from those of the first.
    unlike: Option<usize>,
    /// The writer, if its lengths of chunks are too small.
    undercounted: Option<String>,
}

impl Found {
    fn finish(self, range: Range) -> Result<Footer, FormatError> {
        if self.is_encrypted {
            return Err(encrypted("a Parquet file with encrypted columns".to_owned()));
        }
        if let Some(file) = self.elsewhere {
            return Err(FormatError::Unsupported {
                what: format!("a Parquet file whose columns are in `{}`", file.escape_debug()),
                instead: "give the file that has the columns; this one is a summary",
            });
        }
        if let Some(writer) = self.undercounted {
            return Err(FormatError::Unsupported {
                what: format!("a Parquet file by `{}`, which miscounts", writer.escape_debug()),
                instead: "write it again with a release since 2014",
            });
        }
        let at = range.offset;
        if let Some(group) = self.unlike {
            let found = format!("of other columns than the first: the one at index {group}");
            return Err(malformed("a row group", at, found, "all have the same columns"));
        }
        // Too few groups fit in a footer for this sum to exceed 128 bits.
        let sum: u128 = self.row_groups.iter().map(|group| u128::from(group.rows)).sum();
        let rows = self.rows.unwrap_or_default();
        if sum != u128::from(rows) {
            let found = format!("{rows}, and the row groups have {sum}");
            return Err(malformed("the number of rows", at, found, "the sum over row groups"));
        }
        let Self { row_groups, paths, mut types, .. } = self;
        if types.len() != paths.len() {
            types.clear();
        }
        Ok(Footer { row_groups, paths, types, range })
    }

    /// Reads the structure `FileMetaData`.
    fn file(&mut self, walk: &mut Walk<'_>) -> Walked<()> {
        let mut is_listed = false;
        walk.fields(|walk, field| match field.id {
            2 => {
                let count = walk.structures(field)?;
                (0..count).try_for_each(|_| self.schema_element(walk))
            }
            3 => self.rows.replace(unsigned(walk, field)?).map_or(Ok(()), |_| Err(walk.stop())),
            4 if is_listed => Err(walk.stop()),
            4 => {
                is_listed = true;
                let count = walk.structures(field)?;
                (0..count).try_for_each(|index| self.row_group(walk, index))
            }
            6 => {
                let writer = walk.text(field)?;
                if undercounts(writer) {
                    self.undercounted = Some(writer.to_owned());
                }
                Ok(())
            }
            8 => {
                self.is_encrypted = true;
                walk.skip(field)
            }
            _ => walk.skip(field),
        })?;
        if is_listed && self.rows.is_some() { Ok(()) } else { Err(walk.stop()) }
    }

    /// Reads the structure `SchemaElement`: a column, or a group of them, which follow it.
    fn schema_element(&mut self, walk: &mut Walk<'_>) -> Walked<()> {
        let (mut physical, mut len, mut is_null) = (None, None, false);
        walk.fields(|walk, field| {
            match field.id {
                1 => physical = Some(walk.number(field)?),
                2 => len = Some(walk.number(field)?),
                // `logicalType` is a union, and its member 11 is `UNKNOWN`.
                10 => {
                    walk.structure(field)?;
                    walk.fields(|walk, member| {
                        is_null = member.id == 11;
                        walk.skip(member)
                    })?;
                }
                _ => walk.skip(field)?,
            }
            Ok(())
        })?;
        let Some(physical) = physical else { return Ok(()) };
        let name = usize::try_from(physical).ok().and_then(|it| PHYSICAL_TYPES.get(it).copied());
        let name = name.map_or_else(|| format!("of type {physical}"), str::to_owned);
        let name = match len.filter(|_| name == FIXED) {
            Some(len) => format!("{name} of {len} bytes"),
            None => name,
        };
        self.types.push((!is_null).then_some(name));
        Ok(())
    }

    /// Reads the structure `RowGroup` at `index`.
    fn row_group(&mut self, walk: &mut Walk<'_>, index: usize) -> Walked<()> {
        let mut group = RowGroup::default();
        let mut rows = None;
        let mut is_listed = false;
        walk.fields(|walk, field| match field.id {
            1 if is_listed => Err(walk.stop()),
            1 => {
                is_listed = true;
                let columns = walk.structures(field)?;
                for column in 0..columns {
                    group.chunks.push(self.chunk(walk, index, column)?);
                }
                Ok(())
            }
            3 => {
                rows = Some(unsigned(walk, field)?);
                Ok(())
            }
            _ => walk.skip(field),
        })?;
        group.rows = rows.ok_or(walk.stop())?;
        if group.chunks.len() != self.paths.len() {
            self.unlike.get_or_insert(index);
        }
        self.row_groups.push(group);
        Ok(())
    }

    /// Reads the structure `ColumnChunk` at `column` of the row group at `group`.
    fn chunk(&mut self, walk: &mut Walk<'_>, group: usize, column: usize) -> Walked<Chunk> {
        let mut found = None;
        let mut path = Vec::new();
        walk.fields(|walk, field| match field.id {
            1 => {
                let file = walk.text(field)?;
                if !file.is_empty() {
                    self.elsewhere.get_or_insert_with(|| file.to_owned());
                }
                Ok(())
            }
            3 => {
                walk.structure(field)?;
                found = Some(metadata(walk, &mut path)?);
                Ok(())
            }
            // `crypto_metadata` and `encrypted_column_metadata`.
            8 | 9 => {
                self.is_encrypted = true;
                walk.skip(field)
            }
            _ => walk.skip(field),
        })?;
        if group == 0 {
            self.paths.push(path);
        } else if self.paths.get(column) != Some(&path) {
            self.unlike.get_or_insert(group);
        }
        match found {
            Some(chunk) => Ok(chunk),
            // The metadata of an encrypted column may be encrypted too, and then is not here.
            None if self.is_encrypted => Ok(Chunk { start: 0, len: 0 }),
            None => Err(walk.stop()),
        }
    }
}

fn metadata(walk: &mut Walk<'_>, path: &mut Vec<String>) -> Walked<Chunk> {
    let (mut len, mut data, mut dictionary) = (None, None, None);
    path.clear();
    walk.fields(|walk, field| {
        match field.id {
            3 => {
                let count = walk.texts(field)?;
                for _ in 0..count {
                    path.push(walk.element_text()?.to_owned());
                }
            }
            7 => len = Some(unsigned(walk, field)?),
            9 => data = Some(unsigned(walk, field)?),
            11 => dictionary = Some(walk.number(field)?),
            _ => walk.skip(field)?,
        }
        Ok(())
    })?;
    let (Some(len), Some(data)) = (len, data) else { return Err(walk.stop()) };
    // Offsets where no page can be mark missing pages.
    let first = |it: &u64| *it >= MAGIC_BYTES && len > 0;
    let dictionary = dictionary.and_then(|it| u64::try_from(it).ok());
    let start = dictionary.into_iter().chain([data]).filter(first).min();
    Ok(Chunk { start: start.unwrap_or(MAGIC_BYTES), len })
}

/// Whether `writer` does not count the header of the dictionary page in the length of a chunk.
///
/// # Source
///
/// PARQUET-816: `parquet-mr` before 1.2.9 does.
fn undercounts(writer: &str) -> bool {
    let Some(version) = writer.strip_prefix("parquet-mr version ") else { return false };
    let number = |part: &str| {
        let digits = part.find(|it: char| !it.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().unwrap_or(u32::MAX)
    };
    let mut parts = version.splitn(3, '.').map(number);
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) < (1, 2, 9)
}

fn unsigned(walk: &mut Walk<'_>, field: Field) -> Walked<u64> {
    u64::try_from(walk.number(field)?).map_err(|_| walk.stop())
}
