//! The interface by which TensorFlow reads `tierfeed://` addresses
//! (`tensorflow/c/experimental/filesystem/filesystem_interface.h`, versions 0 of its tables).
//!
//! Unsafe because TensorFlow passes raw addresses, and takes memory that its own allocator frees. What the
//! functions do is in `files`. The SAFETY lists cite the contract of that header:
//!
//! 1. Pointers of the arguments are valid, and strings terminated, until the function returns.
//! 2. `plugin_file` is what `new_random_access_file` stored, until `cleanup` of the file.
//! 3. What is handed over was allocated by [`allocate`], and TensorFlow frees it by [`free`].

use std::{
    ffi::{CStr, OsStr, c_char, c_int, c_void},
    io,
    os::unix::ffi::OsStrExt,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use crate::{
    c_api::{self, Code, Failure},
    files,
};

type Pointer = *mut c_void;
/// An entry of a table that is not provided.
type Absent = usize;

/// `TF_FilesystemOps`.
#[repr(C)]
struct FilesystemTable {
    init: extern "C" fn(Pointer, Pointer),
    cleanup: extern "C" fn(Pointer),
    new_random_access_file: extern "C" fn(Pointer, *const c_char, *mut Pointer, Pointer),
    writing: [Absent; 10],
    path_exists: extern "C" fn(Pointer, *const c_char, Pointer),
    paths_exist: Absent,
    stat: extern "C" fn(Pointer, *const c_char, *mut Statistics, Pointer),
    is_directory: extern "C" fn(Pointer, *const c_char, Pointer) -> bool,
    get_file_size: extern "C" fn(Pointer, *const c_char, Pointer) -> i64,
    translate_name: extern "C" fn(Pointer, *const c_char) -> *mut c_char,
    get_children: extern "C" fn(Pointer, *const c_char, *mut *mut *mut c_char, Pointer) -> c_int,
    others: [Absent; 13],
}

/// `TF_RandomAccessFileOps`.
#[repr(C)]
struct FileTable {
    cleanup: extern "C" fn(*mut Pointer),
    read: extern "C" fn(*const Pointer, u64, usize, *mut c_char, Pointer) -> i64,
}

/// `TF_FileStatistics`.
#[repr(C)]
struct Statistics {
    length: i64,
    mtime_nsec: i64,
    is_directory: bool,
}

/// The metadata of a table: its two versions, its length, and where it is.
#[repr(C)]
struct Table {
    abi: c_int,
    api: c_int,
    size: usize,
    functions: Pointer,
}

/// `TF_FilesystemPluginOps`.
#[repr(C)]
struct SchemeTables {
    scheme: *mut c_char,
    filesystem: Table,
    random_access_file: Table,
    writable_file: Table,
    read_only_memory_region: Table,
}

/// `TF_FilesystemPluginInfo`.
#[repr(C)]
struct PluginInfo {
    num_schemes: usize,
    ops: *mut SchemeTables,
    allocate: extern "C" fn(usize) -> Pointer,
    free: extern "C" fn(Pointer),
}

const FILESYSTEM: FilesystemTable = FilesystemTable {
    init,
    cleanup,
    new_random_access_file,
    writing: [0; 10],
    path_exists,
    paths_exist: 0,
    stat,
    is_directory,
    get_file_size,
    translate_name,
    get_children,
    others: [0; 13],
};
const FILE: FileTable = FileTable { cleanup: close, read };
// 33 functions, as in versions 2.18 to 2.21; TensorFlow refuses a table of another length.
const _: () = assert!(size_of::<FilesystemTable>() == 33 * size_of::<usize>());
const NOTHING: Table = Table { abi: 0, api: 0, size: 0, functions: ptr::null_mut() };

extern "C" fn allocate(size: usize) -> Pointer {
    // SAFETY: `malloc` takes any size.
    unsafe { libc::malloc(size.max(1)) }
}

extern "C" fn free(memory: Pointer) {
    // SAFETY: what TensorFlow frees here came from `allocate` (contract 3).
    unsafe { libc::free(memory) };
}

/// A value in memory that TensorFlow frees; null if there is no memory.
fn handed_over<T>(value: T) -> *mut T {
    let memory = allocate(size_of::<T>()).cast::<T>();
    if !memory.is_null() {
        // SAFETY: new memory of this size, aligned for every type by `malloc`.
        unsafe { memory.write(value) };
    }
    memory
}

/// A string in memory that TensorFlow frees; null if there is no memory.
fn handed_over_text(text: &OsStr) -> *mut c_char {
    let bytes = text.as_bytes();
    let memory = allocate(bytes.len() + 1).cast::<u8>();
    if !memory.is_null() {
        // SAFETY: new memory for these bytes and one more, which no one else knows.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), memory, bytes.len()) };
        // SAFETY: as above; this is the last byte of it.
        unsafe { memory.wrapping_add(bytes.len()).write(0) };
    }
    memory.cast()
}

/// Says which addresses this library reads, and by which functions.
///
/// # Safety
///
/// `info` is what TensorFlow wants to be filled.
// SAFETY: TensorFlow looks for this name in each plug-in by itself.
#[unsafe(no_mangle)]
unsafe extern "C" fn TF_InitPlugin(info: *mut PluginInfo) {
    let table = |size, functions| Table { abi: 0, api: 0, size, functions };
    let filesystem = handed_over(FILESYSTEM).cast();
    let file = handed_over(FILE).cast();
    let scheme = handed_over_text(OsStr::new("tierfeed"));
    let ops = handed_over(SchemeTables {
        scheme,
        filesystem: table(size_of::<FilesystemTable>(), filesystem),
        random_access_file: table(size_of::<FileTable>(), file),
        writable_file: NOTHING,
        read_only_memory_region: NOTHING,
    });
    let is_whole = !ops.is_null() && !scheme.is_null() && !filesystem.is_null() && !file.is_null();
    // Without memory no scheme is registered, and TensorFlow looks at none of the tables.
    let num_schemes = usize::from(is_whole);
    // SAFETY: the caller passes it to be filled.
    unsafe { info.write(PluginInfo { num_schemes, ops, allocate, free }) };
}

/// Runs `work` on a path and reports its outcome; `None` if it failed.
fn on<T>(
    path: *const c_char,
    status: Pointer,
    work: impl FnOnce(&OsStr) -> Result<T, Failure>,
) -> Option<T> {
    // SAFETY: a terminated string (contract 1).
    let path = unsafe { CStr::from_ptr(path) };
    let outcome = catch_unwind(AssertUnwindSafe(|| work(OsStr::from_bytes(path.to_bytes()))));
    let fault = Failure::new(Code::Internal, "a fault of tierfeed");
    let outcome = outcome.unwrap_or(Err(fault));
    // SAFETY: the status of this call (contract 1).
    unsafe { c_api::set_status(status, outcome.as_ref().err()) };
    outcome.ok()
}

extern "C" fn init(_filesystem: Pointer, status: Pointer) {
    // SAFETY: the status of this call (contract 1).
    unsafe { c_api::set_status(status, None) };
}

extern "C" fn cleanup(_filesystem: Pointer) {}

extern "C" fn new_random_access_file(
    _filesystem: Pointer,
    path: *const c_char,
    file: *mut Pointer,
    status: Pointer,
) {
    if let Some(opened) = on(path, status, files::open) {
        // SAFETY: TensorFlow passes the file to be filled (contract 1).
        unsafe { file.write(Box::into_raw(Box::new(opened)).cast()) };
    }
}

extern "C" fn close(file: *mut Pointer) {
    // SAFETY: what `new_random_access_file` stored (contract 2).
    let opened = unsafe { file.read() };
    if !opened.is_null() {
        // SAFETY: it was made by `Box::into_raw`, and TensorFlow closes it once.
        drop(unsafe { Box::from_raw(opened.cast::<files::Opened>()) });
    }
}

extern "C" fn read(
    file: *const Pointer,
    offset: u64,
    len: usize,
    buffer: *mut c_char,
    status: Pointer,
) -> i64 {
    // SAFETY: what `new_random_access_file` stored (contract 2).
    let opened = unsafe { file.read() };
    // SAFETY: as above; it is not closed before this returns, and only read meanwhile.
    let opened = unsafe { &*opened.cast::<files::Opened>() };
    let target = buffer.cast();
    let read = || match opened {
        files::Opened::Local(file) => read_local(file, offset, len, target),
        files::Opened::Remote(file) => read_remote(file, offset, len, target),
    };
    let fault = || (0, Err(Failure::new(Code::Internal, "a fault of tierfeed")));
    let (done, outcome) = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| fault());
    // SAFETY: the status of this call (contract 1).
    unsafe { c_api::set_status(status, outcome.as_ref().err()) };
    i64::try_from(done).unwrap_or(i64::MAX)
}

/// Fills TensorFlow's buffer of `len` bytes; returns how many were read, and why not all.
fn read_local(
    file: &files::LocalFile,
    offset: u64,
    len: usize,
    target: *mut u8,
) -> (usize, Result<(), Failure>) {
    file.read_ahead(offset.saturating_add(len as u64));
    let mut done = 0;
    while done < len {
        let at = libc::off_t::try_from(offset + done as u64).unwrap_or(libc::off_t::MAX);
        let rest = target.wrapping_add(done).cast();
        // SAFETY: TensorFlow's buffer has `len` bytes (contract 1), of which `done` are filled.
        let count = unsafe { libc::pread(file.descriptor(), rest, len - done, at) };
        match usize::try_from(count) {
            Ok(0) => return (done, Err(end())),
            Ok(count) => done += count,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return (done, Err(files::unreadable(offset, &error)));
                }
            }
        }
    }
    (done, Ok(()))
}

/// As [`read_local`].
fn read_remote(
    file: &files::RemoteFile,
    offset: u64,
    len: usize,
    target: *mut u8,
) -> (usize, Result<(), Failure>) {
    let mut done = 0;
    while done < len {
        let (block, within) = match file.block(offset + done as u64) {
            Ok(Some(found)) => found,
            Ok(None) => return (done, Err(end())),
            Err(failure) => return (done, Err(failure)),
        };
        let bytes = block.get(within..).unwrap_or_default();
        let count = bytes.len().min(len - done);
        if count == 0 {
            return (done, Err(end()));
        }
        let rest = target.wrapping_add(done);
        // SAFETY:
        // - Valid for reads: `bytes` has at least `count`.
        // - Valid for writes: TensorFlow's buffer has `len` bytes (contract 1), of which `done` are filled.
        // - No overlap: the block is memory of this library.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), rest, count) };
        done += count;
    }
    (done, Ok(()))
}

fn end() -> Failure {
    Failure::new(Code::OutOfRange, "the end of the file")
}

extern "C" fn path_exists(_filesystem: Pointer, path: *const c_char, status: Pointer) {
    on(path, status, files::stat);
}

extern "C" fn stat(
    _filesystem: Pointer,
    path: *const c_char,
    statistics: *mut Statistics,
    status: Pointer,
) {
    if let Some(entry) = on(path, status, files::stat) {
        let length = i64::try_from(entry.len).unwrap_or(i64::MAX);
        let (mtime_nsec, is_directory) = (entry.modified_ns, entry.is_directory);
        // SAFETY: TensorFlow passes the statistics to be filled (contract 1).
        unsafe { statistics.write(Statistics { length, mtime_nsec, is_directory }) };
    }
}

extern "C" fn is_directory(_filesystem: Pointer, path: *const c_char, status: Pointer) -> bool {
    let checked = on(path, status, |path| {
        let is_directory = files::stat(path)?.is_directory;
        let message = "it is no directory";
        is_directory.then_some(()).ok_or_else(|| Failure::new(Code::FailedPrecondition, message))
    });
    checked.is_some()
}

extern "C" fn get_file_size(_filesystem: Pointer, path: *const c_char, status: Pointer) -> i64 {
    let entry = on(path, status, files::stat);
    entry.map_or(-1, |entry| i64::try_from(entry.len).unwrap_or(i64::MAX))
}

/// TensorFlow's own translation would leave out the first part of a path.
extern "C" fn translate_name(_filesystem: Pointer, address: *const c_char) -> *mut c_char {
    // SAFETY: a terminated string (contract 1).
    let address = unsafe { CStr::from_ptr(address) };
    handed_over_text(files::path_of(OsStr::from_bytes(address.to_bytes())))
}

extern "C" fn get_children(
    _filesystem: Pointer,
    path: *const c_char,
    entries: *mut *mut *mut c_char,
    status: Pointer,
) -> c_int {
    let Some(names) = on(path, status, files::children) else { return -1 };
    let list = allocate(names.len() * size_of::<*mut c_char>()).cast::<*mut c_char>();
    let texts: Vec<_> = names.iter().map(|name| handed_over_text(name)).collect();
    if list.is_null() || texts.iter().any(|text| text.is_null()) {
        texts.into_iter().for_each(|text| free(text.cast()));
        free(list.cast());
        let failure =
            Failure::new(Code::ResourceExhausted, "no memory for the names of a directory");
        // SAFETY: the status of this call (contract 1).
        unsafe { c_api::set_status(status, Some(&failure)) };
        return -1;
    }
    // SAFETY: the new list has room for as many pointers as there are names.
    unsafe { ptr::copy_nonoverlapping(texts.as_ptr(), list, texts.len()) };
    // SAFETY: TensorFlow passes the place for the list (contract 1), and frees the list and its strings.
    unsafe { entries.write(list) };
    c_int::try_from(names.len()).unwrap_or(c_int::MAX)
}
