//! Allocates memory that other processes can map: a sealed memfd on the requested node.
//!
//! The order matters. Room is checked first, because a node without room either gets the process
//! killed (strict policies) or fills other nodes silently (preferences, used here). The policy is
//! set before the first touch, because it moves no page. Every page is touched here, so that no
//! later access waits for a page fault. The placement is read back, because a preference is no
//! guarantee. The seals come last: with them no process that has the memfd can shrink it under a
//! reader, which would be a `SIGBUS`.

mod give_back;
mod holes;
mod huge;
mod parts;
mod shared_pool;
mod words;

#[cfg(any(test, feature = "fault-injection"))]
pub use give_back::injection;
pub use parts::RegionPart;
pub use shared_pool::{SharedPool, SharedPoolRequest, Span};

use std::{
    io,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::{
    errno::Errno,
    fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
    unistd::ftruncate,
};
use tierfeed_units::{Bytes, Locality, NumaNode};

use crate::{
    capacity::{self, Purpose},
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::{self, Placement},
    policy::{self, Mode, Policy},
    region::{holes::Holes, parts::PlacedPart},
};

/// `MFD_NOEXEC_SEAL` of `linux/memfd.h`, Linux 6.3.
const MFD_NOEXEC_SEAL: MFdFlags = MFdFlags::from_bits_retain(libc::MFD_NOEXEC_SEAL);

/// Memory that this process owns and others may map through its descriptor.
///
/// It is freed when this value is dropped and no process maps it or holds the descriptor.
#[derive(Debug)]
pub struct Region {
    mapping: Mapping,
    fd: OwnedFd,
    /// Of all of it, or of its first part.
    placement: Mutex<Placement>,
    /// Empty if all of it lies in the same place.
    parts: Vec<PlacedPart>,
    is_reserved: bool,
    holes: Holes,
}

/// The parameters of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Length of the memory, in bytes.
    pub len: Bytes,
    /// The node to allocate on.
    pub locality: Locality,
    /// Shown in `/proc/<pid>/maps` behind `memfd:`; at most 249 bytes, none of them 0.
    pub name: &'a str,
    /// The kind of pages.
    pub pages: Pages,
}

/// The kind of pages that back memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pages {
    /// The smallest pages of the machine.
    Small,
    /// Transparent huge pages if the kernel grants them (for shared memory: if
    /// `/sys/kernel/mm/transparent_hugepage/shmem_enabled` says `advise` or more); else small ones.
    Huge,
    /// Reserved huge pages if the host has enough free ones (`vm.nr_hugepages`), else as
    /// [`Self::Huge`]. No other process can use them, so they are for little memory that is used
    /// all the time. [`Region::huge_pages`] returns which pages were used.
    Reserved,
}

/// The huge pages that hold memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HugePages {
    /// All of it lies in pages from the host's pool (`hugetlbfs`).
    Reserved,
    /// Bytes in transparent huge pages; 0 is none.
    Transparent(Bytes),
    /// The kernel does not report it.
    Unknown,
}

impl Region {
    /// Allocates, touches and seals memory, and reads its placement back.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] before anything is taken if it would not fit;
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages came to lie on the node asked for.
    /// Nothing stays allocated after an error.
    pub fn allocate(request: &Request<'_>) -> Result<Self, AllocateError> {
        if request.pages == Pages::Reserved
            && let Some(region) = Self::allocate_reserved(request)
        {
            return Ok(region);
        }
        let &Request { len, locality, .. } = request;
        let _claim = capacity::claim(Path::new("/"), locality, len, Purpose::Other)?;
        let (fd, mapping, policy) = map(request)?;
        allocate_range(&fd, FallocateFlags::empty(), Bytes(0), len)
            .map_err(failed(Step::Reserve, len))?;
        populate(&mapping).map_err(failed(Step::Populate, len))?;
        let placement = verify(mapping.raw(), locality, policy)?;
        seal(&fd).map_err(failed(Step::Seal, len))?;
        Ok(Self::of_one_part(mapping, fd, placement))
    }

    fn of_one_part(mapping: Mapping, fd: OwnedFd, placement: Placement) -> Self {
        let (placement, holes) = (Mutex::new(placement), Holes::none());
        Self { mapping, fd, placement, parts: Vec::new(), is_reserved: false, holes }
    }

    /// Maps and seals memory that has no pages yet: [`Self::populate`] allocates them, range by
    /// range. The caller checks the room ([`crate::Slices`]).
    ///
    /// # Errors
    ///
    /// [`AllocateError::Empty`], [`AllocateError::TooLarge`], [`AllocateError::AbsentNode`], and
    /// [`AllocateError::System`] if the system refuses.
    pub fn reserve(request: &Request<'_>) -> Result<Self, AllocateError> {
        let &Request { len, locality, .. } = request;
        if len.0 == 0 {
            return Err(AllocateError::Empty);
        }
        let (fd, mapping, policy) = map(request)?;
        seal(&fd).map_err(failed(Step::Seal, len))?;
        let region = Self::of_one_part(mapping, fd, Placement::before_touch(locality, policy));
        region.holes.change(|ranges| ranges.add(&give_back::pages_around(Bytes(0), len.0)));
        Ok(region)
    }

    /// Memory in reserved huge pages, rounded up to whole ones; `None` if there are too few, or not
    /// on the requested node. Nothing stays allocated then.
    fn allocate_reserved(request: &Request<'_>) -> Option<Self> {
        let &Request { len, locality, name, .. } = request;
        let len = huge::room_for(Path::new("/"), len, locality)?;
        let fd = create(name, len, huge::FLAGS).ok()?;
        // Mapping reserves the pages: from here on no other process gets them.
        let raw = MmapOptions::new().len(usize::try_from(len.0).ok()?).map_raw(&fd).ok()?;
        let policy = set_policy(&raw, locality, len, Mode::Prefer).ok()?;
        let page_bytes = usize::try_from(huge::HUGE_PAGE.0).ok()?;
        let mapping = Mapping::watched(raw, page_bytes);
        populate(&mapping).ok()?;
        if mapping.bus_errors() > 0 {
            // A control group allows fewer of them than the host has.
            return None;
        }
        let placement = verify(mapping.raw(), locality, policy).ok()?;
        seal(&fd).ok()?;
        Some(Self { is_reserved: true, ..Self::of_one_part(mapping, fd, placement) })
    }

    /// The kind of huge pages that hold the memory now.
    #[must_use]
    pub fn huge_pages(&self) -> HugePages {
        if self.is_reserved {
            return HugePages::Reserved;
        }
        self.mapping.huge_page_bytes().map_or(HugePages::Unknown, HugePages::Transparent)
    }

    /// The placement at the allocation, or after it was moved; unverified for memory that was only
    /// reserved then.
    #[must_use]
    pub fn placement(&self) -> Placement {
        *self.lock_placement()
    }

    /// Moves the pages that no other process has touched near `node`, where later ones are allocated
    /// too, and reads the placement back. Accesses meanwhile wait for their page. Of memory in parts the
    /// first one moves.
    ///
    /// # Errors
    ///
    /// [`AllocateError::AbsentNode`], and [`AllocateError::System`] if the system refuses. The memory
    /// keeps its content after an error too.
    pub fn move_near(&self, node: NumaNode) -> Result<Placement, AllocateError> {
        let raw = self.mapping.raw();
        let part = RegionPart { len: self.first_len(), locality: Locality::Near(node) };
        // What an io_uring pinned does not move; it pins again under the next version.
        let policy = self.holes.change(|_| parts::bind_part(raw, Bytes(0), &part, Mode::Move))?;
        let placement = parts::verify_part(raw, (Bytes(0), part.len), part.locality, policy)?;
        *self.lock_placement() = placement;
        Ok(placement)
    }

    fn lock_placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The placement now. The kernel moves memory on its own: to a slower node if demotion is
    /// enabled, back and forth if it balances.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages are on the node asked for.
    pub fn placement_now(&self) -> Result<Placement, AllocateError> {
        let placement = self.placement();
        if self.parts.is_empty() {
            return verify(self.mapping.raw(), placement.locality(), placement.policy());
        }
        self.verify_range(Bytes(0), self.mapping.len())?;
        let first = (Bytes(0), self.first_len());
        parts::verify_part(self.mapping.raw(), first, placement.locality(), placement.policy())
    }

    /// The memfd, to send to a process that will map it.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Deref for Region {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

fn failed(step: Step, len: Bytes) -> impl Fn(io::Error) -> AllocateError {
    move |source| AllocateError::System { step, len, source }
}

/// Creates the file of a region, maps it and sets its policy; nothing of it has memory yet.
fn map(request: &Request<'_>) -> Result<(OwnedFd, Mapping, Policy), AllocateError> {
    let &Request { len, locality, name, pages } = request;
    let fd = create(name, len, MFdFlags::empty()).map_err(failed(Step::Create, len))?;
    let raw = MmapOptions::new()
        .len(usize::try_from(len.0).map_err(|_| AllocateError::TooLarge { len })?)
        .map_raw(&fd)
        .map_err(failed(Step::Map, len))?;
    advise_pages(&raw, pages);
    let policy = set_policy(&raw, locality, len, Mode::Prefer)?;
    Ok((fd, Mapping::watched(raw, placement::page_bytes()), policy))
}

fn create(name: &str, len: Bytes, more: MFdFlags) -> io::Result<OwnedFd> {
    let flags = MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC | more;
    let fd = match memfd_create(name, flags | MFD_NOEXEC_SEAL) {
        // Linux before 6.3.
        Err(Errno::EINVAL) => memfd_create(name, flags)?,
        created => created?,
    };
    let len = libc::off_t::try_from(len.0).map_err(|_| io::ErrorKind::InvalidInput)?;
    ftruncate(&fd, len)?;
    Ok(fd)
}

/// Only advice: a kernel without transparent huge pages refuses it, and has small pages anyway.
pub(crate) fn advise_pages(raw: &MmapRaw, pages: Pages) {
    let advice = match pages {
        Pages::Small => Advice::NoHugePage,
        Pages::Huge | Pages::Reserved => Advice::HugePage,
    };
    // A refusal is ignored, see above.
    let _ = raw.advise(advice);
}

/// Sets the policy; reports [`Policy::Denied`] if this process may set none.
pub(crate) fn set_policy(
    raw: &MmapRaw,
    locality: Locality,
    len: Bytes,
    mode: Mode,
) -> Result<Policy, AllocateError> {
    let Some(node) = locality.node() else { return Ok(Policy::Applied) };
    match policy::bind(raw, node, mode) {
        Ok(()) => Ok(Policy::Applied),
        Err(error) if policy::is_denied(&error) => Ok(Policy::Denied),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err(AllocateError::AbsentNode { node })
        }
        Err(source) => Err(AllocateError::System { step: Step::Bind, len, source }),
    }
}

fn allocate_range(
    fd: &OwnedFd,
    flags: FallocateFlags,
    offset: Bytes,
    len: Bytes,
) -> io::Result<()> {
    let as_offset = |bytes: Bytes| libc::off_t::try_from(bytes.0);
    let offset = as_offset(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let len = as_offset(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        match fallocate(fd, flags, offset, len) {
            Err(Errno::EINTR) => (),
            outcome => return Ok(outcome?),
        }
    }
}

/// Touches every page, so that later accesses cause no page faults.
pub(crate) fn populate(mapping: &Mapping) -> io::Result<()> {
    loop {
        match mapping.raw().advise(Advice::PopulateWrite) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            // Linux before 5.14.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                mapping.touch_every(placement::page_bytes());
                return Ok(());
            }
            outcome => return outcome,
        }
    }
}

pub(crate) fn verify(
    raw: &MmapRaw,
    locality: Locality,
    policy: Policy,
) -> Result<Placement, AllocateError> {
    placement::judge(locality, policy, |node| placement::find(raw, node))
}

fn as_usize(offset: Bytes, len: Bytes) -> io::Result<(usize, usize)> {
    let convert = |it: Bytes| usize::try_from(it.0).map_err(|_| io::ErrorKind::InvalidInput);
    Ok((convert(offset)?, convert(len)?))
}

fn seal(fd: &OwnedFd) -> io::Result<()> {
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(fd, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(())
}
