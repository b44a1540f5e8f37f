//! A batch as Python sees it: a sequence of samples over memory that it keeps, until released.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
};
use tierfeed_client::{Memory, PrivatePages, to_usize};
use tierfeed_core::{
    batch::{SAMPLE_ALIGN, Stored},
    id::{BatchId, TierId},
    session::Wait,
    units::{Bytes, Nanoseconds},
};
use tierfeed_handoff::Row;
use tierfeed_numa_memory::ReadView;

use crate::{
    errors,
    sample::Sample,
    view::{InPlace, Slice, View},
};

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
    skip_reasons: BTreeMap<u32, String>,
    origin: Origin,
    /// `None` once the batch was released.
    memory: Mutex<Option<Arc<Memory>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Present {
    sample: u32,
    label: i64,
    /// From the start of the batch; for a sample in place, from the start of a copy of the batch.
    offset: usize,
    len: usize,
    in_place: Option<InPlace>,
    stored: Option<Stored>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Agent,
    /// This process read it from the cold store.
    Direct,
}

impl Batch {
    pub(crate) fn new(
        id: BatchId,
        rows: impl IntoIterator<Item = Row>,
        origin: Origin,
        memory: Memory,
    ) -> Self {
        let (mut present, mut skipped) = (Vec::new(), Vec::new());
        let align = to_usize(Bytes(SAMPLE_ALIGN));
        let mut end = memory.len().next_multiple_of(align);
        for row in rows {
            let Some(len) = row.len.map(to_usize) else {
                skipped.push(row.sample.0);
                continue;
            };
            let offset = to_usize(row.offset);
            let in_place = row.shared_tier.map(|tier| {
                let offset_in_copy = end;
                end = end.saturating_add(len).next_multiple_of(align);
                InPlace { tier, offset, len, offset_in_copy }
            });
            present.push(Present {
                sample: row.sample.0,
                stored: row.stored,
                label: row.label.unwrap_or(UNLABELLED),
                offset: in_place.map_or(offset, |it| it.offset_in_copy),
                len,
                in_place,
            });
        }
        let memory = Mutex::new(Some(Arc::new(memory)));
        Self { id, rows: present, skipped, skip_reasons: BTreeMap::new(), origin, memory }
    }

    pub(crate) fn with_skip_reasons(self, skip_reasons: BTreeMap<u32, String>) -> Self {
        Self { skip_reasons, ..self }
    }

    /// Samples that are there, samples that are missing, and bytes.
    pub(crate) fn counts(&self) -> (u32, u32, Bytes) {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        (count(self.rows.len()), count(self.skipped.len()), Bytes(self.nbytes() as u64))
    }

    /// An error once the batch was released.
    fn shared_memory(&self) -> PyResult<Arc<Memory>> {
        // A poisoned lock guards a plain value, which is whole at any time.
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(Arc::clone).ok_or_else(|| {
            PyValueError::new_err("this batch was released; take views before, they outlive it")
        })
    }

    /// The samples in place; none once the batch was copied.
    fn in_place<'a>(&'a self, memory: &'a Memory) -> impl Iterator<Item = InPlace> + 'a {
        let in_place = self.rows.iter().filter_map(|row| row.in_place);
        in_place.filter(|sample| shared_tier(memory, sample.tier).is_some())
    }

    fn slice(&self, memory: Arc<Memory>, row: &Present) -> PyResult<Slice> {
        let in_tier =
            row.in_place.and_then(|it| Some((shared_tier(&memory, it.tier).cloned()?, it)));
        let slice = match in_tier {
            Some((tier, sample)) => Slice::in_place(memory, tier, sample),
            None => Slice::row(memory, row.offset, row.len),
        };
        slice.ok_or_else(|| errors::outside(self.id, row.sample))
    }

    /// A copy of all samples, which have one length, as rows in pages of this process, and the distance
    /// between rows.
    fn gathered(&self, memory: &Arc<Memory>) -> PyResult<(Memory, usize)> {
        let first = self.rows[0];
        let align = to_usize(Bytes(SAMPLE_ALIGN));
        let pitch = first.len.max(1).next_multiple_of(align);
        let len = Bytes(pitch.saturating_mul(self.rows.len()) as u64);
        let mut pages = PrivatePages::map(len).map_err(|error| errors::no_memory(len, &error))?;
        for (at, row) in self.rows.iter().enumerate() {
            let slice = self.slice(Arc::clone(memory), row)?;
            let target = pages.range(Bytes((at * pitch) as u64), Bytes(row.len as u64));
            slice.copy_to(target).map_err(|error| errors::no_memory(len, &error))?;
        }
        Ok((pages.into_memory(), pitch))
    }

    /// Whether there are samples, and all of one length.
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

/// The memory of a tier that the agent shares, where samples of a leased batch may lie.
fn shared_tier(memory: &Memory, tier: TierId) -> Option<&Arc<ReadView>> {
    memory.lease()?.shared_tier(tier)
}

/// A copy in pages of this process, with the samples in place behind the others, each at its `offset_in_copy`.
/// `None` for memory that is not leased.
fn copied(memory: &Memory, in_place: &[InPlace]) -> io::Result<Option<Memory>> {
    let Some(lease) = memory.lease() else { return Ok(None) };
    let len = Bytes(memory.len() as u64);
    let ends = in_place.iter().map(|it| it.offset_in_copy.saturating_add(it.len) as u64);
    let mut pages = PrivatePages::map(Bytes(ends.fold(len.0, u64::max)))?;
    memory.read(0, pages.range(Bytes(0), len))?;
    for it in in_place {
        let target = pages.range(Bytes(it.offset_in_copy as u64), Bytes(it.len as u64));
        let tier = lease.shared_tier(it.tier).ok_or(io::ErrorKind::NotFound)?;
        tier.read(Bytes(it.offset as u64), target).map_err(io::Error::other)?;
    }
    lease.note_copied();
    Ok(Some(pages.into_memory()))
}

#[pymethods]
impl Batch {
    /// Epoch and step of the batch.
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

    /// The rank that reads it.
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

    /// Why they are missing, if this process read the batch itself.
    #[getter]
    fn skip_reasons(&self) -> BTreeMap<u32, String> {
        self.skip_reasons.clone()
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
        self.memory.lock().unwrap_or_else(PoisonError::into_inner).is_none()
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
        let memory = self.shared_memory()?;
        let slice = self.slice(Arc::clone(&memory), row)?;
        let stored = row.stored.map(|stored| {
            let (offset, len) = (to_usize(stored.offset), to_usize(stored.len));
            Slice::row(memory, offset, len).ok_or_else(|| errors::outside(self.id, row.sample))
        });
        Py::new(py, Sample::new(slice, row.sample, row.label, stored.transpose()?))
    }

    /// All samples as the rows of one 2-d view, if they have one length. Where some of them lie in memory of
    /// a tier, the rows are copied.
    fn array(&self, py: Python<'_>) -> PyResult<View> {
        let memory = self.shared_memory()?;
        if self.is_even() && self.in_place(&memory).next().is_some() {
            let first = self.rows[0];
            let (gathered, pitch) = py.detach(|| self.gathered(&memory))?;
            let rows = Slice::rows(Arc::new(gathered), 0, self.rows.len(), first.len, pitch);
            return rows.map(View::new).ok_or_else(|| errors::outside(self.id, first.sample));
        }
        let pitch = self.pitch().ok_or_else(|| {
            PyValueError::new_err(
                "array() needs samples of one length, and none skipped between them",
            )
        })?;
        let first = self.rows[0];
        Slice::rows(memory, first.offset, self.rows.len(), first.len, pitch)
            .map(View::new)
            .ok_or_else(|| errors::outside(self.id, first.sample))
    }

    /// Tells the agent that training takes the batch, and from when until when it waited for it, as
    /// `time.monotonic_ns()` says. Returns how many samples are missing.
    fn delivered(&self, since_ns: u64, until_ns: u64) -> PyResult<usize> {
        let wait = Wait { since: Nanoseconds(since_ns), until: Nanoseconds(until_ns) };
        if let Some(lease) = self.shared_memory()?.lease() {
            lease.deliver(wait);
        }
        Ok(self.skipped.len())
    }

    /// Moves the batch from the agent's staging memory into pages of this process, so that it takes no
    /// room there. Views that were made before stay where they are, and keep that room. False if it lies
    /// in pages of this process already.
    fn detach(&self, py: Python<'_>) -> PyResult<bool> {
        let memory = self.shared_memory()?;
        let in_place: Vec<_> = self.in_place(&memory).collect();
        let Some(copy) = py.detach(|| copied(&memory, &in_place))? else { return Ok(false) };
        let mut place = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let before = place.replace(Arc::new(copy));
        // Not under the lock: giving memory back is a system call.
        drop(place);
        drop((before, memory));
        Ok(true)
    }

    /// The address and length of its memory; `None` once it was released.
    #[getter]
    fn memory(&self) -> Option<(usize, usize)> {
        let memory = self.shared_memory().ok()?;
        Some((memory.base().addr(), memory.len()))
    }

    /// Drops the memory. It goes back as soon as no view of it is left.
    fn release(&self) {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Not under the lock: giving memory back is a system call.
        drop(memory);
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

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Batch>()
}
