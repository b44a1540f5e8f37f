//! The index of a dataset for Python: where each sample lies, and its bytes.
//!
//! Samples are read as a training without an agent reads them, with the same checks and the same
//! decoding. Opening and reading takes no thread. Building takes several, so `tierfeed/index.py` leaves it
//! to the `tierfeed` program.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use pyo3::{prelude::*, types::PyBytes};
use tierfeed_core::id::SampleId;
use tierfeed_dataset::{
    format::{Encoding, Order, Stated},
    index, keys,
    read::FileSource,
};

use crate::errors;

/// Files with many samples that stay open between reads.
const FILES_MAX: usize = 64;

/// A dataset index and the files behind it.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Index {
    source: FileSource,
}

/// Where a sample lies.
#[pyclass(frozen, get_all, module = "tierfeed")]
pub(crate) struct Extent {
    /// The file that holds it; in a bucket the key below the source.
    path: PathBuf,
    /// Where it starts in the file, in bytes.
    offset: u64,
    /// The bytes that it takes there.
    stored_len: u64,
    /// The bytes that it has when it is decoded.
    len: u64,
    /// How the bytes are stored: as they are (`plain`), or compressed (`deflate`).
    encoding: &'static str,
}

impl Index {
    fn index(&self) -> &index::Index {
        self.source.index()
    }

    fn known(&self, sample: i64) -> PyResult<SampleId> {
        let samples = self.index().len();
        let known = u32::try_from(sample).ok().filter(|sample| *sample < samples);
        known.map(SampleId).ok_or_else(|| errors::no_sample(sample, samples))
    }
}

#[pymethods]
impl Index {
    /// Reads an index file.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let index = py.detach(move || index::Index::read(&path)).map_err(errors::reconfigure)?;
        Ok(Self { source: FileSource::new(Arc::new(index), FILES_MAX) })
    }

    /// The same index with open files of its own, for a forked child: another thread of the parent may have
    /// held a lock of the files at the fork.
    fn reopened(&self) -> Self {
        Self { source: FileSource::new(Arc::clone(self.source.index()), FILES_MAX) }
    }

    /// Samples in the dataset.
    fn __len__(&self) -> usize {
        self.index().len() as usize
    }

    /// The bytes of a sample, decoded.
    fn size(&self, sample: i64) -> PyResult<u64> {
        Ok(self.index().size(self.known(sample)?).0)
    }

    /// The class of a sample, or -1 where the dataset has none.
    fn label(&self, sample: i64) -> PyResult<i64> {
        Ok(self.index().label(self.known(sample)?).unwrap_or(-1))
    }

    /// Where a sample lies.
    fn extent(&self, sample: i64) -> PyResult<Extent> {
        let extent = self.index().extent(self.known(sample)?);
        Ok(Extent {
            path: extent.path,
            offset: extent.offset,
            stored_len: extent.stored_len,
            len: extent.len,
            encoding: match extent.encoding {
                Encoding::Plain => "plain",
                Encoding::Deflate { .. } => "deflate",
            },
        })
    }

    /// The number of a sample among those of its file, from 0, and how many these are.
    fn place_in_file(&self, sample: i64) -> PyResult<(u32, u32)> {
        Ok(self.index().place_in_object(self.known(sample)?))
    }

    /// The columns that were selected, in this order; `None` if all were.
    #[getter]
    fn selected_columns(&self) -> Option<Vec<String>> {
        match self.index().stated() {
            Some(Stated::Table(table)) if table.order == Order::Selected => {
                Some(table.names().map(str::to_owned).collect())
            }
            _ => None,
        }
    }

    /// The decoded bytes of a sample.
    fn read<'py>(&self, py: Python<'py>, sample: i64) -> PyResult<Bound<'py, PyBytes>> {
        let sample = self.known(sample)?;
        let source = self.index().source();
        if source.contains("://") {
            return Err(errors::in_a_bucket(&source));
        }
        let len = self.index().size(sample);
        let too_long = || errors::too_long(sample, len);
        let len = usize::try_from(len.0).ok().filter(|len| *len < isize::MAX as usize);
        PyBytes::new_with(py, len.ok_or_else(too_long)?, |buffer| {
            py.detach(|| self.source.read_into(sample, buffer)).map_err(|error| {
                let object = self.index().object_name(sample);
                errors::unreadable(
                    py,
                    sample.0,
                    &object,
                    error.fault().name(),
                    error.errno(),
                    error.to_string(),
                )
            })
        })
    }

    /// The classes in the order of their labels, decoded as paths are.
    #[getter]
    fn class_names(&self) -> Vec<OsString> {
        self.index().class_names().to_vec()
    }

    /// Identifies the dataset: the xxh3-64 of its index.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.index().fingerprint()
    }

    /// How samples lie in files, in words.
    #[getter]
    fn format(&self) -> &str {
        self.index().format()
    }

    /// What was indexed: an absolute path or a URL.
    #[getter]
    fn source(&self) -> String {
        self.index().source()
    }
}

#[pymethods]
impl Extent {
    fn __repr__(&self) -> String {
        let Self { path, offset, stored_len, len, encoding } = self;
        let path = path.display();
        format!("Extent({path}, offset={offset}, stored_len={stored_len}, len={len}, {encoding})")
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let keys: Vec<_> = keys::all().map(|key| key.name).collect();
    m.add("DATASET_KEYS", keys)?;
    m.add_class::<Index>()?;
    m.add_class::<Extent>()
}
