//! Queries `tierfeed-hdf5-indexer` for the positions of the samples of a file: libhdf5 runs in a
//! process of its own, which drops all rights except reading that file, and whose time and answer
//! are bounded here.

mod bounded;

use std::{env, io, path::PathBuf, process::Command, time::Duration};

use self::bounded::{Bounds, BoundsError, Ended};
use super::{Found, Parsed};
use crate::{
    format::{FormatError, ReadAt, hdf5},
    index::{IndexError, path::below},
    source::{Listed, Location},
};

const INDEXER: &str = "tierfeed-hdf5-indexer";

/// A layout of ten million chunks has some hundred bytes for each.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(900), output_bytes: 1 << 30 };

/// The samples in `object`, a file below `source`. `broken` adds the file to a [`FormatError`].
pub(super) fn parse(
    source: &Location,
    listed: &Listed,
    dataset: &str,
    object: &dyn ReadAt,
    broken: impl Fn(FormatError) -> IndexError,
) -> Result<Parsed, IndexError> {
    let Location::Path(root) = source else {
        return Err(broken(FormatError::Unsupported {
            what: "HDF5 in a bucket, which libhdf5 cannot read".to_owned(),
            instead: "mount the bucket, or copy the files",
        }));
    };
    hdf5::check_signature(object).map_err(&broken)?;
    let mut command = Command::new(indexer());
    command.arg(below(root, &listed.path)).arg(dataset);
    // libhdf5 then loads no plugin library for a filter that the file names.
    command.env("HDF5_PLUGIN_PRELOAD", "::");
    let ended = bounded::run(&mut command, BOUNDS).map_err(|error| match error {
        BoundsError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            IndexError::NoHdf5Indexer { name: INDEXER }
        }
        BoundsError::Io(error) => broken(FormatError::Read(error)),
        BoundsError::Time(_) | BoundsError::Output(_) => broken(FormatError::Unsupported {
            what: format!("{INDEXER} of this file: {error}"),
            instead: "look whether the file is damaged, for example with h5dump",
        }),
    })?;
    samples(&ended, object).map_err(broken)
}

fn samples(ended: &Ended, object: &dyn ReadAt) -> Result<Parsed, FormatError> {
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.errors);
        let what = match said.trim() {
            "" => format!("{INDEXER} ended by {}", ended.status),
            said => said.to_owned(),
        };
        return Err(FormatError::Unsupported {
            what,
            instead: "a dataset in HDF5 is read by its rows or chunks",
        });
    }
    let dataset = hdf5::parse(&ended.output, object)?;
    let (stated, note) = (Some(dataset.stated()), dataset.note());
    let samples = match dataset.samples {
        hdf5::Samples::Rows(records) => Found::Records(records),
        hdf5::Samples::Chunks(chunks) => {
            Found::Ranges(chunks.chunks.iter().map(|chunk| chunk.range).collect())
        }
    };
    Ok(Parsed { samples, stated, note })
}

/// The program beside this one, else the one in the `PATH`.
fn indexer() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|it| Some(it.parent()?.join(INDEXER)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| INDEXER.into())
}
