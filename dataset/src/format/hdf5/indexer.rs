//! Queries `tierfeed-hdf5-indexer` for the positions of the samples of a file: libhdf5 runs in a
//! process of its own, which drops all rights except reading that file, and whose time and answer
//! are bounded here.

use std::{env, io, path::PathBuf, process::Command, time::Duration};

use super::{
    Dataset,
    bounded::{self, Bounds, BoundsError, Ended},
    check_signature, parse,
};
use crate::{
    format::{FormatError, ReadAt},
    source::Opened,
};

const INDEXER: &str = "tierfeed-hdf5-indexer";

/// A layout of ten million chunks has some hundred bytes for each.
const BOUNDS: Bounds = Bounds { time: Duration::from_secs(900), output_bytes: 1 << 30 };

/// The position of the samples of `dataset` in a file.
pub(super) fn read(object: &dyn Opened, dataset: &str) -> Result<Dataset, FormatError> {
    let path = object.path().ok_or_else(|| FormatError::Unsupported {
        what: "HDF5 in a bucket, which libhdf5 cannot read".to_owned(),
        instead: "mount the bucket, or copy the files",
    })?;
    check_signature(object)?;
    let mut command = Command::new(indexer());
    command.arg(path).arg(dataset);
    // libhdf5 then loads no plugin library for a filter that the file names.
    command.env("HDF5_PLUGIN_PRELOAD", "::");
    let ended = bounded::run(&mut command, BOUNDS).map_err(|error| match error {
        BoundsError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            FormatError::NoHdf5Indexer { name: INDEXER }
        }
        BoundsError::Io(error) => FormatError::Read(error),
        BoundsError::Time(_) | BoundsError::Output(_) => FormatError::Unsupported {
            what: format!("{INDEXER} of this file: {error}"),
            instead: "look whether the file is damaged, for example with h5dump",
        },
    })?;
    answered(&ended, object)
}

fn answered(ended: &Ended, object: &dyn ReadAt) -> Result<Dataset, FormatError> {
    if ended.status.success() {
        return parse(&ended.output, object);
    }
    let said = String::from_utf8_lossy(&ended.errors);
    let what = match said.trim() {
        "" => format!("{INDEXER} ended by {}", ended.status),
        said => said.to_owned(),
    };
    Err(FormatError::Unsupported {
        what,
        instead: "a dataset in HDF5 is read by its rows or chunks",
    })
}

/// The program beside this one, else the one in the `PATH`.
fn indexer() -> PathBuf {
    let beside = env::current_exe().ok().and_then(|it| Some(it.parent()?.join(INDEXER)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| INDEXER.into())
}
