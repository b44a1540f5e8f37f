//! Opens an object and hands it to the parser of its format.

use super::Parsed;
use crate::{
    format::{FormatError, ReadAt, arrow, ffcv, lmdb, npy, npz, parquet},
    index::{IndexError, choose::Chosen},
    job::{Dataset, Format, format::Parquet},
    source::{Listed, Store},
};

/// What is in object `number`.
pub(super) fn parse(
    dataset: &Dataset,
    store: &dyn Store,
    chosen: &Chosen,
    number: usize,
    listed: &Listed,
) -> Result<Parsed, IndexError> {
    let opened = store.open(listed)?;
    let parsed = by_format(&dataset.format, &*opened);
    // That the object changed explains what the parser found, so it is told first.
    opened.verify()?;
    parsed.map_err(|source| chosen.broken(number, source))
}

fn by_format(format: &Format, object: &dyn ReadAt) -> Result<Parsed, FormatError> {
    match format {
        Format::Npy => npy::records(object).map(|array| Parsed::Records(array.records)),
        Format::Npz { members } => npz::ranges(object, members).map(Parsed::Ranges),
        Format::Parquet(Parquet { unit, columns }) => {
            let layout = parquet::ranges(object, *unit, columns)?;
            Ok(Parsed::Ranges(layout.ranges))
        }
        Format::Arrow => arrow::layout(object).map(|layout| Parsed::Ranges(layout.batches)),
        Format::Lmdb => lmdb::check(object).map(|_| Parsed::Whole),
        Format::Ffcv => ffcv::check(object).map(|_| Parsed::Whole),
        other => Err(FormatError::Unsupported {
            what: format!("format {}", other.name()),
            instead: "it is being built",
        }),
    }
}
