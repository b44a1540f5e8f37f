//! Bytes of a batch, exported to Python as a buffer and as a DLPack tensor.
//!
//! The only file of this crate with unsafe code. Its invariants, which the SAFETY lists cite:
//!
//! 1. A slice lies inside its [`Memory`], or inside a shared tier that its `Memory` keeps mapped:
//!    [`Slice::row`], [`Slice::rows`] and [`Slice::in_place`] check it.
//! 2. That memory stays mapped, at the same address, for as long as an `Arc` of the [`Memory`] lives.
//! 3. A slice never changes after it was made, so pointers to its shape live as long as it does.
//! 4. A slice in place is never exported as writable: a shared tier is mapped for reading.

use std::{
    ffi::{c_int, c_void},
    io, ptr,
    sync::Arc,
};

use dlpark::{
    DlpackFlags, Managed, ManagedTensorBase,
    ffi::{DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned},
    metadata::{Copied, Fixed},
    python::{DlpackExporter, ExportRequest, export_dlpack},
};
use pyo3::{exceptions::PyBufferError, ffi, prelude::*, sync::PyOnceLock};

use tierfeed_client::{Memory, PrivatePages, to_usize};
use tierfeed_core::{id::TierId, units::Bytes};
use tierfeed_numa_memory::ReadView;

use crate::errors;

/// Bytes of one batch, as one row or as several of equal length at equal distance.
///
/// Memory, buffer and tensors of it are writable and shared: writing to one changes all. A sample that
/// lies in memory of a tier is read-only, and a tensor of it is a copy.
#[pyclass(frozen, subclass, weakref, module = "tierfeed")]
pub(crate) struct View {
    slice: Slice,
}

/// A sample that is read in place: it lies in memory of a tier that the agent shares, not in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InPlace {
    pub(crate) tier: TierId,
    /// From the start of the tier's shared memory.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Where it goes if the batch is copied, from the start of the copy.
    pub(crate) offset_in_copy: usize,
}

/// One row of bytes, or several of equal length at equal distance, and the memory that they lie in.
#[derive(Clone)]
pub(crate) struct Slice {
    memory: Arc<Memory>,
    /// The tier that a sample in place lies in; `None` if it lies in `memory`.
    shared_tier: Option<Arc<ReadView>>,
    offset: usize,
    ndim: usize,
    shape: [isize; 2],
    strides: [isize; 2],
}

impl Slice {
    /// `len` bytes from `offset`, or `None` if they are not all inside.
    pub(crate) fn row(memory: Arc<Memory>, offset: usize, len: usize) -> Option<Self> {
        let shape = [isize::try_from(len).ok()?, 1];
        (offset.checked_add(len)? <= memory.len()).then_some(Self {
            memory,
            shared_tier: None,
            offset,
            ndim: 1,
            shape,
            strides: [1, 1],
        })
    }

    /// `count` rows of `len` bytes, `pitch` bytes from one to the next; `None` if they are not all inside.
    pub(crate) fn rows(
        memory: Arc<Memory>,
        offset: usize,
        count: usize,
        len: usize,
        pitch: usize,
    ) -> Option<Self> {
        let span = if count == 0 { 0 } else { pitch.checked_mul(count - 1)?.checked_add(len)? };
        let shape = [isize::try_from(count).ok()?, isize::try_from(len).ok()?];
        let strides = [isize::try_from(pitch).ok()?, 1];
        let is_inside = pitch >= len && offset.checked_add(span)? <= memory.len();
        is_inside.then_some(Self { memory, shared_tier: None, offset, ndim: 2, shape, strides })
    }

    /// A sample in a shared tier that `memory` keeps mapped, or `None` if it is not all inside.
    pub(crate) fn in_place(
        memory: Arc<Memory>,
        tier: Arc<ReadView>,
        sample: InPlace,
    ) -> Option<Self> {
        let InPlace { offset, len, .. } = sample;
        let is_inside = offset.checked_add(len)? <= to_usize(tier.len());
        let shape = [isize::try_from(len).ok()?, 1];
        is_inside.then_some(Self {
            memory,
            shared_tier: Some(tier),
            offset,
            ndim: 1,
            shape,
            strides: [1, 1],
        })
    }

    /// Where the first byte lies; it must not be written if [`Self::is_read_only`].
    fn address(&self) -> *mut u8 {
        let base = match &self.shared_tier {
            None => self.memory.base(),
            Some(tier) => {
                let start = tier.as_ptr_range(Bytes(0), tier.len());
                start.expect("a mapping contains itself").cast_mut()
            }
        };
        base.wrapping_add(self.offset)
    }

    fn is_read_only(&self) -> bool {
        self.shared_tier.is_some()
    }

    /// Copies the first bytes, until `target` is full.
    pub(crate) fn copy_to(&self, target: &mut [u8]) -> io::Result<()> {
        match &self.shared_tier {
            Some(tier) => tier.read(Bytes(self.offset as u64), target).map_err(io::Error::other),
            None => self.memory.read(self.offset, target),
        }
    }

    /// A copy of one row in pages of this process, which may be written.
    fn copied(&self) -> PyResult<Self> {
        let len = usize::try_from(self.shape[0]).unwrap_or(0);
        let bytes = Bytes(len as u64);
        let failed = |error: io::Error| errors::no_memory(bytes, &error);
        let mut pages = PrivatePages::map(bytes).map_err(failed)?;
        self.copy_to(pages.range(Bytes(0), bytes)).map_err(failed)?;
        let copy = Self::row(Arc::new(pages.into_memory()), 0, len);
        copy.ok_or_else(|| PyBufferError::new_err("a copy holds what was copied"))
    }

    fn nbytes(&self) -> isize {
        if self.ndim == 1 { self.shape[0] } else { self.shape[0] * self.shape[1] }
    }

    fn is_contiguous(&self) -> bool {
        self.ndim == 1 || self.strides[0] == self.shape[1] || self.shape[0] <= 1
    }

    /// A new DLPack header over these bytes, which keeps their memory mapped.
    fn tensor<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        if self.ndim == 1 {
            self.tensor_of(Fixed::new([self.shape[0]], [self.strides[0]]))
        } else {
            self.tensor_of(Fixed::new(self.shape, self.strides))
        }
    }

    fn tensor_of<M: ManagedTensorBase, const N: usize>(
        &self,
        metadata: Fixed<N, Copied<[isize; N]>, Copied<[isize; N]>>,
    ) -> PyResult<Managed<M>> {
        let mut header = metadata
            .prepare_as::<M>()
            .map_err(|error| PyBufferError::new_err(error.to_string()))?
            .initialize(Arc::clone(&self.memory));
        header.set_data(self.address().cast()).set_dtype(DLDataType::U8).set_device(DLDevice::CPU);
        // SAFETY:
        // - Data: invariant 1 places every addressed byte in `memory`, and the header owns an `Arc` of it, so
        //   invariant 2 keeps it mapped until the consumer calls the deleter.
        // - Metadata: `Fixed::new` copied shape and strides into the header's own allocation.
        // - Flags: none are set; the memory is writable and is not a copy.
        // - Thread: `Memory` is `Send + Sync` and its drop touches no Python object, so the deleter may
        //   run on any thread, attached to the interpreter or not.
        Ok(unsafe { header.finish() })
    }
}

impl DlpackExporter for Slice {
    fn device(&self) -> DLDevice {
        DLDevice::CPU
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _py: Python<'_>, _request: &ExportRequest<'_>) -> PyResult<()> {
        Ok(())
    }

    fn export_legacy(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.tensor()
    }

    fn export_versioned(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.tensor()
    }
}

impl View {
    pub(crate) fn new(slice: Slice) -> Self {
        Self { slice }
    }
}

#[pymethods]
impl View {
    /// Length along each dimension.
    #[getter]
    fn shape(&self) -> Vec<isize> {
        self.slice.shape[..self.slice.ndim].to_vec()
    }

    /// Bytes in all rows together, without what lies between them.
    #[getter]
    fn nbytes(&self) -> isize {
        self.slice.nbytes()
    }

    /// Whether it is a sample in place: memory of a tier is mapped for reading.
    #[getter]
    fn readonly(&self) -> bool {
        self.slice.is_read_only()
    }

    /// The address of its first byte.
    #[getter(address)]
    fn address_of(&self) -> usize {
        self.slice.address().addr()
    }

    fn __len__(&self) -> usize {
        self.slice.shape[0].unsigned_abs()
    }

    /// A NumPy array of uint8 over the same bytes; it keeps the batch alive.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        // Looked up once: a lookup touches more memory than the hand-off of a batch.
        static NUMPY: PyOnceLock<[Py<PyAny>; 3]> = PyOnceLock::new();
        let py = slf.py();
        let [array_type, uint8, asarray] = NUMPY.get_or_try_init(py, || {
            let numpy = py.import("numpy")?;
            let uint8 = numpy.getattr("dtype")?.call1(("uint8",))?;
            let [array_type, asarray] = ["ndarray", "asarray"].map(|name| numpy.getattr(name));
            Ok::<_, PyErr>([array_type?.unbind(), uint8.unbind(), asarray?.unbind()])
        })?;
        // The constructor does less than `asarray`, but takes no rows with gaps between them.
        match &slf.get().slice {
            slice if !slice.is_contiguous() => asarray.bind(py).call1((slf,)),
            Slice { ndim: 1, shape, .. } => array_type.bind(py).call1(((shape[0],), uint8, slf)),
            Slice { shape: [rows, len], .. } => {
                array_type.bind(py).call1(((*rows, *len), uint8, slf))
            }
        }
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        if self.slice.is_read_only() {
            if copy == Some(false) {
                return Err(PyBufferError::new_err(
                    "this sample lies in memory that is read-only here; a tensor of it is a copy",
                ));
            }
            let request = ExportRequest::parse(stream, max_version, dl_device, None)?;
            return export_dlpack(&self.slice.copied()?, py, request);
        }
        let request = ExportRequest::parse(stream, max_version, dl_device, copy)?;
        export_dlpack(&self.slice, py, request)
    }

    #[expect(clippy::unused_self, reason = "the DLPack protocol asks the object")]
    fn __dlpack_device__(&self) -> (u32, i32) {
        (DLDevice::CPU.device_type.0, DLDevice::CPU.device_id)
    }

    /// Fills `view` for a consumer of the buffer protocol.
    ///
    /// # Safety
    ///
    /// `view` is null or points to a `Py_buffer` that the interpreter lets this call fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let slice = &slf.get().slice;
        let wants = |flag: c_int| flags & flag == flag;
        let is_row_major = wants(ffi::PyBUF_C_CONTIGUOUS) || wants(ffi::PyBUF_ANY_CONTIGUOUS);
        if !slice.is_contiguous() && (is_row_major || !wants(ffi::PyBUF_STRIDES)) {
            return Err(PyBufferError::new_err("the rows are not contiguous; ask for strides"));
        }
        if slice.ndim == 2 && wants(ffi::PyBUF_F_CONTIGUOUS) {
            return Err(PyBufferError::new_err("the rows are not in Fortran order"));
        }
        if slice.is_read_only() && wants(ffi::PyBUF_WRITABLE) {
            return Err(PyBufferError::new_err(
                "this sample lies in memory that is read-only here",
            ));
        }
        // SAFETY:
        // - Valid for writes: the caller passes null or a `Py_buffer` to fill, and null is refused.
        // - Exclusive: the interpreter gives it to this call alone until it returns.
        let Some(view) = (unsafe { view.as_mut() }) else {
            return Err(PyBufferError::new_err("the consumer passed no Py_buffer"));
        };
        let shape = if wants(ffi::PyBUF_ND) { slice.shape.as_ptr() } else { ptr::null() };
        let strides = if wants(ffi::PyBUF_STRIDES) { slice.strides.as_ptr() } else { ptr::null() };
        let format = if wants(ffi::PyBUF_FORMAT) { c"B".as_ptr() } else { ptr::null() };
        // The pointers stay valid while `obj` lives (invariants 1 to 3); the consumer holds it until
        // it releases the view, and reads shape, strides and format without writing to them.
        view.buf = slice.address().cast::<c_void>();
        view.len = slice.nbytes();
        view.readonly = c_int::from(slice.is_read_only());
        view.itemsize = 1;
        view.format = format.cast_mut();
        view.ndim = if slice.ndim == 2 { 2 } else { 1 };
        view.shape = shape.cast_mut();
        view.strides = strides.cast_mut();
        view.suboffsets = ptr::null_mut();
        view.internal = ptr::null_mut();
        view.obj = slf.into_ptr();
        Ok(())
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<View>()
}
