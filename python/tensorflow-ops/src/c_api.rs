//! TensorFlow's C API for ops and kernels, as far as it is used here.
//!
//! TensorFlow's headers state the contracts that the SAFETY lists cite:
//! `tensorflow/c/{ops,kernels,tf_tensor,tf_status,tf_tstring}.h`. Its own invariants:
//!
//! 1. An [`Api`] holds addresses of functions that have the declared types in every version since 2.18, in
//!    libraries that are never unloaded: TensorFlow has loaded this one.
//! 2. The context of a kernel is valid until its compute function returns; only [`Context`] holds one.
//! 3. Memory of a [`Memory`] stays mapped at the same address while an `Arc` of it lives.
//!
//! All kernels are synchronous (`docs/decisions.md`).

use std::{
    any::Any,
    ffi::{CStr, CString, c_char, c_int, c_void},
    marker::PhantomData,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr::{self, NonNull},
    slice,
    sync::{Arc, OnceLock},
};

use tierfeed_client::Memory;

/// `TF_UINT8`, `TF_STRING` and `TF_INT64` of `tf_datatype.h`.
const UINT8: c_int = 4;
const STRING: c_int = 7;
const INT64: c_int = 9;

/// The alignment of tensors: with less, TensorFlow copies them or ends the process.
pub(crate) const ALIGN: usize = 64;

/// The length of a `TF_TString`.
const STRING_BYTES: usize = 24;

type Pointer = *mut c_void;
type Deallocate = extern "C" fn(Pointer, usize, Pointer);

/// Declares the functions of the C API with the library that exports each.
macro_rules! api {
    ($($library:literal { $($field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        struct Api {
            $($($field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Api {
            /// Finds every function, or names the one that is missing.
            fn find() -> Result<Self, String> {
                $(let library = Library::loaded($library)?;
                $(let address = library.address($name)?;
                // SAFETY:
                // - Same size: both are addresses of functions.
                // - Valid: the library exports a function of this type by this name (invariant 1).
                let $field = unsafe {
                    mem::transmute::<Pointer, unsafe extern "C" fn($($argument),*) $(-> $result)?>(address)
                };)*)*
                Ok(Self { $($($field,)*)* })
            }
        }
    };
}

api! {
    c"libtensorflow_framework.so.2" {
        new_status = c"TF_NewStatus": fn() -> Pointer;
        delete_status = c"TF_DeleteStatus": fn(Pointer);
        set_status = c"TF_SetStatus": fn(Pointer, c_int, *const c_char);
        get_code = c"TF_GetCode": fn(Pointer) -> c_int;
        message = c"TF_Message": fn(Pointer) -> *const c_char;
        new_op = c"TF_NewOpDefinitionBuilder": fn(*const c_char) -> Pointer;
        add_input = c"TF_OpDefinitionBuilderAddInput": fn(Pointer, *const c_char);
        add_output = c"TF_OpDefinitionBuilderAddOutput": fn(Pointer, *const c_char);
        add_attribute = c"TF_OpDefinitionBuilderAddAttr": fn(Pointer, *const c_char);
        set_shapes = c"TF_OpDefinitionBuilderSetShapeInferenceFunction":
            fn(Pointer, extern "C" fn(Pointer, Pointer));
        register_op = c"TF_RegisterOpDefinition": fn(Pointer, Pointer);
        unknown_shape = c"TF_ShapeInferenceContextSetUnknownShape": fn(Pointer, Pointer);
        new_kernel = c"TF_NewKernelBuilder": fn(
            *const c_char,
            *const c_char,
            extern "C" fn(Pointer) -> Pointer,
            extern "C" fn(Pointer, Pointer),
            extern "C" fn(Pointer)
        ) -> Pointer;
        register_kernel = c"TF_RegisterKernelBuilder": fn(*const c_char, Pointer, Pointer);
        attribute = c"TF_OpKernelConstruction_GetAttrInt64":
            fn(Pointer, *const c_char, *mut i64, Pointer);
        construction_failed = c"TF_OpKernelConstruction_Failure": fn(Pointer, Pointer);
        compute_failed = c"TF_OpKernelContext_Failure": fn(Pointer, Pointer);
        get_input = c"TF_GetInput": fn(Pointer, c_int, *mut Pointer, Pointer);
        set_output = c"TF_SetOutput": fn(Pointer, c_int, Pointer, Pointer);
        allocate_output = c"TF_AllocateOutput":
            fn(Pointer, c_int, c_int, *const i64, c_int, usize, Pointer) -> Pointer;
        new_tensor = c"TF_NewTensor":
            fn(c_int, *const i64, c_int, Pointer, usize, Deallocate, Pointer) -> Pointer;
        delete_tensor = c"TF_DeleteTensor": fn(Pointer);
        tensor_data = c"TF_TensorData": fn(Pointer) -> Pointer;
        tensor_bytes = c"TF_TensorByteSize": fn(Pointer) -> usize;
    }
    c"libtensorflow_cc.so.2" {
        string_copy = c"TF_StringCopy": fn(Pointer, *const c_char, usize);
    }
}

struct Library(Pointer);

impl Library {
    fn loaded(name: &CStr) -> Result<Self, String> {
        // SAFETY:
        // - Valid for reads: `name` is a terminated string.
        // - Effects: with `RTLD_NOLOAD` nothing is loaded, and no initialiser runs.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        if handle.is_null() {
            return Err(format!(
                "{} is not loaded: import tensorflow first",
                name.to_string_lossy()
            ));
        }
        Ok(Self(handle))
    }

    fn address(&self, name: &CStr) -> Result<Pointer, String> {
        // SAFETY: the handle was opened by `dlopen` and is never closed; `name` is a terminated string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            let name = name.to_string_lossy();
            return Err(format!(
                "this TensorFlow has no {name}; versions 2.18 to 2.21 were tested with tierfeed"
            ));
        }
        Ok(address)
    }
}

static API: OnceLock<Result<Api, String>> = OnceLock::new();

pub(crate) fn find() -> Result<(), String> {
    API.get_or_init(Api::find).as_ref().map(drop).map_err(Clone::clone)
}

fn api() -> &'static Api {
    let api = API.get().expect("TensorFlow calls only what was registered by its API");
    api.as_ref().expect("nothing was registered without the API")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// The codes of `tf_status.h` that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Self::new(Code::Internal, format!("a fault of tierfeed: {text}"))
    }
}

/// A `TF_Status`.
struct Status(Pointer);

impl Status {
    fn ok() -> Self {
        // SAFETY: has no preconditions.
        Self(unsafe { (api().new_status)() })
    }

    fn of(failure: &Failure) -> Self {
        let status = Self::ok();
        let message = CString::new(failure.message.replace('\0', "?")).unwrap_or_default();
        // SAFETY: the status is valid until it is dropped; the message is a terminated string, which is
        // copied.
        unsafe { (api().set_status)(status.0, failure.code as c_int, message.as_ptr()) };
        status
    }

    fn check(&self) -> Result<(), Failure> {
        // SAFETY: the status is valid until it is dropped.
        if unsafe { (api().get_code)(self.0) } == 0 {
            return Ok(());
        }
        // SAFETY: as above.
        let message = unsafe { (api().message)(self.0) };
        // SAFETY: a terminated string that lives as long as the status.
        let message = unsafe { CStr::from_ptr(message) };
        Err(Failure::new(Code::Internal, message.to_string_lossy()))
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        // SAFETY: made by `new_status`, and deleted only here.
        unsafe { (api().delete_status)(self.0) };
    }
}

/// A `TF_Tensor`, owned.
struct Tensor(NonNull<c_void>);

impl Tensor {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the tensor is valid until it is dropped.
        let (data, len) = unsafe { ((api().tensor_data)(self.0.as_ptr()), self.len()) };
        if data.is_null() || len == 0 {
            return &[];
        }
        // SAFETY:
        // - Valid for reads and initialised: the producer of an input has written all of its bytes.
        // - Lifetime: the tensor holds the buffer for as long as it is borrowed.
        // - Not written meanwhile: TensorFlow does not write to a buffer that two tensors refer to.
        unsafe { slice::from_raw_parts(data.cast::<u8>(), len) }
    }

    fn len(&self) -> usize {
        // SAFETY: the tensor is valid until it is dropped.
        unsafe { (api().tensor_bytes)(self.0.as_ptr()) }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: owned by this value, and deleted only here.
        unsafe { (api().delete_tensor)(self.0.as_ptr()) };
    }
}

pub(crate) struct Context<'a> {
    raw: Pointer,
    call: PhantomData<&'a ()>,
}

impl Context<'_> {
    fn input(&self, index: c_int) -> Result<Tensor, Failure> {
        let (mut tensor, status) = (ptr::null_mut(), Status::ok());
        // SAFETY: the context is valid (invariant 2); an index that is too high is an error.
        unsafe { (api().get_input)(self.raw, index, &raw mut tensor, status.0) };
        status.check()?;
        NonNull::new(tensor).map(Tensor).ok_or_else(|| internal("an input is missing"))
    }

    pub(crate) fn bytes<T>(
        &self,
        index: c_int,
        use_bytes: impl FnOnce(&[u8]) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        use_bytes(self.input(index)?.bytes())
    }

    pub(crate) fn numbers(&self, index: c_int) -> Result<Vec<i64>, Failure> {
        let input = self.input(index)?;
        let (numbers, _) = input.bytes().as_chunks::<8>();
        Ok(numbers.iter().map(|bytes| i64::from_ne_bytes(*bytes)).collect())
    }

    pub(crate) fn number(&self, index: c_int) -> Result<i64, Failure> {
        let numbers = self.numbers(index)?;
        numbers.first().copied().ok_or_else(|| internal("an input is empty"))
    }

    /// Makes an input an output, without a copy.
    pub(crate) fn forward(&self, input: c_int, output: c_int) -> Result<(), Failure> {
        let tensor = self.input(input)?;
        self.set(output, &tensor)
    }

    fn set(&self, index: c_int, tensor: &Tensor) -> Result<(), Failure> {
        let status = Status::ok();
        // SAFETY: context (invariant 2) and tensor are valid; the output takes a reference of its own.
        unsafe { (api().set_output)(self.raw, index, tensor.0.as_ptr(), status.0) };
        status.check()
    }

    /// A new output, in memory of TensorFlow.
    fn allocate(
        &self,
        index: c_int,
        kind: c_int,
        shape: &[i64],
        len: usize,
    ) -> Result<Tensor, Failure> {
        let (rank, status) = (c_int::try_from(shape.len()).unwrap_or(0), Status::ok());
        // SAFETY: the context is valid (invariant 2), and `shape` has `rank` numbers.
        let tensor = unsafe {
            (api().allocate_output)(self.raw, index, kind, shape.as_ptr(), rank, len, status.0)
        };
        status.check()?;
        NonNull::new(tensor).map(Tensor).ok_or_else(|| internal("an output was not allocated"))
    }

    pub(crate) fn set_numbers(
        &self,
        index: c_int,
        shape: &[i64],
        numbers: &[i64],
    ) -> Result<(), Failure> {
        check_shape(shape, numbers.len())?;
        let len = mem::size_of_val(numbers);
        let tensor = self.allocate(index, INT64, shape, len)?;
        // SAFETY: the tensor is valid.
        let data = unsafe { (api().tensor_data)(tensor.0.as_ptr()) };
        if tensor.len() != len || (data.is_null() && len > 0) {
            return Err(internal("an output has another length"));
        }
        if len > 0 {
            // SAFETY:
            // - Valid for reads: `numbers` has `len` bytes.
            // - Valid for writes: the new tensor has `len` bytes, which only this call sees.
            // - Alignment: bytes have none.
            unsafe { ptr::copy_nonoverlapping(numbers.as_ptr().cast::<u8>(), data.cast(), len) };
        }
        Ok(())
    }

    /// Sets an output to bytes of `memory` from `offset`, in the given shape, without a copy: the tensor
    /// owns a reference of `memory`.
    pub(crate) fn set_memory(
        &self,
        index: c_int,
        shape: &[i64],
        memory: &Arc<Memory>,
        offset: usize,
        len: usize,
    ) -> Result<(), Failure> {
        check_shape(shape, len)?;
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= memory.len());
        let address = memory.base().wrapping_add(offset);
        if !is_inside || !address.addr().is_multiple_of(ALIGN) {
            return Err(internal("a batch is not where a tensor can be"));
        }
        if len == 0 {
            return self.allocate(index, UINT8, shape, 0).map(drop);
        }
        let owner = Arc::into_raw(Arc::clone(memory)).cast_mut().cast::<c_void>();
        let rank = c_int::try_from(shape.len()).unwrap_or(0);
        // SAFETY:
        // - Valid: `len` bytes at `address` lie inside of `memory`, which `owner` keeps mapped (invariant 3)
        //   until `give_back` runs.
        // - Shape: `shape` has `rank` numbers, whose product is `len`.
        // - Alignment: was checked, so nothing is copied.
        // - Thread: `Memory` is `Send + Sync`, so any thread may run `give_back`.
        let tensor = unsafe {
            (api().new_tensor)(UINT8, shape.as_ptr(), rank, address.cast(), len, give_back, owner)
        };
        let tensor = NonNull::new(tensor).ok_or_else(|| internal("TensorFlow refused a batch"))?;
        self.set(index, &Tensor(tensor))
    }

    /// Sets an output to one string for each range of `bytes`, copied.
    pub(crate) fn set_strings(&self, index: c_int, strings: &[&[u8]]) -> Result<(), Failure> {
        let count = strings.len();
        let shape = [i64::try_from(count).unwrap_or(i64::MAX)];
        let tensor = self.allocate(index, STRING, &shape, count * STRING_BYTES)?;
        // SAFETY: the tensor is valid.
        let data = unsafe { (api().tensor_data)(tensor.0.as_ptr()) };
        if tensor.len() != count * STRING_BYTES {
            return Err(internal("strings have another length than in the tested versions"));
        }
        for (at, string) in strings.iter().enumerate() {
            let target = data.wrapping_byte_add(at * STRING_BYTES);
            // SAFETY:
            // - Valid: the tensor has `count` strings, which TensorFlow has initialised.
            // - Valid for reads: `string` has as many bytes as it says; they are copied.
            unsafe { (api().string_copy)(target, string.as_ptr().cast(), string.len()) };
        }
        Ok(())
    }
}

/// The deallocator of tensors over a [`Memory`].
extern "C" fn give_back(_data: Pointer, _len: usize, owner: Pointer) {
    // SAFETY: `owner` came from `Arc::into_raw` in `set_memory`, and TensorFlow runs this once for it.
    let memory = unsafe { Arc::from_raw(owner.cast::<Memory>().cast_const()) };
    // A panic must not leave a function that C++ calls.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(memory)));
}

fn internal(message: &str) -> Failure {
    Failure::new(Code::Internal, message)
}

fn check_shape(shape: &[i64], count: usize) -> Result<(), Failure> {
    let product = shape.iter().try_fold(1_usize, |product, dimension| {
        usize::try_from(*dimension).ok().and_then(|it| product.checked_mul(it))
    });
    if product == Some(count) { Ok(()) } else { Err(internal("an output has another shape")) }
}

/// The attributes of a node, while its kernel is made.
pub(crate) struct Attributes(Pointer);

impl Attributes {
    pub(crate) fn number(&self, name: &CStr) -> Result<i64, Failure> {
        let (mut value, status) = (0, Status::ok());
        // SAFETY: TensorFlow passed the construction to `create`, which is still running.
        unsafe { (api().attribute)(self.0, name.as_ptr(), &raw mut value, status.0) };
        status.check().map(|()| value)
    }
}

/// An op with one implementation, on the CPU.
pub(crate) trait Kernel: Sized + Send + Sync + 'static {
    /// The name of the op, in camel case.
    const NAME: &'static CStr;
    /// Inputs, outputs and attributes are `name: type`.
    const INPUTS: &'static [&'static CStr];
    const OUTPUTS: &'static [&'static CStr];
    const ATTRIBUTES: &'static [&'static CStr];

    fn create(attributes: &Attributes) -> Result<Self, Failure>;

    fn compute(&self, context: &Context<'_>) -> Result<(), Failure>;
}

extern "C" fn create<K: Kernel>(construction: Pointer) -> Pointer {
    let made = catch_unwind(AssertUnwindSafe(|| K::create(&Attributes(construction))));
    match made.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic))) {
        Ok(kernel) => Box::into_raw(Box::new(kernel)).cast(),
        Err(failure) => {
            let status = Status::of(&failure);
            // SAFETY: TensorFlow passed the construction to this call.
            unsafe { (api().construction_failed)(construction, status.0) };
            ptr::null_mut()
        }
    }
}

extern "C" fn delete<K: Kernel>(kernel: Pointer) {
    if !kernel.is_null() {
        // SAFETY: `create` made it for this op, and TensorFlow deletes it once, after the last call.
        let kernel = unsafe { Box::from_raw(kernel.cast::<K>()) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(kernel)));
    }
}

extern "C" fn compute<K: Kernel>(kernel: Pointer, context: Pointer) {
    // SAFETY: `create` made it for this op, and TensorFlow deletes it after the last call.
    let Some(kernel) = (unsafe { kernel.cast::<K>().as_ref() }) else { return };
    let of_call = Context { raw: context, call: PhantomData };
    let outcome = catch_unwind(AssertUnwindSafe(|| kernel.compute(&of_call)));
    if let Err(failure) = outcome.unwrap_or_else(|panic| Err(Failure::of_panic(&*panic))) {
        let status = Status::of(&failure);
        // SAFETY: the context is valid until this function returns (invariant 2).
        unsafe { (api().compute_failed)(context, status.0) };
    }
}

/// Outputs of every shape; `tierfeed/tensorflow/` sets the static ones.
extern "C" fn any_shapes(context: Pointer, status: Pointer) {
    // SAFETY: TensorFlow passed both to this call.
    unsafe { (api().unknown_shape)(context, status) };
}

pub(crate) fn register<K: Kernel>() -> Result<(), Failure> {
    let (api, name, status) = (api(), K::NAME.as_ptr(), Status::ok());
    // SAFETY: `name` is a terminated string.
    let op = unsafe { (api.new_op)(name) };
    let lists = [(api.add_input, K::INPUTS), (api.add_output, K::OUTPUTS)];
    for (add, entries) in lists.into_iter().chain([(api.add_attribute, K::ATTRIBUTES)]) {
        for entry in entries {
            // SAFETY: the builder is valid until it is registered; `entry` is a terminated string.
            unsafe { add(op, entry.as_ptr()) };
        }
    }
    // Stateless, so that iterators can be checkpointed: `TF_OpDefinitionBuilderSetIsStateful` marks an op
    // as stateful for both values of its argument, so it is not called.
    // SAFETY: the builder is valid until it is registered.
    unsafe { (api.set_shapes)(op, any_shapes) };
    // SAFETY: takes the builder, which is not used afterwards.
    unsafe { (api.register_op)(op, status.0) };
    status.check()?;
    // SAFETY: both are terminated strings; the functions are those of one kind of kernel.
    let kernel =
        unsafe { (api.new_kernel)(name, c"CPU".as_ptr(), create::<K>, compute::<K>, delete::<K>) };
    // SAFETY: takes the builder, which is not used afterwards; `name` is a terminated string.
    unsafe { (api.register_kernel)(name, kernel, status.0) };
    status.check()
}
