//! A batch as Python sees it: a sequence of samples over memory that it keeps, until released.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::{
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
};
use tierfeed_core::{
    batch::SAMPLE_ALIGN,
    id::{BatchId, TierId},
    session::Wait,
    units::{Bytes, Nanoseconds},
};

use crate::{
    errors,
    held::{Blank, Held, Shown, to_usize},
    sample::Sample,
    view::{View, Window},
};

/// The label of a sample without one.
const UNLABELLED: i64 = -1;

/// One rank's samples of one step.
///
/// The memory goes back when this object is released or gone **and** the last view, array or tensor
/// made of it is gone: what Python can still see never changes under it.
#[pyclass(frozen, sequence, weakref, module = "tierfeed")]
pub(crate) struct Batch {
    id: BatchId,
    rows: Vec<Present>,
    skipped: Vec<u32>,
    origin: Origin,
    held: Mutex<Option<Arc<Held>>>,
}

/// One sample of the order, there or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) sample: u32,
    pub(crate) label: Option<i64>,
    /// From the start of the batch, or of the shelf.
    pub(crate) offset: Bytes,
    /// `None` if it could not be read.
    pub(crate) len: Option<Bytes>,
    /// The tier on whose shelf it lies, if it was not copied into the batch.
    pub(crate) shelf: Option<TierId>,
}

/// One sample that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Present {
    sample: u32,
    label: i64,
    /// From the start of the batch. One that is shown lies there once the batch was copied.
    offset: usize,
    len: usize,
    shown: Option<Shown>,
}

/// Who assembled a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The agent, in its staging memory.
    Agent,
    /// This process, from the cold store.
    Direct,
}

impl Batch {
    pub(crate) fn new(
        id: BatchId,
        rows: impl IntoIterator<Item = Row>,
        origin: Origin,
        held: Held,
    ) -> Self {
        let (mut present, mut skipped) = (Vec::new(), Vec::new());
        let align = to_usize(Bytes(SAMPLE_ALIGN));
        let mut end = held.len().next_multiple_of(align);
        for row in rows {
            let Some(len) = row.len.map(to_usize) else {
                skipped.push(row.sample);
                continue;
            };
            let at = to_usize(row.offset);
            let shown = row.shelf.map(|tier| {
                let own = end;
                end = end.saturating_add(len).next_multiple_of(align);
                Shown { tier, at, len, own }
            });
            present.push(Present {
                sample: row.sample,
                label: row.label.unwrap_or(UNLABELLED),
                offset: shown.map_or(at, |shown| shown.own),
                len,
                shown,
            });
        }
        Self { id, rows: present, skipped, origin, held: Mutex::new(Some(Arc::new(held))) }
    }

    fn held(&self) -> PyResult<Arc<Held>> {
        // A poisoned lock guards a plain value, which is whole at any time.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(Arc::clone).ok_or_else(|| {
            PyValueError::new_err("this batch was released; take views before, they outlive it")
        })
    }

    /// The samples that lie on shelves, if the batch is still the agent's.
    fn shown<'a>(&'a self, held: &'a Held) -> impl Iterator<Item = Shown> + 'a {
        let shown = self.rows.iter().filter_map(|row| row.shown);
        shown.filter(|shown| held.shelf(shown.tier).is_some())
    }

    /// One sample, where it lies.
    fn window(&self, held: Arc<Held>, row: &Present) -> PyResult<Window> {
        let elsewhere = row.shown.and_then(|shown| Some((held.shelf(shown.tier).cloned()?, shown)));
        let window = match elsewhere {
            Some((memory, shown)) => Window::on_shelf(held, memory, shown),
            None => Window::line(held, row.offset, row.len),
        };
        window.ok_or_else(|| errors::outside(self.id, row.sample))
    }

    /// All samples, which have one length, as rows in pages of this process.
    fn gathered(&self, held: &Arc<Held>) -> PyResult<(Held, usize)> {
        let first = self.rows[0];
        let align = to_usize(Bytes(SAMPLE_ALIGN));
        let pitch = first.len.max(1).next_multiple_of(align);
        let len = Bytes(pitch.saturating_mul(self.rows.len()) as u64);
        let mut blank = Blank::map(len).map_err(|error| errors::no_memory(len, &error))?;
        for (at, row) in self.rows.iter().enumerate() {
            let window = self.window(Arc::clone(held), row)?;
            let place = blank.place(Bytes((at * pitch) as u64), Bytes(row.len as u64));
            window.copy_to(place).map_err(|error| errors::no_memory(len, &error))?;
        }
        Ok((blank.into_held(), pitch))
    }

    /// Whether all samples have one length.
    fn is_even(&self) -> bool {
        self.rows.windows(2).all(|pair| pair[1].len == pair[0].len) && !self.rows.is_empty()
    }

    /// The distance between rows, if all have one length and one distance.
    fn pitch(&self) -> Option<usize> {
        let first = self.rows.first()?;
        let pitch = match self.rows.get(1) {
            Some(second) => second.offset.checked_sub(first.offset)?,
            None => first.len.next_multiple_of(to_usize(Bytes(SAMPLE_ALIGN))),
        };
        let is_even = self.rows.windows(2).all(|pair| {
            pair[1].len == first.len && pair[1].offset.checked_sub(pair[0].offset) == Some(pitch)
        });
        is_even.then_some(pitch)
    }
}

#[pymethods]
impl Batch {
    /// Epoch and step.
    #[getter]
    fn place(&self) -> (u32, u32) {
        (self.id.epoch.0, self.id.step.0)
    }

    /// The pass over the dataset.
    #[getter]
    fn epoch(&self) -> u32 {
        self.id.epoch.0
    }

    /// The position in the pass.
    #[getter]
    fn step(&self) -> u32 {
        self.id.step.0
    }

    /// The process that reads it.
    #[getter]
    fn rank(&self) -> u32 {
        self.id.rank.0
    }

    /// The samples by their number in the index, in reading order.
    #[getter]
    fn samples(&self) -> Vec<u32> {
        self.rows.iter().map(|row| row.sample).collect()
    }

    /// The class of each sample; -1 where the dataset has none.
    #[getter]
    fn labels(&self) -> Vec<i64> {
        self.rows.iter().map(|row| row.label).collect()
    }

    /// Samples that belong here but could not be read (`on_error: skip`).
    #[getter]
    fn skipped(&self) -> Vec<u32> {
        self.skipped.clone()
    }

    /// `"agent"` if it was staged, `"direct"` if this process read it itself.
    #[getter]
    fn origin(&self) -> &'static str {
        match self.origin {
            Origin::Agent => "agent",
            Origin::Direct => "direct",
        }
    }

    /// Bytes of all samples together.
    #[getter]
    fn nbytes(&self) -> usize {
        self.rows.iter().map(|row| row.len).sum()
    }

    /// Whether [`Self::release`] was called.
    #[getter]
    fn released(&self) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<Py<Sample>> {
        let count = self.rows.len();
        let place =
            if index < 0 { count.checked_add_signed(index) } else { Some(index.unsigned_abs()) };
        let row = place.and_then(|place| self.rows.get(place)).ok_or_else(|| {
            PyIndexError::new_err(format!("sample {index} of a batch of {count}"))
        })?;
        let window = self.window(self.held()?, row)?;
        Py::new(py, Sample::new(window, row.sample, row.label))
    }

    /// All samples as the rows of one 2-d view, if they have one length. Where some of them lie in memory of
    /// a tier, the rows are copied.
    fn array(&self, py: Python<'_>) -> PyResult<View> {
        let held = self.held()?;
        if self.is_even() && self.shown(&held).next().is_some() {
            let first = self.rows[0];
            let (gathered, pitch) = py.detach(|| self.gathered(&held))?;
            let grid = Window::grid(Arc::new(gathered), 0, self.rows.len(), first.len, pitch);
            return grid.map(View::new).ok_or_else(|| errors::outside(self.id, first.sample));
        }
        let pitch = self.pitch().ok_or_else(|| {
            PyValueError::new_err(
                "array() needs samples of one length, and none skipped between them",
            )
        })?;
        let first = self.rows[0];
        Window::grid(held, first.offset, self.rows.len(), first.len, pitch)
            .map(View::new)
            .ok_or_else(|| errors::outside(self.id, first.sample))
    }

    /// Tells the agent that training takes the batch, and from when until when it waited for it, as
    /// `time.monotonic_ns()` says. Returns how many samples are missing.
    fn delivered(&self, since_ns: u64, until_ns: u64) -> PyResult<usize> {
        let wait = Wait { since: Nanoseconds(since_ns), until: Nanoseconds(until_ns) };
        self.held()?.deliver(wait);
        Ok(self.skipped.len())
    }

    /// Moves the batch from the agent's staging memory into pages of this process, so that it takes no
    /// room there. Views that were made before stay where they are, and keep that room. False if it lies
    /// in pages of this process already.
    fn detach(&self, py: Python<'_>) -> PyResult<bool> {
        let held = self.held()?;
        let shown: Vec<_> = self.shown(&held).collect();
        let Some(copy) = py.detach(|| held.copied(&shown))? else { return Ok(false) };
        let mut place = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let before = place.replace(Arc::new(copy));
        // Not under the lock: giving memory back is a system call.
        drop(place);
        drop((before, held));
        Ok(true)
    }

    /// The address and length of its memory; `None` once it was released.
    #[getter]
    fn memory(&self) -> Option<(usize, usize)> {
        let held = self.held().ok()?;
        Some((held.base().addr(), held.len()))
    }

    /// Lets go of the memory. It goes back as soon as no view of it is left.
    fn release(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not under the lock: giving memory back is a system call.
        drop(held);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.release();
    }

    fn __repr__(&self) -> String {
        let BatchId { epoch, step, rank } = self.id;
        format!(
            "Batch(epoch={}, step={}, rank={}, samples={}, nbytes={}, origin={:?})",
            epoch.0,
            step.0,
            rank.0,
            self.rows.len(),
            self.nbytes(),
            self.origin()
        )
    }
}

/// Adds the class to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Batch>()
}
