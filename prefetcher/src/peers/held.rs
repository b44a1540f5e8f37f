//! A view of a sample in the memory of this node, which a server sends.

use std::sync::Arc;

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{MappedRange, Mapping, Region};

use crate::tier::{Segment, Store};

/// The memory stays allocated while this lives. The owner keeps the bytes pinned until
/// [`Event::Sent`](super::Event::Sent).
#[derive(Debug)]
pub struct Held {
    parts: Vec<Part>,
    len: Bytes,
    xxh3: u64,
}

#[derive(Debug)]
struct Part {
    memory: Memory,
    offset: Bytes,
    len: Bytes,
}

#[derive(Debug)]
enum Memory {
    Region(Arc<Region>),
    Tier(Arc<Store>),
}

impl Held {
    /// `None` if the sample leaves the region.
    #[must_use]
    pub fn in_region(region: Arc<Region>, offset: Bytes, len: Bytes, xxh3: u64) -> Option<Self> {
        let end = offset.0.checked_add(len.0)?;
        let is_inside = end <= region.len().0;
        let part = Part { memory: Memory::Region(region), offset, len };
        is_inside.then_some(Self { parts: vec![part], len, xxh3 })
    }

    /// `None` if a segment is no memory, or the segments are shorter than `len`.
    pub(crate) fn in_tier(segments: Vec<Segment>, len: Bytes, xxh3: u64) -> Option<Self> {
        let mut parts = Vec::with_capacity(segments.len());
        let mut left = len.0;
        for Segment { store, offset, len } in segments {
            let memory = store.allocation().memory()?;
            let len = Bytes(len.0.min(left));
            if offset.0.checked_add(len.0)? > memory.len().0 {
                return None;
            }
            left -= len.0;
            parts.push(Part { memory: Memory::Tier(store), offset, len });
        }
        (left == 0).then_some(Self { parts, len, xxh3 })
    }

    #[must_use]
    pub fn len(&self) -> Bytes {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.0 == 0
    }

    #[must_use]
    pub fn xxh3(&self) -> u64 {
        self.xxh3
    }

    pub(crate) fn ranges_from(&self, done: Bytes) -> impl Iterator<Item = MappedRange<'_>> {
        let mut skip = done.0;
        self.parts.iter().filter_map(move |part| {
            let skipped = skip.min(part.len.0);
            skip -= skipped;
            let len = Bytes(part.len.0 - skipped);
            let mapping = part.memory.mapping()?;
            let range = MappedRange { mapping, offset: Bytes(part.offset.0 + skipped), len };
            (len.0 > 0).then_some(range)
        })
    }
}

impl Memory {
    fn mapping(&self) -> Option<&Mapping> {
        match self {
            Self::Region(region) => Some(region),
            Self::Tier(store) => store.allocation().memory(),
        }
    }
}
