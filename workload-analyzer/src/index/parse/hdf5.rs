//! Asks `tierfeed-hdf5-indexer` where the samples of a file lie: libhdf5 runs in a process of its own.

use std::{
    env, io,
    path::PathBuf,
    process::{Command, Output},
};

use super::Parsed;
use crate::{
    format::{FormatError, ReadAt, hdf5},
    index::{IndexError, stale::below},
    source::{Listed, Location},
};

const INDEXER: &str = "tierfeed-hdf5-indexer";

/// What is in `object`, a file below `source`. `broken` says whose fault a [`FormatError`] is.
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
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => IndexError::NoHdf5Indexer { name: INDEXER },
        _ => broken(FormatError::Read(error)),
    })?;
    samples(&output, object).map_err(broken)
}

fn samples(output: &Output, object: &dyn ReadAt) -> Result<Parsed, FormatError> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let what = match said.trim() {
            "" => format!("{INDEXER} ended by {}", output.status),
            said => said.to_owned(),
        };
        return Err(FormatError::Unsupported {
            what,
            instead: "a dataset in HDF5 is read by its rows or chunks",
        });
    }
    Ok(match hdf5::parse(&output.stdout, object)?.samples {
        hdf5::Samples::Rows(records) => Parsed::Records(records),
        hdf5::Samples::Chunks(chunks) => {
            Parsed::Ranges(chunks.chunks.iter().map(|chunk| chunk.range).collect())
        }
    })
}

/// The program beside this one, else whatever the PATH has.
fn indexer() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|it| Some(it.parent()?.join(INDEXER)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| INDEXER.into())
}
