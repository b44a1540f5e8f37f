//! The calls of `shim.c`, made safe: a decompressor that owns what it allocated.

use std::{
    ffi::{CStr, c_char, c_int},
    ptr::NonNull,
};

/// The values of [`Request::colour`].
pub(super) const COLOUR_RGB: u32 = 0;
pub(super) const COLOUR_GREY: u32 = 1;

/// What is decoded of an image, in pixels of the scaled image.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Request {
    pub(super) left: u32,
    pub(super) top: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) eighths: u32,
    pub(super) colour: u32,
    pub(super) has_fast_dct: u32,
    pub(super) scans_max: u32,
}

/// How the rows lie that are written.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Rows {
    /// Column of the first pixel that is wanted.
    pub(super) left: u32,
    /// Pixels of a row.
    pub(super) width: u32,
}

#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

unsafe extern "C" {
    fn tierfeed_jpeg_create() -> *mut Opaque;
    fn tierfeed_jpeg_destroy(this: *mut Opaque);
    fn tierfeed_jpeg_message(this: *const Opaque) -> *const c_char;
    fn tierfeed_jpeg_measure(
        this: *mut Opaque,
        bytes: *const u8,
        length: usize,
        width: *mut u32,
        height: *mut u32,
    ) -> c_int;
    fn tierfeed_jpeg_begin(
        this: *mut Opaque,
        bytes: *const u8,
        length: usize,
        request: *const Request,
        rows: *mut Rows,
    ) -> c_int;
    fn tierfeed_jpeg_rows(this: *mut Opaque, pixels: *mut u8, length: usize) -> c_int;
}

/// libjpeg-turbo's decompressor, whose tables and memory serve one image after another.
pub(super) struct Decompressor {
    opaque: NonNull<Opaque>,
}

// SAFETY: the C code keeps no state outside of what `opaque` points to, and asks for no thread.
unsafe impl Send for Decompressor {}

impl Decompressor {
    /// Returns `None` if there is no memory.
    pub(super) fn try_new() -> Option<Self> {
        // SAFETY: the call has no precondition.
        let opaque = unsafe { tierfeed_jpeg_create() };
        NonNull::new(opaque).map(|opaque| Self { opaque })
    }

    /// The width and the height of an image.
    pub(super) fn measure(&mut self, bytes: &[u8]) -> Result<(u32, u32), String> {
        let (mut width, mut height) = (0, 0);
        // SAFETY:
        // - `opaque` is valid until drop, and `&mut self` makes the access exclusive.
        // - `bytes` is readable for its length during the call, and is not kept after it.
        // - `width` and `height` are valid for one write each.
        let status = unsafe {
            tierfeed_jpeg_measure(
                self.opaque.as_ptr(),
                bytes.as_ptr(),
                bytes.len(),
                &raw mut width,
                &raw mut height,
            )
        };
        self.outcome(status)?;
        Ok((width, height))
    }

    /// Starts to decode the region of `request`.
    pub(super) fn begin<'a>(
        &'a mut self,
        bytes: &'a [u8],
        request: &Request,
    ) -> Result<Running<'a>, String> {
        let mut rows = Rows::default();
        // SAFETY:
        // - `opaque` is valid until drop, and `&mut self` makes the access exclusive.
        // - `bytes` is readable for its length as long as the result lives, which alone lets the C code
        //   read more of it; the next image replaces what it keeps.
        // - `request` and `rows` are valid for one read and one write.
        let status = unsafe {
            tierfeed_jpeg_begin(
                self.opaque.as_ptr(),
                bytes.as_ptr(),
                bytes.len(),
                request,
                &raw mut rows,
            )
        };
        self.outcome(status)?;
        Ok(Running { decompressor: self, _bytes: bytes, rows })
    }

    fn outcome(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: `opaque` is valid until drop.
        let text = unsafe { tierfeed_jpeg_message(self.opaque.as_ptr()) };
        // SAFETY: the text ends with a zero, lies in what `opaque` points to, and is copied before the
        // next call could change it.
        let message = unsafe { CStr::from_ptr(text) };
        Err(message.to_string_lossy().into_owned())
    }
}

/// An image whose header is read, and whose bytes are borrowed.
pub(super) struct Running<'a> {
    decompressor: &'a mut Decompressor,
    _bytes: &'a [u8],
    rows: Rows,
}

impl Running<'_> {
    /// How the rows of the region will lie.
    pub(super) fn rows(&self) -> Rows {
        self.rows
    }

    /// Writes the rows of the region, one after another.
    pub(super) fn read(self, pixels: &mut [u8]) -> Result<(), String> {
        // SAFETY:
        // - `opaque` is valid and the access exclusive, as in `begin`, which succeeded.
        // - The bytes of the image are borrowed by `self`.
        // - `pixels` is writable for its length, and the C code writes no more.
        let status = unsafe {
            tierfeed_jpeg_rows(self.decompressor.opaque.as_ptr(), pixels.as_mut_ptr(), pixels.len())
        };
        self.decompressor.outcome(status)
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: `create` returned the pointer, and nothing uses it after this.
        unsafe { tierfeed_jpeg_destroy(self.opaque.as_ptr()) };
    }
}
