//! Collects the samples of the objects, one after the other, and refuses inconsistent ones.

use crate::{
    format::{FormatError, Found, Parsed, Records, Stated},
    index::{
        IndexError,
        choose::Chosen,
        draft::{RangeTable, RecordTable, Samples},
    },
};

#[derive(Debug, Default)]
pub(in crate::index) struct Gathered {
    /// Number of objects so far.
    pub(super) objects: usize,
    pub(in crate::index) samples: Samples,
    pub(in crate::index) stated: Option<Stated>,
    pub(in crate::index) notes: Vec<String>,
}

impl Gathered {
    pub(super) fn push(
        &mut self,
        chosen: &Chosen,
        number: usize,
        parsed: Parsed,
    ) -> Result<(), IndexError> {
        self.objects += 1;
        let size = chosen.objects.listing.objects[number].size;
        let Parsed { samples, stated, note } = parsed;
        let joined = match (&mut self.stated, stated) {
            (Some(first), Some(stated)) => first.join(&stated),
            (first @ None, stated) => {
                *first = stated;
                Ok(())
            }
            (Some(_), None) => Ok(()),
        };
        self.notes.extend(note.map(|note| format!("{}: {note}", chosen.place_of(number))));
        let pushed = self.samples.push(samples, size).and(joined);
        pushed.map_err(|source| chosen.broken(number, source))
    }
}

impl Samples {
    /// Adds the samples of the next object, which is `size` bytes long.
    fn push(&mut self, samples: Found, size: u64) -> Result<(), FormatError> {
        match samples {
            Found::Whole => Ok(()),
            Found::Records(records) => self.push_records(records, size),
            Found::Ranges(ranges) => {
                if matches!(self, Self::Objects) {
                    *self = Self::Ranges(RangeTable::default());
                }
                match self {
                    Self::Ranges(table) => table.push_object(&ranges, size),
                    _ => Err(of_another_kind("pieces", "rows")),
                }
            }
        }
    }

    fn push_records(&mut self, records: Records, size: u64) -> Result<(), FormatError> {
        let Records { offset, record_bytes, count } = records;
        if matches!(self, Self::Objects) {
            *self = Self::Records(RecordTable { record_bytes, ..RecordTable::default() });
        }
        let Self::Records(table) = self else { return Err(of_another_kind("rows", "pieces")) };
        if table.record_bytes != record_bytes {
            let first = table.record_bytes;
            return Err(FormatError::OtherRecords { found: record_bytes, first });
        }
        let needed = record_bytes.saturating_mul(count).saturating_add(offset);
        if needed > size {
            let what = "the last record";
            return Err(FormatError::Truncated { what, at: offset, needed, found: size });
        }
        let samples = count;
        let too_many = |_| FormatError::TooManySamples { samples };
        table.counts.push(u32::try_from(count).map_err(too_many)?);
        table.starts.push(offset);
        Ok(())
    }
}

/// Only HDF5 can have both, in a dataset that is chunked in one file and not in another.
fn of_another_kind(found: &str, first: &str) -> FormatError {
    FormatError::Unsupported {
        what: format!("its samples are {found}, and those of the objects before it are {first}"),
        instead: "store the dataset in the same layout in all files",
    }
}
