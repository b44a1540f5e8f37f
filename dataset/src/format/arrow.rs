//! Finds the record batches of Arrow IPC files and streams.
//!
//! Both are a sequence of messages: a schema, the dictionaries of its columns, record batches. A
//! stream (what Hugging Face `datasets` writes) is read from message to message; a file (Feather
//! version 2) has a footer that lists them. A sample is one record batch as a message, metadata and
//! body: the schema's message, those of the dictionaries and the sample, concatenated, are a stream
//! that every Arrow reader reads. Compressed bodies are delivered unchanged.
//!
//! Dictionaries belong to that prefix if they precede the first batch, and in a file at any
//! position. A stream that changes them between batches is refused: the meaning of a batch would
//! depend on its position in the reading order.
//!
//! # Source
//!
//! `docs/source/format/Columnar.rst`, `Message.fbs` and `File.fbs` of Apache Arrow.

mod file;
mod flat;
mod message;
mod saved_dataset;
mod schema;
mod stream;

#[cfg(test)]
mod tests;

use super::{
    DatasetFormat, Format, FormatError, Found, Kind, Order, Parsed, Range, ReadAt, Stated, Table,
    objects::{Candidates, Objects, ObjectsError},
    piece::malformed,
};
use crate::source::{Opened, names::ends_in};

const FILE_MAGIC: &[u8; 6] = b"ARROW1";

pub(super) static KIND: Kind = Kind {
    is_beside: saved_dataset::is_beside,
    alike: Some(".arrow"),
    ..Kind::by_name(
        "arrow",
        |_| Ok(Format::Arrow),
        |name| ends_in(name, &[".arrow", ".arrows", ".feather", ".ipc"]),
        ".arrow, .arrows, .feather, .ipc",
    )
};

pub(super) struct Arrow;

impl DatasetFormat for Arrow {
    /// A manifest names data itself.
    fn objects(&self, found: Candidates<'_>) -> Result<Objects, ObjectsError> {
        match found.before_manifest {
            None => saved_dataset::choose(&found),
            Some(_) => Ok(found.listing.into()),
        }
    }

    fn parse(&self, object: &dyn Opened, _index: Option<&[u8]>) -> Result<Parsed, FormatError> {
        let Layout { batches, table, .. } = layout(object)?;
        Ok(Parsed::new(Found::Ranges(batches), Some(Stated::Table(table))))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The schema as a message. Polars writes files that have it in the footer alone; then a reader
    /// takes it from there.
    pub schema: Option<Range>,
    /// The footer of a file, as a flat buffer without its length; a stream has none.
    pub footer: Option<Range>,
    /// The dictionaries that the batches need, in their reading order.
    pub dictionaries: Vec<Range>,
    /// The samples: the record batches in their order.
    pub batches: Vec<Range>,
    pub rows: Vec<u64>,
    pub table: Table,
}

impl Layout {
    fn of(columns: Vec<(String, String)>) -> Self {
        let columns = columns.into_iter().map(|(name, of)| (name, Some(of))).collect();
        Self {
            schema: None,
            footer: None,
            dictionaries: Vec::new(),
            batches: Vec::new(),
            rows: Vec::new(),
            table: Table { columns, order: Order::ByPlace },
        }
    }
}

/// Finds the messages of `object`, a file or a stream.
///
/// # Errors
///
/// [`FormatError::Unsupported`] if dictionaries change between the batches of a stream, or for the
/// first version of Feather; [`FormatError::Truncated`] and [`FormatError::Malformed`] if the object
/// is damaged.
pub fn layout(object: &dyn ReadAt) -> Result<Layout, FormatError> {
    let mut start = [0; 8];
    if object.len() < start.len() as u64 {
        let found = format!("of {} bytes", object.len());
        return Err(malformed("the object", 0, found, "an Arrow stream starts with a schema"));
    }
    object.read_exact_at(&mut start, 0)?;
    if start.starts_with(b"FEA1") {
        return Err(FormatError::Unsupported {
            what: "a Feather file of version 1".to_owned(),
            instead: "write it with version 2, which is an Arrow file",
        });
    }
    if start.starts_with(FILE_MAGIC) { file::layout(object) } else { stream::layout(object) }
}
