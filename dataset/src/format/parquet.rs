//! Finds the row groups of Parquet files, or one column of each.
//!
//! The footer at the end of the file lists row groups, and for each the chunks of its columns with
//! their offsets. A sample is a row group (everything from its first chunk to its last), or a
//! single chunk (dictionary page and data pages of one column). Neither can be decoded without the
//! footer, so the result has its range too.
//!
//! Deliberately absent: pages and values. They are encoded, often compressed, and the trainer's own
//! reader decodes them. The crate `parquet` (60.1) is not used either: on a crafted footer it
//! recurses as deep as the footer says, and takes memory for as many fields as a group claims.
//!
//! # Source
//!
//! `parquet.thrift` and `Encryption.md` of the Parquet format, 2.11.

mod footer;
mod thrift;

#[cfg(test)]
mod tests;

use self::footer::{Chunk, Footer, MAGIC_BYTES, RowGroup};
use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Order, Parsed, Range, ReadAt, Stated, Table,
    keys::{Given, Key, KeyError},
    piece::{malformed, refuse_overlap, some_of},
};
use crate::source::{
    Opened,
    names::{ends_in, stem_of},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// All rows of a row group, with all its columns or those selected.
    RowGroup,
    /// All rows of a row group, with one column.
    ColumnChunk,
}

pub(super) static KIND: Kind = Kind {
    keys: &[&UNIT, &COLUMNS],
    alike: Some(".parq"),
    ..Kind::by_name("parquet", of_keys, is_parquet, ".parquet, .parq, .pq")
};

static UNIT: Key = Key::new("unit", "NAME", "row-group or column-chunk [default: row-group]");
static COLUMNS: Key =
    Key { is_list: true, ..Key::new("columns", "PATH", "the dotted path of a column") };

fn of_keys(given: &Given<'_>) -> Result<Format, KeyError> {
    let known = [("row-group", Unit::RowGroup), ("column-chunk", Unit::ColumnChunk)];
    let unit = given.one_of(&UNIT, &known)?.unwrap_or(Unit::RowGroup);
    Ok(Format::Parquet(Parquet { unit, columns: given.names(&COLUMNS, "image.bytes")? }))
}

/// The endings that writers of Parquet use, and pandas with a compression.
fn is_parquet(name: &[u8]) -> bool {
    let compressions = [".gzip", ".gz", ".snappy", ".zstd", ".brotli", ".br", ".lz4"];
    ends_in(name, &[".parquet", ".parq", ".pq"])
        || ends_in(name, &compressions) && ends_in(stem_of(name), &[".parquet"])
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parquet {
    pub unit: Unit,
    /// The columns that are read, by their dotted paths; all columns if empty.
    pub columns: Vec<String>,
}

impl DatasetFormat for Parquet {
    fn settings(&self) -> String {
        let unit = match self.unit {
            Unit::RowGroup => "row groups",
            Unit::ColumnChunk => "column chunks",
        };
        match &self.columns[..] {
            [] => unit.to_owned(),
            columns => format!("{unit} of {columns:?}"),
        }
    }

    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        let layout = ranges(object, self.unit, &self.columns)?;
        let stated = layout.stated(self.unit, !self.columns.is_empty());
        Ok(Parsed::new(Found::Ranges(layout.ranges), stated))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Row groups in the order of the file, and within each the columns in the order of the
    /// selection or else of the file.
    pub ranges: Vec<Range>,
    pub rows: Vec<u64>,
    /// The paths of the selected columns, with dots; chunk `i` holds column `i % columns.len()`.
    pub columns: Vec<String>,
    /// The physical type of each selected column; `None` for one that has only nulls.
    pub types: Vec<Option<String>>,
    /// The footer that a reader needs in addition: the metadata and the eight bytes behind it.
    pub footer: Range,
}

/// Reads the footer of `object` and finds the samples.
///
/// A column is named by its path with dots; the path of a group selects all columns in it. Without
/// names all columns are selected. The sample of a row group is the shortest range that holds its
/// selected columns, and so may hold others.
///
/// # Errors
///
/// [`FormatError::Unsupported`] if the file is encrypted, has its columns in other files, or lacks
/// a selected column; [`FormatError::Truncated`] and [`FormatError::Malformed`] if it is damaged,
/// also if two chunks share a byte.
pub fn ranges(object: &dyn ReadAt, unit: Unit, columns: &[String]) -> Result<Layout, FormatError> {
    let Footer { row_groups, paths, types, range: footer } = footer::read_footer(object)?;
    let chunks = row_groups.iter().flat_map(|group| &group.chunks);
    let spans: Vec<Range> = chunks.map(|chunk| Range::plain(chunk.start, chunk.len)).collect();
    for span in &spans {
        check_place(span, footer.offset)?;
    }
    refuse_overlap("a column chunk", &spans)?;
    let selected = if row_groups.is_empty() { Vec::new() } else { select(&paths, columns)? };
    let mut layout = Layout {
        ranges: Vec::new(),
        rows: Vec::new(),
        columns: selected.iter().map(|&index| paths[index].join(".")).collect(),
        types: selected.iter().map(|&index| types.get(index).cloned().flatten()).collect(),
        footer,
    };
    for group in &row_groups {
        let chunks: Vec<Chunk> = selected.iter().map(|&index| group.chunks[index]).collect();
        match unit {
            Unit::RowGroup => layout.add(hull(&chunks), group),
            Unit::ColumnChunk => chunks.iter().for_each(|it| layout.add((it.start, it.len), group)),
        }
    }
    refuse_overlap("a row group", &layout.ranges)?;
    Ok(layout)
}

impl Layout {
    /// The file's statement about the rows of its samples; `None` if it makes none.
    #[must_use]
    pub(crate) fn stated(&self, unit: Unit, is_selected: bool) -> Option<Stated> {
        let order = match unit {
            _ if is_selected => Order::Selected,
            Unit::RowGroup => Order::ByName,
            Unit::ColumnChunk => Order::ByPlace,
        };
        let columns = self.columns.iter().cloned().zip(self.types.iter().cloned()).collect();
        (!self.columns.is_empty()).then_some(Stated::Table(Table { columns, order }))
    }

    fn add(&mut self, (start, len): (u64, u64), group: &RowGroup) {
        self.ranges.push(Range::plain(start, len));
        self.rows.push(group.rows);
    }
}

fn check_place(span: &Range, footer: u64) -> Result<(), FormatError> {
    let end = span.offset.checked_add(span.len);
    if span.offset >= MAGIC_BYTES && end.is_some_and(|end| end <= footer) {
        return Ok(());
    }
    let found = format!("of {} bytes, and the footer starts at byte {footer}", span.len);
    Err(malformed("a column chunk", span.offset, found, "chunks lie between magic and footer"))
}

/// Start of the first chunk, and the distance from there to the end of the last.
fn hull(chunks: &[Chunk]) -> (u64, u64) {
    // A chunk without bytes has no position.
    let real = || chunks.iter().filter(|chunk| chunk.len > 0);
    let start = real().map(|chunk| chunk.start).min();
    let end = real().map(|chunk| chunk.start + chunk.len).max();
    match (start, end) {
        (Some(start), Some(end)) => (start, end - start),
        _ => (MAGIC_BYTES, 0),
    }
}

fn select(paths: &[Vec<String>], columns: &[String]) -> Result<Vec<usize>, FormatError> {
    if paths.is_empty() {
        return Err(FormatError::Unsupported {
            what: "a file without columns".to_owned(),
            instead: "leave it out, there is nothing to read",
        });
    }
    if columns.is_empty() {
        return Ok((0..paths.len()).collect());
    }
    let mut taken = vec![false; paths.len()];
    let mut selected = Vec::new();
    for column in columns {
        // A name may have dots in it, so the parts decide: `a` is no group of the column `a.b`.
        let is_wanted =
            |path: &[String]| (1..=path.len()).any(|parts| path[..parts].join(".") == *column);
        let before = selected.len();
        for (index, _) in paths.iter().enumerate().filter(|(_, path)| is_wanted(path)) {
            if std::mem::replace(&mut taken[index], true) {
                return Err(FormatError::Unsupported {
                    what: format!(
                        "the column {}, selected twice",
                        some_of([paths[index].join(".").as_str()])
                    ),
                    instead: "select each column once",
                });
            }
            selected.push(index);
        }
        if selected.len() == before {
            let paths: Vec<_> = paths.iter().map(|path| path.join(".")).collect();
            let there = some_of(paths.iter().map(String::as_str));
            return Err(FormatError::Unsupported {
                what: format!("no column {}: there are {there}", some_of([column.as_str()])),
                instead: "select columns that are there, by their paths with dots",
            });
        }
    }
    Ok(selected)
}
