//! Holds memory in segments, so that any amount can be taken and given back to within 2 MiB.
//!
//! What may be locked is locked; the rest is touched again and again, because the kernel moves memory
//! that is not used to swap. Nothing here asks whether there is room: that is decided before.

use std::{collections::BTreeMap, io, thread};

use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{AllocateError, Ballast, Placement, ballast::QUANTUM};

/// One mapping of the kernel; only the last one is partly full.
const SEGMENT: Bytes = Bytes::mib(512);

/// The kernel clears a page when it is first touched, and in a virtual machine the host has to bring it
/// first, for one processor at a time. So memory fills about in proportion to the threads, up to the write
/// bandwidth of a node.
const THREADS_MAX: usize = 8;

/// Memory that is held until it is given back or this is dropped.
#[derive(Debug)]
pub(super) struct HeldMemory {
    locality: Locality,
    segments: Vec<Ballast>,
    threads: usize,
    lock_refusal: Option<io::Error>,
    placement: Option<Placement>,
    /// The segment and the offset in it that are touched next.
    next_touch: (usize, Bytes),
}

impl HeldMemory {
    pub(super) fn new(locality: Locality) -> Self {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self {
            locality,
            segments: Vec::new(),
            threads: cpus.min(THREADS_MAX),
            lock_refusal: None,
            placement: None,
            next_touch: (0, Bytes(0)),
        }
    }

    pub(super) fn locality(&self) -> Locality {
        self.locality
    }

    /// A multiple of 2 MiB.
    pub(super) fn held(&self) -> Bytes {
        self.sum(Ballast::held)
    }

    pub(super) fn locked(&self) -> Bytes {
        self.sum(Ballast::locked)
    }

    pub(super) fn lock_refusal(&self) -> Option<&io::Error> {
        self.lock_refusal.as_ref()
    }

    /// The placement of the memory that was taken last, as it was read back; `None` before anything was
    /// taken.
    pub(super) fn placement(&self) -> Option<Placement> {
        self.placement
    }

    /// Bytes by node; `None` where the kernel does not tell.
    pub(super) fn nodes(&self) -> Option<BTreeMap<NumaNode, Bytes>> {
        self.segments.iter().try_fold(BTreeMap::new(), |mut sum, segment| {
            for (node, bytes) in segment.nodes()? {
                sum.entry(node).or_insert(Bytes(0)).0 += bytes.0;
            }
            Some(sum)
        })
    }

    /// Takes `bytes` more, rounded up to whole pieces. Where the kernel gives no more, or not on the node
    /// asked for, what was taken until then stays held.
    pub(super) fn take(&mut self, bytes: Bytes) -> Result<(), AllocateError> {
        let mut left = bytes.0.div_ceil(QUANTUM.0).saturating_mul(QUANTUM.0);
        while left > 0 {
            if self.segments.last().is_none_or(|last| last.free().0 == 0) {
                self.segments.push(Ballast::reserve(SEGMENT, self.locality)?);
            }
            let Some(segment) = self.segments.last_mut() else { break };
            let piece = left.min(segment.free().0);
            let grown = segment.grow(Bytes(piece), self.threads);
            if self.lock_refusal.is_none() {
                self.lock_refusal = segment.lock().err();
            }
            self.segments.retain(|segment| segment.held().0 > 0);
            self.placement = Some(grown?);
            left -= piece;
        }
        Ok(())
    }

    /// Gives `bytes` back, rounded up to whole pieces, at most all.
    pub(super) fn give_back(&mut self, bytes: Bytes) {
        let mut left = bytes.0.div_ceil(QUANTUM.0).saturating_mul(QUANTUM.0);
        while let Some(last) = self.segments.last_mut() {
            let piece = left.min(last.held().0);
            // A segment that cannot be divided any more goes as a whole.
            if piece == last.held().0 || last.shrink(Bytes(piece)).is_err() {
                self.segments.pop();
            }
            left -= piece;
            if left == 0 {
                break;
            }
        }
    }

    /// Touches about `bytes` of what is not locked, from where the last call ended, and around.
    pub(super) fn touch_part(&mut self, bytes: Bytes) -> io::Result<()> {
        if self.locked() == self.held() {
            return Ok(());
        }
        let (index, offset) = self.next_touch;
        let Some(segment) = self.segments.get(index) else {
            self.next_touch = (0, Bytes(0));
            return Ok(());
        };
        segment.touch(offset, bytes)?;
        let end = Bytes(offset.0.saturating_add(bytes.0));
        self.next_touch = if end < segment.held() { (index, end) } else { (index + 1, Bytes(0)) };
        Ok(())
    }

    fn sum(&self, of: impl Fn(&Ballast) -> Bytes) -> Bytes {
        Bytes(self.segments.iter().map(|segment| of(segment).0).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_held_until_it_is_given_back() {
        let mut memory = HeldMemory::new(Locality::Anywhere);
        memory.take(Bytes::mib(5)).unwrap();
        memory.take(Bytes::mib(2)).unwrap();
        assert_eq!(memory.held(), Bytes::mib(8));
        memory.give_back(Bytes::mib(3));
        assert_eq!(memory.held(), Bytes::mib(4));
        memory.give_back(Bytes(u64::MAX));
        assert_eq!((memory.held(), memory.segments.len()), (Bytes(0), 0));
    }

    #[test]
    fn all_of_it_lies_on_some_node() {
        let mut memory = HeldMemory::new(Locality::Anywhere);
        memory.take(Bytes::mib(6)).unwrap();
        let nodes = memory.nodes().unwrap();
        assert_eq!(nodes.values().map(|bytes| bytes.0).sum::<u64>(), Bytes::mib(6).0);
        assert_eq!(memory.placement(), Some(Placement::Anywhere));
    }

    #[test]
    fn all_is_locked_or_the_refusal_is_known() {
        let mut memory = HeldMemory::new(Locality::Anywhere);
        memory.take(Bytes::mib(4)).unwrap();
        assert_eq!(memory.lock_refusal().is_none(), memory.locked() == Bytes::mib(4));
        for _ in 0..5 {
            memory.touch_part(Bytes::mib(1)).unwrap();
        }
        assert_eq!(memory.held(), Bytes::mib(4));
    }

    #[test]
    fn a_node_that_is_not_there_gives_nothing() {
        let mut memory = HeldMemory::new(Locality::Numa(NumaNode(1023)));
        let refused = memory.take(Bytes::mib(2));
        assert!(matches!(refused, Err(AllocateError::AbsentNode { .. })));
        assert_eq!((memory.held(), memory.placement()), (Bytes(0), None));
    }
}
