//! Finds the samples in every object, with the parser of the format.

mod gathered;
mod hdf5;
mod known;
mod object;

use super::{
    Index, IndexError, Progress, Stage,
    choose::Chosen,
    draft::{RecordTable, Samples},
    parallel,
};
use crate::{
    Dataset, Format,
    format::{FormatError, Range, Raw, Records, Rest, Stated},
    source::Store,
};
use gathered::Gathered;
use known::Known;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parsed {
    samples: Found,
    stated: Option<Stated>,
    note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// The whole object is one sample.
    Whole,
    Records(Records),
    Ranges(Vec<Range>),
}

impl Parsed {
    fn new(samples: Found, stated: Option<Stated>) -> Self {
        Self { samples, stated, note: None }
    }
}

impl From<Found> for Parsed {
    fn from(samples: Found) -> Self {
        Self::new(samples, None)
    }
}

#[derive(Debug)]
pub(super) struct AllParsed {
    pub(super) samples: Samples,
    pub(super) stated: Option<Stated>,
    pub(super) notes: Vec<String>,
}

impl From<Samples> for AllParsed {
    fn from(samples: Samples) -> Self {
        Self { samples, stated: None, notes: Vec::new() }
    }
}

/// The samples of all chosen objects. Unchanged objects that `previous` knows are taken from there.
pub(super) fn samples(
    dataset: &Dataset,
    store: &dyn Store,
    chosen: &Chosen,
    previous: Option<&Index>,
    progress: &mut dyn FnMut(Progress),
) -> Result<AllParsed, IndexError> {
    match &dataset.format {
        Format::ImageFolder | Format::Files(_) => Ok(Samples::Objects.into()),
        Format::Raw(raw) => Ok(raw_records(*raw, chosen)?.into()),
        _ => read_objects(dataset, store, chosen, previous, progress),
    }
}

fn read_objects(
    dataset: &Dataset,
    store: &dyn Store,
    chosen: &Chosen,
    previous: Option<&Index>,
    progress: &mut dyn FnMut(Progress),
) -> Result<AllParsed, IndexError> {
    let known = Known::of(dataset, previous);
    let parse = |number: usize| {
        let listed = chosen.listing.listed(number);
        // Data beside an object may have changed while the object did not.
        let known = if chosen.sidecars.is_of(number) { None } else { known.object(&listed) };
        match known {
            Some(parsed) => Ok(parsed),
            None => object::parse(dataset, store, chosen, number, &listed),
        }
    };
    let mut gathered = Gathered::default();
    let objects = chosen.listing.objects.len();
    let take = |number, parsed| gathered.push(chosen, number, parsed);
    parallel::in_order(objects, Stage::Reading, parse, take, progress)?;
    Ok(gathered.finish())
}

/// Finds records by the sizes of the objects alone.
fn raw_records(raw: Raw, chosen: &Chosen) -> Result<Samples, IndexError> {
    let mut table = RecordTable { record_bytes: raw.record_bytes.0, ..RecordTable::default() };
    for (number, object) in chosen.listing.objects.iter().enumerate() {
        let count = raw_count(raw, object.size).map_err(|source| chosen.broken(number, source))?;
        table.counts.push(count);
        table.starts.push(raw.header_bytes.0);
    }
    Ok(Samples::Records(table))
}

fn raw_count(raw: Raw, size: u64) -> Result<u32, FormatError> {
    let Raw { record_bytes, header_bytes, rest } = raw;
    let bytes = size.checked_sub(header_bytes.0).ok_or(FormatError::Truncated {
        what: "the header",
        at: 0,
        needed: header_bytes.0,
        found: size,
    })?;
    let (count, left) = (bytes / record_bytes.0, bytes % record_bytes.0);
    if rest == Rest::Refuse && left > 0 {
        return Err(FormatError::PartialRecord { size: bytes, record_bytes: record_bytes.0 });
    }
    u32::try_from(count).map_err(|_| FormatError::TooManySamples { samples: count })
}
