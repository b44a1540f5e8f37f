//! The memory behind views: the part of the agent's staging memory that a batch takes, a chunk that the agent lends, or
//! pages of this process.
//!
//! All views share one [`Memory`]. When the last one is dropped, on any thread, a lease or loan goes back to the agent,
//! and private pages are unmapped; nothing waits.

use std::{io, sync::Arc};

use memmap2::{MmapMut, MmapRaw};
use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{Mapping, View};

use crate::{connection::Lease, loan::Loan};

/// Bytes that stay at one address for as long as this value lives.
#[derive(Debug)]
pub struct Memory {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Rust does not write to them any more.
    Private(MmapRaw),
    /// Fields drop in order: the lease goes back first, and the mapping may be the last reference to the arena.
    Leased { lease: Lease, arena: Arc<View>, start: usize, len: usize },
    /// Unmapped first, then given back.
    Lent { chunk: View, _loan: Arc<Loan> },
}

impl Memory {
    /// `len` bytes of `arena` from `offset`, for as long as the lease lasts.
    pub fn leased(lease: Lease, arena: Arc<View>, offset: Bytes, len: Bytes) -> Self {
        let start = to_usize(offset).min(to_usize(arena.len()));
        let len = to_usize(len).min(to_usize(arena.len()) - start);
        Self { kind: Kind::Leased { lease, arena, start, len } }
    }

    /// A chunk that the agent lends.
    pub fn lent(chunk: View, loan: &Arc<Loan>) -> Self {
        Self { kind: Kind::Lent { chunk, _loan: Arc::clone(loan) } }
    }

    /// `None` for memory that is no batch of the agent.
    pub fn lease(&self) -> Option<&Lease> {
        if let Kind::Leased { lease, .. } = &self.kind { Some(lease) } else { None }
    }

    /// Copies leased bytes from `offset` on; an error if the range ends outside, or the memory is not leased.
    pub fn read(&self, offset: usize, target: &mut [u8]) -> io::Result<()> {
        match &self.kind {
            Kind::Private(_) | Kind::Lent { .. } => Err(io::ErrorKind::Unsupported.into()),
            Kind::Leased { arena, start, .. } => {
                let at = Bytes(start.saturating_add(offset) as u64);
                arena.read(at, target).map_err(io::Error::other)
            }
        }
    }

    /// The first byte. Valid for [`Self::len`] bytes, to read and to write, while `self` lives.
    pub fn base(&self) -> *mut u8 {
        match &self.kind {
            Kind::Private(pages) => pages.as_mut_ptr(),
            Kind::Leased { arena, start, .. } => first_byte(arena).wrapping_add(*start),
            Kind::Lent { chunk, .. } => first_byte(chunk),
        }
    }

    pub fn len(&self) -> usize {
        match &self.kind {
            Kind::Private(pages) => pages.len(),
            Kind::Leased { len, .. } => *len,
            Kind::Lent { chunk, .. } => to_usize(chunk.len()),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
pub struct PrivatePages {
    pages: MmapMut,
}

impl PrivatePages {
    /// Maps `len` bytes, at least one.
    pub fn map(len: Bytes) -> io::Result<Self> {
        MmapMut::map_anon(to_usize(len).max(1)).map(|pages| Self { pages })
    }

    /// `len` bytes from `offset`, to be filled; fewer where the memory ends before.
    pub fn range(&mut self, offset: Bytes, len: Bytes) -> &mut [u8] {
        let end = to_usize(Bytes(offset.0.saturating_add(len.0))).min(self.pages.len());
        &mut self.pages[to_usize(offset).min(end)..end]
    }

    /// Hands the pages over to views.
    pub fn into_memory(self) -> Memory {
        Memory { kind: Kind::Private(self.pages.into()) }
    }
}

pub fn first_byte(mapping: &Mapping) -> *mut u8 {
    mapping.as_ptr_range(Bytes(0), mapping.len()).expect("a mapping contains itself")
}

/// An address space has fewer bytes than `usize::MAX`, so no index is cut.
pub fn to_usize(bytes: Bytes) -> usize {
    usize::try_from(bytes.0).unwrap_or(usize::MAX)
}
