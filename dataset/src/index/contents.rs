//! Reads a whole dataset and compares it with the checksums of its format.

use super::{Checksums, Index, IndexError, Progress, Stage, choose::Sidecars, parallel, stale};
use crate::{
    Dataset, Format,
    format::{Compression, FormatError, Range, ReadAt, mds, npz, tfrecord, webdataset},
    source,
};

/// Returns [`Checksums::Hold`] if there was at least one checksum.
pub(super) fn check(
    index: &Index,
    dataset: &Dataset,
    progress: &mut dyn FnMut(Progress),
) -> Result<Checksums, IndexError> {
    let mut found = Checksums::None;
    let store = source::open(&dataset.source)?;
    let chosen = stale::verify(index, dataset, &*store, progress)?;
    if !may_have_checksums(&dataset.format) {
        return Ok(found);
    }
    let check = |number: usize| {
        let opened = store.open(&chosen.listing.listed(number))?;
        let ranges = index.ranges_of(number);
        let checked = object(&dataset.format, &*opened, &ranges, &chosen.sidecars, number);
        opened.verify()?;
        checked.map_err(|source| chosen.broken(number, source))
    };
    let take = |_, checksums| {
        if checksums == Checksums::Hold {
            found = checksums;
        }
        Ok(())
    };
    let objects = chosen.listing.objects.len();
    parallel::in_order(objects, Stage::Checking, check, take, progress)?;
    Ok(found)
}

fn object(
    format: &Format,
    object: &dyn ReadAt,
    ranges: &[Range],
    sidecars: &Sidecars,
    number: usize,
) -> Result<Checksums, FormatError> {
    match (format, sidecars) {
        (Format::TfRecord(Compression::None), _) => tfrecord::check(object, ranges)?,
        (Format::WebDataset, _) => webdataset::check(object, ranges)?,
        (Format::Npz { members }, _) => npz::check(object, members)?,
        (Format::Mds, Sidecars::Mds(shards)) => {
            if mds::check(object, &shards[number])?.verified.is_empty() {
                return Ok(Checksums::None);
            }
        }
        _ => return Ok(Checksums::None),
    }
    Ok(Checksums::Hold)
}

/// Whether the format may have checksums; other objects are not opened.
fn may_have_checksums(format: &Format) -> bool {
    matches!(
        format,
        Format::TfRecord(Compression::None) | Format::WebDataset | Format::Mds | Format::Npz { .. }
    )
}
