//! The calls of `shim.c`, made safe: a decompressor that owns what it allocated.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::NonNull,
    slice,
};

// The shim calls it.
use turbojpeg_sys as _;

use super::scan::{BLOCKS_MAX, Block, Component, HuffmanTable, Needed, Plan, Scan};

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
    pub(super) has_library_entropy: u32,
}

/// Why there are no rows.
pub(super) enum Failure {
    /// What the library says.
    Message(String),
    /// The library's entropy decoder must decode the image.
    Unsound,
}

/// The outcomes of the calls.
const DONE: c_int = 0;
const UNSOUND: c_int = 2;

/// How the rows lie that are written.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Rows {
    /// Column of the first pixel that is wanted.
    pub(super) left: u32,
    /// Pixels of a row.
    pub(super) width: u32,
}

/// The values of [`ComponentOfC::needed`].
const NEEDED_NOTHING: u32 = 0;
const NEEDED_DC: u32 = 1;

/// A component of a scan, with its Huffman tables as [`HuffmanTable`] has them.
#[repr(C)]
struct ComponentOfC {
    dc_counts: *const [u8; 17],
    dc_symbols: *const [u8; 256],
    ac_counts: *const [u8; 17],
    ac_symbols: *const [u8; 256],
    dc_table: u32,
    ac_table: u32,
    blocks: u32,
    needed: u32,
}

#[repr(C)]
struct PlanOfC {
    components: [ComponentOfC; 4],
    components_count: u32,
    columns: u32,
    needed_begin: u32,
    needed_end: u32,
    restart_interval: u32,
}

/// Begins a scan, and says whether it can be decoded here.
///
/// # Safety
///
/// - `scan` and `plan` are valid, and nothing else uses them during the call.
/// - The pointers of as many components as the plan counts are valid for reads of what they point to.
#[unsafe(no_mangle)]
unsafe extern "C" fn tierfeed_jpeg_scan_begin(scan: *mut Scan, plan: *const PlanOfC) -> c_int {
    // SAFETY: the caller promises that the pointer is valid and the access exclusive.
    let scan = unsafe { &mut *scan };
    // SAFETY: the caller promises that the pointer is valid.
    let plan = unsafe { &*plan };
    let mut components = Vec::new();
    let count = plan.components_count as usize;
    for component in plan.components.iter().take(count) {
        // SAFETY: the caller promises that the pointer is valid.
        let counts = unsafe { *component.dc_counts };
        // SAFETY: as before.
        let symbols = unsafe { *component.dc_symbols };
        let dc = scan.set_dc(component.dc_table, &HuffmanTable { counts, symbols });
        // SAFETY: as before.
        let counts = unsafe { *component.ac_counts };
        // SAFETY: as before.
        let symbols = unsafe { *component.ac_symbols };
        let ac = scan.set_ac(component.ac_table, &HuffmanTable { counts, symbols });
        if dc.and(ac).is_err() {
            return 0;
        }
        components.push(Component {
            dc_table: component.dc_table,
            ac_table: component.ac_table,
            blocks: component.blocks,
            needed: match component.needed {
                NEEDED_NOTHING => Needed::Nothing,
                NEEDED_DC => Needed::Dc,
                _ => Needed::All,
            },
        });
    }
    let plan = Plan {
        components: &components,
        columns: plan.columns,
        needed: (plan.needed_begin, plan.needed_end),
        restart_interval: plan.restart_interval,
    };
    c_int::from(scan.begin(&plan).is_ok())
}

/// Decodes an MCU, or says that it cannot. It skips the MCU if `blocks` is null.
///
/// # Safety
///
/// - `scan` is valid, began, and nothing else uses it during the call.
/// - `bytes` is valid for reads of `length`.
/// - `blocks` is null, or points to as many pointers as the plan has blocks, each to a block that is valid
///   for reads and writes, all different.
#[unsafe(no_mangle)]
unsafe extern "C" fn tierfeed_jpeg_scan_decode(
    scan: *mut Scan,
    bytes: *const u8,
    length: usize,
    blocks: *const *mut Block,
) -> c_int {
    // SAFETY: the caller promises that the pointer is valid and the access exclusive.
    let scan = unsafe { &mut *scan };
    // SAFETY: the caller promises that the pointer is valid for that length.
    let bytes = unsafe { slice::from_raw_parts(bytes, length) };
    if blocks.is_null() {
        return c_int::from(scan.decode(bytes, None).is_ok());
    }
    let count = scan.blocks().min(BLOCKS_MAX);
    // SAFETY: the caller promises as many valid pointers to different blocks, and a reference to a block
    // is in memory what a pointer to it is.
    let blocks =
        unsafe { slice::from_raw_parts_mut(blocks.cast::<&mut Block>().cast_mut(), count) };
    c_int::from(scan.decode(bytes, Some(blocks)).is_ok())
}

/// How many bytes of a scan were read, none of them behind a marker that ends it.
///
/// # Safety
///
/// `scan` is valid, began, and nothing else uses it during the call.
#[unsafe(no_mangle)]
unsafe extern "C" fn tierfeed_jpeg_scan_read(scan: *const Scan) -> usize {
    // SAFETY: the caller promises that the pointer is valid.
    unsafe { &*scan }.read()
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
        scan: *mut c_void,
        rows: *mut Rows,
    ) -> c_int;
    fn tierfeed_jpeg_rows(this: *mut Opaque, pixels: *mut u8, length: usize) -> c_int;
}

/// libjpeg-turbo's decompressor, whose tables and memory serve one image after another.
pub(super) struct Decompressor {
    opaque: NonNull<Opaque>,
    /// Of a box. The C code has the pointer while an image is decoded.
    scan: NonNull<Scan>,
}

// SAFETY: the C code keeps no state outside of what the pointers point to, and asks for no thread.
unsafe impl Send for Decompressor {}

impl Decompressor {
    /// Returns `None` if there is no memory.
    pub(super) fn try_new() -> Option<Self> {
        // SAFETY: the call has no precondition.
        let opaque = unsafe { tierfeed_jpeg_create() };
        let opaque = NonNull::new(opaque)?;
        let scan = NonNull::from(Box::leak(Box::<Scan>::default()));
        Some(Self { opaque, scan })
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
        // - `scan` is valid until drop, and used only by the C code.
        let status = unsafe {
            tierfeed_jpeg_begin(
                self.opaque.as_ptr(),
                bytes.as_ptr(),
                bytes.len(),
                request,
                self.scan.as_ptr().cast(),
                &raw mut rows,
            )
        };
        self.outcome(status)?;
        Ok(Running { decompressor: self, _bytes: bytes, rows })
    }

    fn outcome(&self, status: c_int) -> Result<(), String> {
        if status == DONE {
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
    pub(super) fn read(self, pixels: &mut [u8]) -> Result<(), Failure> {
        // SAFETY:
        // - `opaque` is valid and the access exclusive, as in `begin`, which succeeded.
        // - The bytes of the image are borrowed by `self`.
        // - `pixels` is writable for its length, and the C code writes no more.
        let status = unsafe {
            tierfeed_jpeg_rows(self.decompressor.opaque.as_ptr(), pixels.as_mut_ptr(), pixels.len())
        };
        if status == UNSOUND {
            return Err(Failure::Unsound);
        }
        self.decompressor.outcome(status).map_err(Failure::Message)
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: `create` returned the pointer, and nothing uses it after this.
        unsafe { tierfeed_jpeg_destroy(self.opaque.as_ptr()) };
        // SAFETY: it is the pointer of a box, and nothing uses it after this.
        drop(unsafe { Box::from_raw(self.scan.as_ptr()) });
    }
}
