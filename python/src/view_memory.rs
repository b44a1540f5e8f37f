//! The memory behind views: who owns it, and what happens when the last view of it is dropped.
//!
//! Every view and tensor of a batch shares one [`ViewMemory`]. When the last one is dropped, private memory
//! is unmapped and a lease goes back to the agent, on any thread: no Python object is touched, and nothing
//! waits.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use memmap2::{MmapMut, MmapRaw};
use tierfeed_core::{
    id::{LeaseId, TierId},
    session::Wait,
    units::Bytes,
};
use tierfeed_handoff::{ReleaseKind, SharedTiers};
use tierfeed_numa_memory::{Mapping, ReadView, View};

use crate::{chunk::Chunk, shared_client::SharedClient};

#[derive(Debug)]
pub(crate) struct ViewMemory {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Pages of this process, filled from the cold store or with a copy.
    Private(MmapRaw),
    /// A part of the agent's staging memory. Fields drop in order: the lease goes back first, and the
    /// mapping may be the last reference to the arena.
    Leased {
        lease: Lease,
        arena: Arc<View>,
        start: usize,
        len: usize,
        tiers: SharedTiers,
    },
    Lent(Arc<Chunk>),
}

/// A sample that is read in place: it lies in memory of a tier that the agent shares, not in its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InPlace {
    pub(crate) tier: TierId,
    /// From the start of the tier's shared memory.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    /// Where it goes if the batch is copied, from the start of the copy.
    pub(crate) offset_in_copy: usize,
}

/// The right to a staged batch; given back on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    client: Arc<SharedClient>,
    id: LeaseId,
    /// Whether Python goes on with a copy of the batch.
    is_copied: AtomicBool,
}

impl Lease {
    pub(crate) fn new(client: Arc<SharedClient>, id: LeaseId) -> Self {
        Self { client, id, is_copied: AtomicBool::new(false) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_copied = *self.is_copied.get_mut();
        let kind = if is_copied { ReleaseKind::Copied } else { ReleaseKind::Used };
        self.client.release(self.id, kind);
    }
}

impl ViewMemory {
    /// `len` bytes of `arena` from `offset`, and samples in place in `tiers`, for as long as the lease lasts.
    pub(crate) fn leased(
        lease: Lease,
        arena: Arc<View>,
        offset: Bytes,
        len: Bytes,
        tiers: SharedTiers,
    ) -> Self {
        let start = to_usize(offset).min(to_usize(arena.len()));
        let len = to_usize(len).min(to_usize(arena.len()) - start);
        Self { kind: Kind::Leased { lease, arena, start, len, tiers } }
    }

    pub(crate) fn lent(chunk: Arc<Chunk>) -> Self {
        Self { kind: Kind::Lent(chunk) }
    }

    /// A copy in pages of this process, with the samples in place behind the others, each at its
    /// `offset_in_copy`. The agent learns of the copy when the batch goes back. `None` for memory that is not
    /// leased.
    pub(crate) fn copied(&self, in_place: &[InPlace]) -> io::Result<Option<Self>> {
        let Kind::Leased { lease, arena, start, len, .. } = &self.kind else {
            return Ok(None);
        };
        let len = Bytes(*len as u64);
        let ends = in_place.iter().map(|it| it.offset_in_copy.saturating_add(it.len) as u64);
        let mut pages = PrivatePages::map(Bytes(ends.fold(len.0, u64::max)))?;
        arena.read(Bytes(*start as u64), pages.range(Bytes(0), len)).map_err(io::Error::other)?;
        for it in in_place {
            let target = pages.range(Bytes(it.offset_in_copy as u64), Bytes(it.len as u64));
            let tier = self.shared_tier(it.tier).ok_or(io::ErrorKind::NotFound)?;
            tier.read(Bytes(it.offset as u64), target).map_err(io::Error::other)?;
        }
        lease.is_copied.store(true, Ordering::Relaxed);
        Ok(Some(pages.into_memory()))
    }

    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) -> io::Result<()> {
        match &self.kind {
            Kind::Leased { arena, start, .. } => {
                let at = Bytes(start.saturating_add(offset) as u64);
                arena.read(at, target).map_err(io::Error::other)
            }
            Kind::Private(_) | Kind::Lent(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The memory of a tier that the agent shares, where samples of a leased batch may lie.
    pub(crate) fn shared_tier(&self, tier: TierId) -> Option<&Arc<ReadView>> {
        match &self.kind {
            Kind::Leased { tiers, .. } => tiers.get(tier),
            Kind::Private(_) | Kind::Lent(_) => None,
        }
    }

    /// Does nothing for memory that is not leased.
    pub(crate) fn deliver(&self, wait: Wait) {
        if let Kind::Leased { lease, .. } = &self.kind {
            lease.client.deliver(lease.id, wait);
        }
    }

    /// The first byte. Valid for [`Self::len`] bytes, to read and to write, while `self` lives.
    pub(crate) fn base(&self) -> *mut u8 {
        match &self.kind {
            Kind::Private(pages) => pages.as_mut_ptr(),
            Kind::Leased { arena, start, .. } => first(arena).wrapping_add(*start),
            Kind::Lent(chunk) => first(&chunk.memory),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.kind {
            Kind::Private(pages) => pages.len(),
            Kind::Leased { len, .. } => *len,
            Kind::Lent(chunk) => to_usize(chunk.memory.len()),
        }
    }
}

impl Drop for ViewMemory {
    /// Forbids access before the lease goes back: the agent may then write another batch there at once.
    fn drop(&mut self) {
        if let Kind::Leased { arena, start, len, .. } = &self.kind {
            arena.forbid(Bytes(*start as u64), Bytes(*len as u64));
        }
    }
}

/// Page-aligned memory of this process, zero until it is filled.
#[derive(Debug)]
pub(crate) struct PrivatePages {
    pages: MmapMut,
}

impl PrivatePages {
    /// Maps `len` bytes, at least one.
    pub(crate) fn map(len: Bytes) -> io::Result<Self> {
        MmapMut::map_anon(to_usize(len).max(1)).map(|pages| Self { pages })
    }

    /// `len` bytes from `offset`, to be filled; fewer where the memory ends before.
    pub(crate) fn range(&mut self, offset: Bytes, len: Bytes) -> &mut [u8] {
        let end = to_usize(Bytes(offset.0.saturating_add(len.0))).min(self.pages.len());
        &mut self.pages[to_usize(offset).min(end)..end]
    }

    /// Hands the pages over to views; Rust does not write to them any more.
    pub(crate) fn into_memory(self) -> ViewMemory {
        ViewMemory { kind: Kind::Private(self.pages.into()) }
    }
}

pub(crate) fn to_usize(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

pub(crate) fn first(mapping: &Mapping) -> *mut u8 {
    mapping.as_ptr_range(Bytes(0), mapping.len()).expect("a mapping contains itself")
}
