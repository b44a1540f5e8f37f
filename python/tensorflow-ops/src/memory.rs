//! The memory behind the tensors of one batch: a lease of the agent, or pages of this process.
//!
//! Every tensor over a batch holds an `Arc` of one [`Memory`]. When TensorFlow drops the last one, on any
//! thread, a lease goes back to the agent and private pages are unmapped.

use std::{io, sync::Arc};

use memmap2::{MmapMut, MmapRaw};
use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::View;

use crate::connection::Lease;

/// Bytes that tensors may refer to. They stay at one address for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Memory {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Pages of this process, which nothing writes to any more.
    Private(MmapRaw),
    /// A part of the agent's staging memory. Fields drop in order: the lease goes back first.
    Leased { _lease: Lease, arena: Arc<View>, start: usize, len: usize },
}

impl Memory {
    /// `len` bytes of `arena` from `offset`, for as long as the lease lasts.
    pub(crate) fn leased(lease: Lease, arena: Arc<View>, offset: Bytes, len: Bytes) -> Self {
        let start = to_usize(offset).min(to_usize(arena.len()));
        let len = to_usize(len).min(to_usize(arena.len()) - start);
        Self { kind: Kind::Leased { _lease: lease, arena, start, len } }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        match &self.kind {
            Kind::Private(pages) => pages.as_mut_ptr(),
            Kind::Leased { arena, start, .. } => {
                let first = arena.as_ptr_range(Bytes(0), arena.len());
                first.expect("a mapping contains itself").wrapping_add(*start)
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        match &self.kind {
            Kind::Private(pages) => pages.len(),
            Kind::Leased { len, .. } => *len,
        }
    }
}

impl Drop for Memory {
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
    pub(crate) fn map(len: usize) -> io::Result<Self> {
        MmapMut::map_anon(len.max(1)).map(|pages| Self { pages })
    }

    /// `len` bytes from `offset`, to be filled; fewer where the memory ends before.
    pub(crate) fn range(&mut self, offset: usize, len: usize) -> &mut [u8] {
        let end = offset.saturating_add(len).min(self.pages.len());
        &mut self.pages[offset.min(end)..end]
    }

    /// Hands the pages over to tensors; Rust does not write to them any more.
    pub(crate) fn into_memory(self) -> Memory {
        Memory { kind: Kind::Private(self.pages.into()) }
    }
}

pub(crate) fn to_usize(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}
