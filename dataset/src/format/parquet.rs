//! Reads Parquet files: which bytes hold a row group, or one column of it.
//!
//! The footer at the end of the file lists row groups, and for each the chunks of its columns with
//! their places. A sample is a row group (everything from its first chunk to its last), or a single
//! chunk (dictionary page and data pages of one column). Neither can be read without the footer, so
//! that is a range of the result too.
//!
//! Deliberately absent: pages and values. They are encoded, often compressed, and the trainer's own
//! reader decodes them. The crate `parquet` (60.1) is absent too: on a crafted footer it recurses as
//! deep as the footer says, and takes memory for as many fields as a group claims.
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
    FormatError, Range, ReadAt,
    piece::{malformed, refuse_overlap, some_of},
};

/// What a sample is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// All rows of a row group, with all its columns or those selected.
    RowGroup,
    /// All rows of a row group, with one column.
    ColumnChunk,
}

/// Where the samples of a file are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The samples: row groups in the order of the file, and within each the columns in the order of
    /// the selection or else of the file.
    pub ranges: Vec<Range>,
    /// How many rows each of them has.
    pub rows: Vec<u64>,
    /// The paths of the selected columns, with dots; chunk `i` holds column `i % columns.len()`.
    pub columns: Vec<String>,
    /// What a reader needs besides: the metadata and the eight bytes behind it.
    pub footer: Range,
}

/// Reads the footer of `object` and finds the samples.
///
/// A column is named by its path with dots; the path of a group selects all columns in it. No name
/// selects all columns. A row group of which some columns are selected is the shortest range that
/// holds them, and so may hold others.
///
/// # Errors
///
/// [`FormatError::Unsupported`] if the file is encrypted, has its columns in other files, or lacks a
/// selected column; [`FormatError::Truncated`] and [`FormatError::Malformed`] if it is damaged, two
/// chunks that share a byte included.
pub fn ranges(object: &dyn ReadAt, unit: Unit, columns: &[String]) -> Result<Layout, FormatError> {
    let Footer { row_groups, paths, range: footer } = footer::read_footer(object)?;
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
        columns: selected.iter().map(|&index| paths[index].clone()).collect(),
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

/// Where the first chunk starts, and how far it is to the end of the last.
fn hull(chunks: &[Chunk]) -> (u64, u64) {
    // A chunk without bytes is nowhere.
    let real = || chunks.iter().filter(|chunk| chunk.len > 0);
    let start = real().map(|chunk| chunk.start).min();
    let end = real().map(|chunk| chunk.start + chunk.len).max();
    match (start, end) {
        (Some(start), Some(end)) => (start, end - start),
        _ => (MAGIC_BYTES, 0),
    }
}

/// The indexes of the columns wanted.
fn select(paths: &[String], columns: &[String]) -> Result<Vec<usize>, FormatError> {
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
        let is_wanted = |path: &String| {
            let rest = path.strip_prefix(column.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let before = selected.len();
        for (index, _) in paths.iter().enumerate().filter(|(_, path)| is_wanted(path)) {
            if std::mem::replace(&mut taken[index], true) {
                return Err(FormatError::Unsupported {
                    what: format!(
                        "the column {}, selected twice",
                        some_of([paths[index].as_str()])
                    ),
                    instead: "select each column once",
                });
            }
            selected.push(index);
        }
        if selected.len() == before {
            let there = some_of(paths.iter().map(String::as_str));
            return Err(FormatError::Unsupported {
                what: format!("no column {}: there are {there}", some_of([column.as_str()])),
                instead: "select columns that are there, by their paths with dots",
            });
        }
    }
    Ok(selected)
}
