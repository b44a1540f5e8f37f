//! Turns a memory error under a mapping into an error count of that mapping, instead of the end of
//! the process.
//!
//! If the hardware gives up a page (poison, frequent behind CXL links), or if a page vanishes under
//! its mapping, an access raises `SIGBUS`. The handler here checks whether the address lies in a
//! watched mapping. If it does, it maps an empty page over the broken one, so that the access
//! continues and reads zeros, and counts the error; the code that copies compares the count before
//! and after and discards the copy if it changed. Every other address goes to the previously
//! installed handler.
//!
//! The handler allocates nothing, takes no lock, and calls only `mmap`, `sigaction` and `raise`.
//!
//! Invariants:
//!
//! 1. An error in a watched mapping is counted before the access that caused it continues.
//! 2. An address outside every watched mapping is handled as without this module.
//! 3. A mapping is watched from before it is handed out until before it is unmapped.

mod slot;
mod words;

use std::{
    ffi::{c_int, c_void},
    io, mem, ptr,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering},
    },
};

use nix::errno::Errno;

use self::slot::Slot;

/// Watched mappings in one block of the list.
const SLOTS: usize = 128;

/// Part of the list of watched mappings. Blocks are added and never removed, so that the handler
/// can walk them at any moment.
#[derive(Debug)]
struct Block {
    slots: [Slot; SLOTS],
    next: AtomicPtr<Self>,
}

static FIRST: Block = Block::new();

/// Locked by the thread that adds a mapping; never by the handler.
static ADDING: Mutex<()> = Mutex::new(());

/// The action for `SIGBUS` before this handler was installed.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that is watched for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Watch {
    slot: &'static Slot,
}

/// Installs the handler for this process, once; further calls change nothing.
///
/// Without it memory errors are not counted, and end the process.
///
/// # Errors
///
/// As `sigaction(2)`.
pub fn catch() -> io::Result<()> {
    static OUTCOME: OnceLock<Result<(), i32>> = OnceLock::new();
    let outcome =
        OUTCOME.get_or_init(|| install().map_err(|error| error.raw_os_error().unwrap_or(0)));
    outcome.map_err(io::Error::from_raw_os_error)
}

impl Watch {
    /// Watches the mapping from `start` to `end`, which consists of pages of `page_bytes`.
    pub(crate) fn over(start: usize, end: usize, page_bytes: usize) -> Self {
        let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = free_slot();
        slot.take(start, end, page_bytes);
        Self { slot }
    }

    /// Pages that broke so far.
    pub(crate) fn errors(&self) -> u32 {
        self.slot.errors.load(Ordering::Acquire)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.slot.leave();
    }
}

/// Creates a free slot.
const fn free() -> Slot {
    let [start, end, page_bytes] = [const { AtomicUsize::new(0) }; 3];
    Slot { start, end, page_bytes, errors: AtomicU32::new(0) }
}

impl Block {
    const fn new() -> Self {
        Self { slots: [const { free() }; SLOTS], next: AtomicPtr::new(ptr::null_mut()) }
    }

    fn next(&self) -> Option<&'static Self> {
        // SAFETY:
        // - The pointer is null, or that of a block that was leaked: it stays valid.
        // - Blocks are only looked at through shared references; what changes is atomic.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }
}

/// Finds or adds a free slot. The caller holds [`ADDING`].
fn free_slot() -> &'static Slot {
    let mut block = &FIRST;
    loop {
        let mut slots = block.slots.iter();
        if let Some(slot) = slots.find(|slot| slot.is_free()) {
            return slot;
        }
        block = block.next().unwrap_or_else(|| {
            let added = Box::leak(Box::new(Block::new()));
            block.next.store(added, Ordering::Release);
            added
        });
    }
}

fn slot_around(address: usize) -> Option<&'static Slot> {
    let mut block = Some(&FIRST);
    while let Some(here) = block {
        if let Some(slot) = here.slots.iter().find(|slot| slot.covers(address)) {
            return Some(slot);
        }
        block = here.next();
    }
    None
}

fn install() -> io::Result<()> {
    let mut previous = empty_action();
    // SAFETY:
    // - `previous` is valid for writes; nothing is changed without a new action.
    let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    // Before the handler is installed, because it reads this.
    PREVIOUS.get_or_init(|| previous);
    let mut action = empty_action();
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    action.sa_sigaction = handler as usize;
    // On the signal stack if the thread has one, as Rust's own handler of `SIGBUS` needs it.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY:
    // - `action` is valid for reads, and its handler has the signature that `SA_SIGINFO` asks for and
    //   calls only functions that a handler may call.
    let installed = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
    if installed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn empty_action() -> libc::sigaction {
    // SAFETY:
    // - All zeros is a valid action: the default handler, no flags, an empty mask.
    unsafe { mem::zeroed() }
}

extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY:
    // - The kernel passes a valid description of the signal to a handler with `SA_SIGINFO`.
    let told = unsafe { &*info };
    // SAFETY:
    // - The field exists in every description; if a process sent the signal it is no address, which
    //   is checked below.
    let address = unsafe { told.si_addr() }.addr();
    let is_from_kernel = told.si_code > 0;
    let slot = if is_from_kernel { slot_around(address) } else { None };
    if !slot.is_some_and(|slot| cover(slot, address)) {
        pass_on(signal, info, context, is_from_kernel);
    }
}

/// Counts an error and maps an empty page over the broken one. Returns whether that succeeded.
fn cover(slot: &Slot, address: usize) -> bool {
    slot.errors.fetch_add(1, Ordering::AcqRel);
    let page_bytes = slot.page_bytes.load(Ordering::Relaxed).max(1);
    let page = ptr::without_provenance_mut::<c_void>(address - address % page_bytes);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let errno = Errno::last_raw();
    // SAFETY:
    // - The page is part of a watched mapping, which its owner keeps while it is accessed: no other
    //   memory is replaced. Its bytes are lost already.
    let laid = unsafe { libc::mmap(page, page_bytes, protection, flags, -1, 0) };
    // The interrupted code must find its own value.
    Errno::set_raw(errno);
    laid != libc::MAP_FAILED
}

/// Calls the previous handler or restores the default action.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_from_kernel: bool) {
    let previous = PREVIOUS.get().map_or((libc::SIG_DFL, 0), |it| (it.sa_sigaction, it.sa_flags));
    match previous {
        (libc::SIG_IGN, _) if !is_from_kernel => {}
        (libc::SIG_DFL | libc::SIG_IGN, _) => {
            let default = empty_action();
            // SAFETY:
            // - `default` is valid for reads. The access is made again after this and ends the process.
            unsafe { libc::sigaction(signal, &raw const default, ptr::null_mut()) };
            if !is_from_kernel {
                // SAFETY:
                // - A handler may raise; the signal comes when this one returns.
                unsafe { libc::raise(signal) };
            }
        }
        (handler, flags) if flags & libc::SA_SIGINFO != 0 => {
            // SAFETY:
            // - It was installed with `SA_SIGINFO`, which requires this signature.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { mem::transmute(handler) };
            handler(signal, info, context);
        }
        (handler, _) => {
            // SAFETY:
            // - It was installed without `SA_SIGINFO`, which requires this signature.
            let handler: extern "C" fn(c_int) = unsafe { mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// Functions that break memory, for tests of the reaction.
#[cfg(any(test, feature = "fault-injection"))]
pub mod injection {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::{c_void, io, ptr, slot_around};
    use std::os::fd::AsRawFd as _;

    /// Removes the page at an address of a watched mapping: the next access raises `SIGBUS`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if no watched mapping is there, else as `mmap(2)`.
    pub fn break_page(address: usize) -> io::Result<()> {
        let (page, page_bytes) = watched_page(address)?;
        // An empty file: every page of its mapping lies behind its end.
        let empty = memfd_create("tierfeed-broken", MFdFlags::MFD_CLOEXEC)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_FIXED | libc::MAP_SHARED;
        // SAFETY:
        // - The page is part of a watched mapping. No reference to its bytes exists, and the
        //   handler handles the access.
        let laid = unsafe { libc::mmap(page, page_bytes, protection, flags, empty.as_raw_fd(), 0) };
        if laid == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes the kernel treat the page at an address of a watched mapping as broken hardware
    /// (`MADV_HWPOISON`). The host loses the page until it reboots.
    ///
    /// # Errors
    ///
    /// As [`break_page`]; as `madvise(2)`: `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` where the kernel
    /// was built without it.
    pub fn poison_page(address: usize) -> io::Result<()> {
        let (page, page_bytes) = watched_page(address)?;
        // SAFETY:
        // - As in `break_page`: the lost memory belongs to a watched mapping.
        let outcome = unsafe { libc::madvise(page, page_bytes, libc::MADV_HWPOISON) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn watched_page(address: usize) -> io::Result<(*mut c_void, usize)> {
        let slot = slot_around(address).ok_or(io::ErrorKind::NotFound)?;
        let page_bytes = slot.page_bytes.load(std::sync::atomic::Ordering::Relaxed);
        Ok((ptr::without_provenance_mut(address - address % page_bytes), page_bytes))
    }
}

#[cfg(test)]
mod tests;
