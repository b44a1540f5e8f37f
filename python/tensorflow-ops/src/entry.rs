//! The code that runs when this library is loaded, and the functions that Python calls.
//!
//! Unsafe because the loader and `ctypes` check nothing; all work is done by the modules that it calls.

use std::{
    ffi::{CStr, CString, c_char},
    panic::catch_unwind,
    sync::OnceLock,
};

use crate::{c_api, control, kernels};

static REGISTERED: OnceLock<Result<(), String>> = OnceLock::new();

/// Runs when the library is loaded, which is when `tf.load_op_library` expects new ops.
extern "C" fn on_load() {
    let registered = catch_unwind(|| {
        c_api::find()?;
        kernels::register().map_err(|failure| failure.message)
    });
    let _ = REGISTERED.set(registered.unwrap_or_else(|_| Err("a fault of tierfeed".to_owned())));
}

// SAFETY: the loader runs the function once, when the libraries that this one needs are initialised; it
// needs no argument, and no panic leaves it.
#[used]
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;

/// Answers a request of `tierfeed/tensorflow/library.py`, both JSON. The caller gives the answer to
/// [`tierfeed_tensorflow_free`].
///
/// # Safety
///
/// `request` is a terminated string.
// SAFETY: no other library exports this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn tierfeed_tensorflow_call(request: *const c_char) -> *mut c_char {
    // SAFETY: the caller passes a terminated string, which lives until this returns.
    let request = unsafe { CStr::from_ptr(request) };
    let registered = REGISTERED.get().cloned().unwrap_or(Ok(()));
    let answered = catch_unwind(|| control::answer(&request.to_string_lossy(), registered));
    let answer = answered.unwrap_or_else(|_| control::fault());
    CString::new(answer).unwrap_or_default().into_raw()
}

/// Frees an answer.
///
/// # Safety
///
/// `answer` came from [`tierfeed_tensorflow_call`], and is freed once.
// SAFETY: no other library exports this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn tierfeed_tensorflow_free(answer: *mut c_char) {
    // SAFETY: the caller passes what `into_raw` returned, once.
    drop(unsafe { CString::from_raw(answer) });
}
