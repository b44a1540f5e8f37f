//! Opens an object and parses it with the parser of its format.

use std::num::NonZeroU64;

use super::{Found, Parsed, hdf5};
use crate::{
    Dataset, Format,
    format::{
        Compression, FormatError, Parquet, Range, ReadAt, Stated, arrow, ffcv, litdata, lmdb, mds,
        megatron, npy, npz, parquet, tfrecord, webdataset,
    },
    index::{
        IndexError,
        choose::{Chosen, Sidecars, read_index},
    },
    source::{Listed, Store},
};

pub(super) fn parse(
    dataset: &Dataset,
    store: &dyn Store,
    chosen: &Chosen,
    number: usize,
    listed: &Listed,
) -> Result<Parsed, IndexError> {
    let broken = |source| chosen.broken(number, source);
    let opened = store.open(listed)?;
    let parsed = match index_beside(&dataset.format, chosen, number) {
        Some(index) => by_index(dataset, store, &*opened, index, chosen),
        None => match &dataset.format {
            Format::Hdf5 { dataset: path } => {
                hdf5::parse(&dataset.source, listed, path, &*opened, broken)
            }
            format => by_format(format, &*opened, &chosen.sidecars, number).map_err(broken),
        },
    };
    // A change of the object explains the parser's error, so it is reported first.
    opened.verify()?;
    parsed
}

fn by_format(
    format: &Format,
    object: &dyn ReadAt,
    sidecars: &Sidecars,
    number: usize,
) -> Result<Parsed, FormatError> {
    match (format, sidecars) {
        (Format::TfRecord(Compression::None), _) => {
            tfrecord::ranges(object).map(|ranges| Found::Ranges(ranges).into())
        }
        (Format::TfRecord(Compression::Gzip), _) => {
            tfrecord::compressed(object).map(|_| Found::Whole.into())
        }
        (Format::WebDataset, _) => {
            webdataset::ranges(object).and_then(|ranges| of_tar(object, ranges))
        }
        (Format::Mds, Sidecars::Mds(shards)) => {
            let mut ranges = mds::ranges(object, &shards[number])?;
            mds::labels(object, &shards[number], &mut ranges)?;
            Ok(Found::Ranges(ranges).into())
        }
        (Format::LitData { sequence_length }, Sidecars::LitData(index)) => {
            of_litdata(object, index, number, *sequence_length)
        }
        (Format::Megatron, _) => Err(FormatError::Unsupported {
            what: "no .idx of the same name is beside it".to_owned(),
            instead: "bring both files that Megatron-LM's preprocess_data.py writes",
        }),
        (Format::Npy, _) => {
            let array = npy::records(object)?;
            Ok(Parsed::new(Found::Records(array.records), Some(array.stated())))
        }
        (Format::Npz { members }, _) => {
            npz::ranges(object, members).map(|ranges| Found::Ranges(ranges).into())
        }
        (Format::Parquet(Parquet { unit, columns }), _) => {
            let layout = parquet::ranges(object, *unit, columns)?;
            let stated = layout.stated(*unit, !columns.is_empty());
            Ok(Parsed::new(Found::Ranges(layout.ranges), stated))
        }
        (Format::Arrow, _) => {
            let layout = arrow::layout(object)?;
            Ok(Parsed::new(Found::Ranges(layout.batches), Some(Stated::Table(layout.table))))
        }
        (Format::Lmdb, _) => lmdb::check(object).map(|_| Found::Whole.into()),
        (Format::Ffcv, _) => ffcv::check(object).map(|_| Found::Whole.into()),
        (
            Format::ImageFolder
            | Format::Files(_)
            | Format::Raw(_)
            | Format::Hdf5 { .. }
            | Format::Mds
            | Format::LitData { .. },
            _,
        ) => unreachable!("{format} is not read object by object, or comes with its index"),
    }
}

/// The samples of a tar, and a note on bytes behind its end.
fn of_tar(object: &dyn ReadAt, ranges: Vec<Range>) -> Result<Parsed, FormatError> {
    let note = webdataset::behind_end(object, &ranges)?;
    Ok(Parsed { note, ..Found::Ranges(ranges).into() })
}

fn of_litdata(
    object: &dyn ReadAt,
    index: &litdata::Index,
    number: usize,
    sequence_length: Option<NonZeroU64>,
) -> Result<Parsed, FormatError> {
    let chunk = &index.chunks[number];
    match (index.content, sequence_length) {
        (litdata::Content::Items, None) => {
            litdata::ranges(object, chunk).map(|ranges| Found::Ranges(ranges).into())
        }
        (litdata::Content::Tokens { token_bytes, dtype }, Some(length)) => {
            let blocks = litdata::token_blocks(object, chunk, token_bytes, length)?;
            Ok(Parsed::new(Found::Records(blocks), Some(Stated::tokens(dtype))))
        }
        (litdata::Content::Items, Some(_)) => Err(FormatError::Unsupported {
            what: "the chunks hold items and no tokens".to_owned(),
            instead: "leave `sequence_length` out",
        }),
        (litdata::Content::Tokens { .. }, None) => Err(FormatError::Unsupported {
            what: "the chunks hold tokens".to_owned(),
            instead: "say with `sequence_length` how many are a sample",
        }),
    }
}

fn index_beside<'a>(format: &Format, chosen: &'a Chosen, number: usize) -> Option<&'a Listed> {
    match (format, &chosen.sidecars) {
        (Format::TfRecord(Compression::Gzip), _) => None,
        (_, Sidecars::Index(indexes)) => indexes[number].as_ref(),
        _ => None,
    }
}

/// The samples of an object according to the index beside it; errors name the index.
fn by_index(
    dataset: &Dataset,
    store: &dyn Store,
    object: &dyn ReadAt,
    index: &Listed,
    chosen: &Chosen,
) -> Result<Parsed, IndexError> {
    let opened = store.open(index)?;
    let text = read_index(&*opened);
    opened.verify()?;
    let parsed = text.and_then(|text| {
        let of = |ranges| Found::Ranges(ranges).into();
        match dataset.format {
            Format::TfRecord(_) => tfrecord::from_dali_index(&text, object).map(of),
            Format::Megatron => {
                let ranges = megatron::ranges(&text, object)?;
                let stated = Stated::tokens(megatron::dtype(&text)?);
                Ok(Parsed::new(Found::Ranges(ranges), Some(stated)))
            }
            _ => webdataset::from_index(&text, object).and_then(|ranges| of_tar(object, ranges)),
        }
    });
    parsed.map_err(|source| chosen.broken_at(index, source))
}
