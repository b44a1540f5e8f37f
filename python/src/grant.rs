//! Memory of a tier that the agent lends to the workload, in whole chunks.
//!
//! The agent counts the memory as used until it is given back or the connection ends. So each grant has
//! its own connection, and is given back when it is closed and no view of a chunk is left.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use pyo3::{exceptions::PyValueError, prelude::*};
use tierfeed_client::{Loan, Memory};
use tierfeed_core::units::Bytes;
use tierfeed_handoff::{self as handoff, MemoryClient};

use crate::{
    errors,
    view::{Slice, View},
};

/// Pages are touched before memory is granted: about 1 s for 4 GiB on slow memory.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Chunks of memory that the agent lends.
#[pyclass(frozen, module = "tierfeed._native")]
pub(crate) struct Grant {
    chunks: Mutex<Option<Vec<Arc<Memory>>>>,
}

#[pymethods]
impl Grant {
    /// Asks the agent at `socket` for at least `nbytes` bytes.
    #[staticmethod]
    fn allocate(py: Python<'_>, socket: &str, nbytes: u64) -> PyResult<Self> {
        let client = py
            .detach(|| MemoryClient::connect(Path::new(socket), TIMEOUT))
            .map_err(|error| errors::connect(&error))?;
        let grant = py
            .detach(|| client.allocate(Bytes(nbytes), TIMEOUT))
            .map_err(|error| errors::control(&error))?;
        let handoff::Grant { id, chunks } = grant;
        let loan = Arc::new(Loan::new(client, id));
        let chunk = |memory| Arc::new(Memory::lent(memory, &loan));
        Ok(Self { chunks: Mutex::new(Some(chunks.into_iter().map(chunk).collect())) })
    }

    /// One view per chunk.
    fn chunks(&self, py: Python<'_>) -> PyResult<Vec<Py<View>>> {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks =
            chunks.as_ref().ok_or_else(|| PyValueError::new_err("this memory was closed"))?;
        chunks.iter().map(|chunk| view_of(py, chunk)).collect()
    }

    /// Drops the chunks; they go back when the last view of any of them is dropped.
    fn close(&self) {
        let chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not under the lock: unmapping is a system call.
        drop(chunks);
    }
}

fn view_of(py: Python<'_>, chunk: &Arc<Memory>) -> PyResult<Py<View>> {
    let slice = Slice::row(Arc::clone(chunk), 0, chunk.len()).ok_or_else(errors::chunk_outside)?;
    Py::new(py, View::new(slice))
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Grant>()
}
