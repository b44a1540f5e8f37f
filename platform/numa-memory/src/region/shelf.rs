//! One address space for equal pieces of memory that come and go, which other processes may read.
//!
//! Whoever maps a shelf once sees every piece that is ever taken from it, so nobody has to be told of a
//! new one. Only this process can write: others get a descriptor that was opened for reading, from which
//! no writable mapping can be made. `F_SEAL_FUTURE_WRITE` would say the same in one word, but a file that
//! bears it gives no memory back (`FALLOC_FL_PUNCH_HOLE` is a write to it).
//!
//! A process of the same user that means harm can open the memory of this one anyway; what is prevented
//! here is that a program writes there by mistake.
//!
//! Invariants:
//!
//! 1. Two spans share no byte, and a span has its own memory from when it is taken until it is dropped.
//! 2. A piece in which a page broke is not taken again: this process has another page there than readers.
//! 3. Once the shelf is left to its readers, what is dropped keeps its memory and its bytes.

use std::{
    collections::BTreeSet,
    fs::File,
    io,
    ops::Deref,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::fcntl::FallocateFlags;
use nix::sys::{
    memfd::MFdFlags,
    stat::{Mode as FileMode, fchmod},
};
use tierfeed_units::{Bytes, Locality};

use super::{advise_pages, allocate_range, create, failed, seal, set_policy};
use crate::{
    capacity,
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::{self, Placement},
    policy::{Mode, Policy},
    region::Pages,
};

/// What a shelf is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShelfRequest<'a> {
    /// The length of a piece.
    pub piece: Bytes,
    /// The most pieces at a time. They cost nothing before they are taken.
    pub pieces_max: u32,
    /// Where the memory comes from.
    pub locality: Locality,
    /// As in [`crate::Request`].
    pub name: &'a str,
}

/// An address space from which pieces are taken.
#[derive(Debug)]
pub struct Shelf {
    raw: Arc<MmapRaw>,
    fd: OwnedFd,
    readable: OwnedFd,
    piece: Bytes,
    /// From the start of one piece to that of the next: whole pages.
    pitch: u64,
    locality: Locality,
    policy: Policy,
    free: Mutex<BTreeSet<u32>>,
    is_left: AtomicBool,
}

/// A piece of a shelf, with memory; given back when this value is dropped, unless the shelf was left to its
/// readers.
#[derive(Debug)]
pub struct Span {
    mapping: Mapping,
    shelf: Arc<Shelf>,
    index: u32,
    placement: Placement,
}

impl Shelf {
    /// Reserves addresses for all pieces, and memory for none.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Empty`] and [`AllocateError::TooLarge`] for lengths that no address space has,
    /// [`AllocateError::AbsentNode`], and [`AllocateError::System`] if the system refuses.
    pub fn reserve(request: &ShelfRequest<'_>) -> Result<Self, AllocateError> {
        let &ShelfRequest { piece, pieces_max, locality, name } = request;
        if piece.0 == 0 || pieces_max == 0 {
            return Err(AllocateError::Empty);
        }
        let too_large = AllocateError::TooLarge { len: piece };
        let pitch = piece.0.checked_next_multiple_of(placement::page_bytes() as u64);
        let len = pitch.and_then(|pitch| pitch.checked_mul(u64::from(pieces_max)));
        let Some((pitch, len)) = pitch.zip(len) else { return Err(too_large) };
        let count = isize::try_from(len).ok().map(isize::unsigned_abs).ok_or(too_large)?;
        let len = Bytes(len);
        let fd = create(name, len, MFdFlags::empty()).map_err(failed(Step::Create, len))?;
        let raw = MmapOptions::new().len(count).map_raw(&fd).map_err(failed(Step::Map, len))?;
        advise_pages(&raw, Pages::Huge);
        let policy = set_policy(&raw, locality, len, Mode::Prefer)?;
        let readable = reopen(&fd).map_err(failed(Step::Create, len))?;
        seal(&fd).map_err(failed(Step::Seal, len))?;
        let free = Mutex::new((0..pieces_max).collect());
        let (raw, is_left) = (Arc::new(raw), AtomicBool::new(false));
        Ok(Self { raw, fd, readable, piece, pitch, locality, policy, free, is_left })
    }

    /// How long it is, whatever of it has memory.
    #[must_use]
    pub fn len(&self) -> Bytes {
        Bytes(self.raw.len() as u64)
    }

    /// Never: a shelf has at least one piece.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.len() == 0
    }

    /// The memfd, to send to a process that shall read it; it cannot be mapped for writing.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Takes memory for a piece, touches it and reads back where it lies.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] if no piece is left, or no memory for it;
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages came to lie on the node asked for.
    /// Nothing stays taken then.
    pub fn take(self: &Arc<Self>) -> Result<Span, AllocateError> {
        let &Self { piece, locality, .. } = &**self;
        let _claim = capacity::claim(Path::new("/"), locality, piece)?;
        let no_room = AllocateError::NoRoom { wanted: piece, available: Bytes(0), locality };
        let index = self.free().pop_first().ok_or(no_room)?;
        let start = to_usize(u64::from(index) * self.pitch);
        let count = to_usize(piece.0);
        let mapping = Mapping::part(Arc::clone(&self.raw), start, count, placement::page_bytes());
        let placement = Placement::Anywhere;
        // From here on its drop gives everything back.
        let mut span = Span { mapping, shelf: Arc::clone(self), index, placement };
        let reserved = allocate_range(&self.fd, FallocateFlags::empty(), span.offset(), piece);
        reserved.map_err(failed(Step::Reserve, piece))?;
        span.populate().map_err(failed(Step::Populate, piece))?;
        span.placement = span.placement_now()?;
        Ok(span)
    }

    /// From now on pieces keep their memory when they are dropped: whoever made the shelf ends, and others
    /// may still read there. The memory goes with the last process that maps it.
    pub fn leave_to_readers(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    fn free(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // A poisoned lock guards a set that is whole at any time.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Span {
    /// Where it starts on its shelf.
    #[must_use]
    pub fn offset(&self) -> Bytes {
        Bytes(u64::from(self.index) * self.shelf.pitch)
    }

    /// Where it lay when it was taken.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Where it lies now.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages are on the node asked for.
    pub fn placement_now(&self) -> Result<Placement, AllocateError> {
        let Locality::Numa(node) = self.shelf.locality else { return Ok(Placement::Anywhere) };
        let found = placement::find_at(self.mapping.address(), self.byte_count(), node);
        placement::judge(found, node, self.shelf.policy)
    }

    fn byte_count(&self) -> usize {
        to_usize(self.mapping.len().0)
    }

    fn populate(&self) -> io::Result<()> {
        let start = to_usize(self.offset().0);
        loop {
            match self.shelf.raw.advise_range(Advice::PopulateWrite, start, self.byte_count()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                // Linux before 5.14.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    self.mapping.touch_every(placement::page_bytes());
                    return Ok(());
                }
                outcome => return outcome,
            }
        }
    }
}

impl Deref for Span {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.shelf.is_left.load(Ordering::Acquire) {
            return;
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let len = Bytes(self.shelf.pitch);
        let given_back = allocate_range(&self.shelf.fd, flags, self.offset(), len);
        // What could not be given back keeps its memory, so nobody takes it a second time.
        if given_back.is_ok() && self.mapping.bus_errors() == 0 {
            self.shelf.free().insert(self.index);
        }
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the crate builds for 64-bit targets only")
}

/// The same file for reading only. Its mode keeps others of this user from opening it for more by mistake.
fn reopen(fd: &OwnedFd) -> io::Result<OwnedFd> {
    fchmod(fd, FileMode::S_IRUSR)?;
    Ok(File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?.into())
}
