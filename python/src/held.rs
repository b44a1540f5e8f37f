//! The memory behind views: whose it is, and what happens when nobody looks at it any more.
//!
//! Every view and tensor of a batch shares one [`Held`]. When the last one goes, private memory is
//! unmapped and a lease goes back to the agent, on whatever thread that happens: no Python object is
//! touched, and nothing waits.

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

use crate::{chunk::Chunk, connection::Connection};

/// Memory that Python may still see.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Memory,
}

#[derive(Debug)]
enum Memory {
    /// Pages of this process alone, filled from the cold store.
    Private(MmapRaw),
    /// Part of the agent's staging memory. Fields drop in order: the lease goes back first, and the
    /// mapping may be the last share of the arena.
    Leased { lease: Lease, arena: Arc<View>, start: usize, len: usize, shelves: SharedTiers },
    /// A chunk that the agent lent to the workload.
    Lent(Arc<Chunk>),
}

/// A sample that was not copied into its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shown {
    /// On whose shelf it lies.
    pub(crate) tier: TierId,
    /// From the start of the shelf.
    pub(crate) at: usize,
    pub(crate) len: usize,
    /// Where it goes if the batch is copied, from the start of the copy.
    pub(crate) own: usize,
}

/// The right to a staged batch; given back on drop.
#[derive(Debug)]
pub(crate) struct Lease {
    connection: Arc<Connection>,
    id: LeaseId,
    /// Whether Python goes on with a copy.
    is_copied: AtomicBool,
}

impl Lease {
    pub(crate) fn new(connection: Arc<Connection>, id: LeaseId) -> Self {
        Self { connection, id, is_copied: AtomicBool::new(false) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let is_copied = *self.is_copied.get_mut();
        let parting = if is_copied { ReleaseKind::Copied } else { ReleaseKind::Used };
        self.connection.release(self.id, parting);
    }
}

impl Held {
    /// Takes over pages that are filled and will not be touched from Rust again.
    pub(crate) fn private(pages: MmapMut) -> Self {
        Self { memory: Memory::Private(pages.into()) }
    }

    /// `len` bytes of `arena` from `offset`, and what lies on `shelves`, for as long as the lease lasts.
    pub(crate) fn leased(
        lease: Lease,
        arena: Arc<View>,
        offset: Bytes,
        len: Bytes,
        shelves: SharedTiers,
    ) -> Self {
        let start = to_usize(offset).min(to_usize(arena.len()));
        let len = to_usize(len).min(to_usize(arena.len()) - start);
        Self { memory: Memory::Leased { lease, arena, start, len, shelves } }
    }

    /// A whole chunk.
    pub(crate) fn lent(chunk: Arc<Chunk>) -> Self {
        Self { memory: Memory::Lent(chunk) }
    }

    /// The same bytes in pages of this process, and behind them those of the samples on shelves, each at
    /// its own place; `None` of memory that takes no room from an agent, which is told of the copy when
    /// the batch goes back.
    pub(crate) fn copied(&self, shown: &[Shown]) -> io::Result<Option<Self>> {
        let Memory::Leased { lease, arena, start, len, .. } = &self.memory else {
            return Ok(None);
        };
        let len = Bytes(*len as u64);
        let ends = shown.iter().map(|it| it.own.saturating_add(it.len) as u64);
        let mut blank = Blank::map(Bytes(ends.fold(len.0, u64::max)))?;
        arena.read(Bytes(*start as u64), blank.place(Bytes(0), len)).map_err(io::Error::other)?;
        for it in shown {
            let place = blank.place(Bytes(it.own as u64), Bytes(it.len as u64));
            self.read_shown(it, place)?;
        }
        lease.is_copied.store(true, Ordering::Relaxed);
        Ok(Some(blank.into_held()))
    }

    /// Copies bytes of it.
    pub(crate) fn read(&self, offset: usize, place: &mut [u8]) -> io::Result<()> {
        match &self.memory {
            Memory::Leased { arena, start, .. } => {
                let at = Bytes(start.saturating_add(offset) as u64);
                arena.read(at, place).map_err(io::Error::other)
            }
            Memory::Private(_) | Memory::Lent(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The memory of a tier that samples of a leased batch may lie in.
    pub(crate) fn shelf(&self, tier: TierId) -> Option<&Arc<ReadView>> {
        match &self.memory {
            Memory::Leased { shelves, .. } => shelves.get(tier),
            Memory::Private(_) | Memory::Lent(_) => None,
        }
    }

    /// Copies a sample on a shelf.
    pub(crate) fn read_shown(&self, shown: &Shown, place: &mut [u8]) -> io::Result<()> {
        let memory = self.shelf(shown.tier).ok_or(io::ErrorKind::NotFound)?;
        memory.read(Bytes(shown.at as u64), place).map_err(io::Error::other)
    }

    /// The trainer starts to use a batch of the agent. Memory of other kinds has nobody to tell.
    pub(crate) fn deliver(&self, wait: Wait) {
        if let Memory::Leased { lease, .. } = &self.memory {
            lease.connection.deliver(lease.id, wait);
        }
    }

    /// The first byte. Valid for [`Self::len`] bytes, to read and to write, while `self` lives.
    pub(crate) fn base(&self) -> *mut u8 {
        match &self.memory {
            Memory::Private(pages) => pages.as_mut_ptr(),
            Memory::Leased { arena, start, .. } => first(arena).wrapping_add(*start),
            Memory::Lent(chunk) => first(&chunk.memory),
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        match &self.memory {
            Memory::Private(pages) => pages.len(),
            Memory::Leased { len, .. } => *len,
            Memory::Lent(chunk) => to_usize(chunk.memory.len()),
        }
    }
}

impl Drop for Held {
    /// Before the lease goes back: then the memory may be another batch's at once.
    fn drop(&mut self) {
        if let Memory::Leased { arena, start, len, .. } = &self.memory {
            arena.forbid(Bytes(*start as u64), Bytes(*len as u64));
        }
    }
}

/// Page-aligned memory of this process, all zero.
#[derive(Debug)]
pub(crate) struct Blank {
    pages: MmapMut,
}

impl Blank {
    /// Maps `len` bytes, at least one.
    pub(crate) fn map(len: Bytes) -> io::Result<Self> {
        MmapMut::map_anon(to_usize(len).max(1)).map(|pages| Self { pages })
    }

    /// `len` bytes from `offset`, to be filled; fewer where the memory ends before.
    pub(crate) fn place(&mut self, offset: Bytes, len: Bytes) -> &mut [u8] {
        let end = to_usize(Bytes(offset.0.saturating_add(len.0))).min(self.pages.len());
        &mut self.pages[to_usize(offset).min(end)..end]
    }

    /// Ends the filling.
    pub(crate) fn into_held(self) -> Held {
        Held::private(self.pages)
    }
}

/// A number of bytes as the machine addresses them.
pub(crate) fn to_usize(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}

fn first(mapping: &Mapping) -> *mut u8 {
    mapping.as_ptr_range(Bytes(0), mapping.len()).expect("a mapping contains itself")
}
