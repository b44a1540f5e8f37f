//! The memory behind views: who owns it, and what happens when the last view of it is dropped.
//!
//! Every view and tensor of a batch shares one [`ViewMemory`]. Its end touches no Python object.

use std::{io, sync::Arc};

use tierfeed_client::{Lease, Memory, PrivatePages, to_usize};
use tierfeed_core::{id::TierId, session::Wait, units::Bytes};
use tierfeed_numa_memory::{Mapping, ReadView};

use crate::chunk::Chunk;

#[derive(Debug)]
pub(crate) enum ViewMemory {
    Batch(Memory),
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

impl ViewMemory {
    /// A copy in pages of this process, with the samples in place behind the others, each at its
    /// `offset_in_copy`. The agent learns of the copy when the batch goes back. `None` for memory that is not
    /// leased.
    pub(crate) fn copied(&self, in_place: &[InPlace]) -> io::Result<Option<Self>> {
        let Self::Batch(memory) = self else { return Ok(None) };
        let Some(lease) = memory.lease() else { return Ok(None) };
        let len = Bytes(memory.len() as u64);
        let ends = in_place.iter().map(|it| it.offset_in_copy.saturating_add(it.len) as u64);
        let mut pages = PrivatePages::map(Bytes(ends.fold(len.0, u64::max)))?;
        memory.read(0, pages.range(Bytes(0), len))?;
        for it in in_place {
            let target = pages.range(Bytes(it.offset_in_copy as u64), Bytes(it.len as u64));
            let tier = self.shared_tier(it.tier).ok_or(io::ErrorKind::NotFound)?;
            tier.read(Bytes(it.offset as u64), target).map_err(io::Error::other)?;
        }
        lease.note_copied();
        Ok(Some(Self::Batch(pages.into_memory())))
    }

    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Batch(memory) => memory.read(offset, target),
            Self::Lent(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The memory of a tier that the agent shares, where samples of a leased batch may lie.
    pub(crate) fn shared_tier(&self, tier: TierId) -> Option<&Arc<ReadView>> {
        self.lease()?.shared_tier(tier)
    }

    /// Does nothing for memory that is not leased.
    pub(crate) fn deliver(&self, wait: Wait) {
        if let Some(lease) = self.lease() {
            lease.deliver(wait);
        }
    }

    /// The first byte. Valid for [`Self::len`] bytes, to read and to write, while `self` lives.
    pub(crate) fn base(&self) -> *mut u8 {
        match self {
            Self::Batch(memory) => memory.base(),
            Self::Lent(chunk) => first(&chunk.memory),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Batch(memory) => memory.len(),
            Self::Lent(chunk) => to_usize(chunk.memory.len()),
        }
    }

    fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Batch(memory) => memory.lease(),
            Self::Lent(_) => None,
        }
    }
}

pub(crate) fn first(mapping: &Mapping) -> *mut u8 {
    mapping.as_ptr_range(Bytes(0), mapping.len()).expect("a mapping contains itself")
}
