//! One address space for pieces of memory of equal size that are allocated and freed, readable by
//! other processes.
//!
//! A process that maps a pool once sees every piece that is ever allocated from it, so it needs no
//! message about a new one. Only this process can write: others get a descriptor that was opened
//! for reading, of which no writable mapping can be made. `F_SEAL_FUTURE_WRITE` has the same
//! effect, but memory of a file with this seal cannot be given back (`FALLOC_FL_PUNCH_HOLE` is a
//! write to it).
//!
//! A hostile process of the same user can open the memory of this one anyway; the descriptor only
//! prevents writes by mistake.
//!
//! Invariants:
//!
//! 1. Two spans share no byte, and a span has its own memory from its allocation until it is
//!    dropped.
//! 2. A piece with a broken page is not allocated again: this process has another page there than
//!    readers.
//! 3. Once the pool is kept for its readers, a dropped piece keeps its memory and its bytes.

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

use memmap2::{MmapOptions, MmapRaw};
use nix::fcntl::FallocateFlags;
use nix::sys::{
    memfd::MFdFlags,
    stat::{Mode as FileMode, fchmod},
};
use tierfeed_units::{Bytes, Locality};

use super::{advise_pages, allocate_range, create, failed, seal, set_policy};
use crate::{
    capacity::{self, Purpose},
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::{self, Placement},
    policy::{Mode, Policy},
    region::Pages,
};

/// The parameters of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPoolRequest<'a> {
    /// The length of a piece, in bytes.
    pub piece: Bytes,
    /// Largest number of pieces at a time. They take no memory before they are allocated.
    pub pieces_max: u32,
    /// The node that the memory comes from.
    pub locality: Locality,
    /// Shown in `/proc/<pid>/maps`, see [`crate::Request`].
    pub name: &'a str,
}

/// An address space from which pieces are allocated.
#[derive(Debug)]
pub struct SharedPool {
    raw: Arc<MmapRaw>,
    fd: OwnedFd,
    readable: OwnedFd,
    piece: Bytes,
    /// Distance between the starts of two pieces: whole pages.
    pitch: u64,
    locality: Locality,
    policy: Policy,
    free: Mutex<BTreeSet<u32>>,
    is_kept: AtomicBool,
}

/// A piece of a pool, with memory; freed when this value is dropped, unless the pool is kept for
/// its readers.
#[derive(Debug)]
pub struct Span {
    mapping: Mapping,
    pool: Arc<SharedPool>,
    index: u32,
    placement: Placement,
}

impl SharedPool {
    /// Reserves addresses for all pieces, and no memory.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Empty`] and [`AllocateError::TooLarge`] for lengths that no address space
    /// has, [`AllocateError::AbsentNode`], and [`AllocateError::System`] if the system refuses.
    pub fn reserve(request: &SharedPoolRequest<'_>) -> Result<Self, AllocateError> {
        let &SharedPoolRequest { piece, pieces_max, locality, name } = request;
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
        let (raw, is_kept) = (Arc::new(raw), AtomicBool::new(false));
        Ok(Self { raw, fd, readable, piece, pitch, locality, policy, free, is_kept })
    }

    /// Length of the address space, independent of the allocated memory.
    #[must_use]
    pub fn len(&self) -> Bytes {
        Bytes(self.raw.len() as u64)
    }

    /// The node that its memory comes from.
    #[must_use]
    pub fn locality(&self) -> Locality {
        self.locality
    }

    /// Always false: a pool has at least one piece.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.raw.len() == 0
    }

    /// The memfd, to send to a process that will read it; it cannot be mapped for writing.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    /// Allocates memory for a piece, touches it and reads its placement back.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] if no piece is left, or no memory for it;
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages came to lie on the node asked for.
    /// Nothing stays taken then.
    pub fn take(self: &Arc<Self>) -> Result<Span, AllocateError> {
        let &Self { piece, locality, .. } = &**self;
        let _claim = capacity::claim(Path::new("/"), locality, piece, Purpose::Other)?;
        // Its drop gives everything back.
        let mut span = self.take_empty()?;
        span.allocate(Bytes(0), piece)?;
        span.placement = span.placement_now()?;
        Ok(span)
    }

    /// Takes a piece that has no memory yet: [`Span::populate`] allocates it, range by range. The
    /// caller checks the room ([`crate::Slices`]).
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] if no piece is left.
    pub fn take_empty(self: &Arc<Self>) -> Result<Span, AllocateError> {
        let &Self { piece, locality, policy, .. } = &**self;
        let no_room = AllocateError::NoRoom { wanted: piece, available: Bytes(0), locality };
        let index = self.free().pop_first().ok_or(no_room)?;
        let start = to_usize(u64::from(index) * self.pitch);
        let count = to_usize(piece.0);
        let mapping = Mapping::part(Arc::clone(&self.raw), start, count, placement::page_bytes());
        let placement = Placement::before_touch(locality, policy);
        Ok(Span { mapping, pool: Arc::clone(self), index, placement })
    }

    /// From now on pieces keep their memory when they are dropped: the process that made the pool
    /// ends, and others may still read there. The memory is freed with the last process that maps
    /// it.
    pub fn keep_for_readers(&self) {
        self.is_kept.store(true, Ordering::Release);
    }

    fn free(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        // A poisoned lock guards a set that is consistent at any time.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Span {
    /// Start of the span in its pool.
    #[must_use]
    pub fn offset(&self) -> Bytes {
        Bytes(u64::from(self.index) * self.pool.pitch)
    }

    /// The placement at the allocation; unverified for memory that was taken empty.
    #[must_use]
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The placement now.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages are on the node asked for.
    pub fn placement_now(&self) -> Result<Placement, AllocateError> {
        self.verify_range(Bytes(0), self.mapping.len())
    }

    /// Allocates memory for a range of a piece that was [taken empty](SharedPool::take_empty), and
    /// reads its placement back.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Outside`] for a range that leaves the piece, [`AllocateError::System`] if the
    /// system refuses, and [`AllocateError::Misplaced`] if fewer than 99 % of the pages came to lie
    /// on the node asked for. The range has no memory after an error,
    /// so it must not be in use.
    pub fn populate(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let mapped = self.mapping.len();
        if offset.0.checked_add(len.0).is_none_or(|end| end > mapped.0) {
            return Err(AllocateError::Outside { offset, len, mapped });
        }
        let populated =
            self.allocate(offset, len).and_then(|()| self.verify_range(offset, len).map(drop));
        if populated.is_err() {
            // The first error is reported; what stays is given back with the piece.
            let _ = self.give_back(offset, len);
        }
        populated
    }

    fn allocate(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let at = Bytes(self.offset().0 + offset.0);
        let reserved = allocate_range(&self.pool.fd, FallocateFlags::empty(), at, len);
        reserved.map_err(failed(Step::Reserve, len))?;
        self.mapping.populate(offset, len).map_err(failed(Step::Populate, len))
    }

    fn verify_range(&self, offset: Bytes, len: Bytes) -> Result<Placement, AllocateError> {
        let start = self.mapping.address() + to_usize(offset.0);
        let find = |node| placement::find_at(start, to_usize(len.0), node);
        placement::judge(self.pool.locality, self.pool.policy, find)
    }

    fn give_back(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        allocate_range(&self.pool.fd, flags, Bytes(self.offset().0 + offset.0), len)
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
        if self.pool.is_kept.load(Ordering::Acquire) {
            return;
        }
        let given_back = self.give_back(Bytes(0), Bytes(self.pool.pitch));
        // If the memory could not be given back, the piece is not allocated a second time.
        if given_back.is_ok() && self.mapping.bus_errors() == 0 {
            self.pool.free().insert(self.index);
        }
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the crate builds for 64-bit targets only")
}

/// Opens the same file for reading only. Its mode keeps other processes of this user from opening
/// it for writing by mistake.
fn reopen(fd: &OwnedFd) -> io::Result<OwnedFd> {
    fchmod(fd, FileMode::S_IRUSR)?;
    Ok(File::open(format!("/proc/self/fd/{}", fd.as_raw_fd()))?.into())
}
