//! Tells `AddressSanitizer` which bytes of a mapping this process may access at present: for the
//! heap its runtime knows that itself, for memory that is lent and given back it does not.
//!
//! Without the feature `address-sanitizer` these functions do nothing.

use tierfeed_units::Bytes;

use crate::mapping::Mapping;

impl Mapping {
    /// From now on until [`Self::allow`], an access to these bytes through this mapping ends the
    /// process with a report. Does nothing if they are not all inside.
    pub fn forbid(&self, offset: Bytes, len: Bytes) {
        if let Ok((start, count)) = self.range(offset, len) {
            sanitizer::poison(start, count);
        }
    }

    /// Reverts an earlier [`Self::forbid`].
    pub fn allow(&self, offset: Bytes, len: Bytes) {
        if let Ok((start, count)) = self.range(offset, len) {
            sanitizer::unpoison(start, count);
        }
    }
}

#[cfg(feature = "address-sanitizer")]
mod sanitizer {
    use std::ffi::c_void;

    unsafe extern "C" {
        fn __asan_poison_memory_region(start: *const c_void, len: usize);
        fn __asan_unpoison_memory_region(start: *const c_void, len: usize);
    }

    pub(super) fn poison(start: *mut u8, len: usize) {
        // SAFETY: it changes the runtime's own shadow memory, and no byte of the range.
        unsafe { __asan_poison_memory_region(start.cast(), len) };
    }

    pub(super) fn unpoison(start: *mut u8, len: usize) {
        // SAFETY: it changes the runtime's own shadow memory, and no byte of the range.
        unsafe { __asan_unpoison_memory_region(start.cast(), len) };
    }
}

#[cfg(not(feature = "address-sanitizer"))]
mod sanitizer {
    pub(super) fn poison(_: *mut u8, _: usize) {}

    pub(super) fn unpoison(_: *mut u8, _: usize) {}
}
