//! Holds memory, so that any amount can be taken and given back to within 2 MiB.
//!
//! What may be locked is locked; the rest is touched again and again, because the kernel moves memory
//! that is not used to swap. Nothing here asks whether there is room: that is decided before.

use std::{collections::BTreeMap, io, thread};

use tierfeed_core::{id::NumaNode, tier::Locality, units::Bytes};
use tierfeed_numa_memory::{AllocateError, Ballast, Placement};

/// The kernel clears a page when it is first touched, and in a virtual machine the host has to bring it
/// first, for one processor at a time. So memory fills about in proportion to the threads, up to the write
/// bandwidth of a node.
const THREADS_MAX: usize = 8;

/// Memory that is held until it is given back or this is dropped.
#[derive(Debug)]
pub(super) struct HeldMemory {
    ballast: Ballast,
    threads: usize,
    lock_refusal: Option<io::Error>,
    placement: Option<Placement>,
    next_touch: Bytes,
}

impl HeldMemory {
    /// Holds nothing yet, and at most `most` later.
    pub(super) fn reserve(most: Bytes, locality: Locality) -> Result<Self, AllocateError> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            ballast: Ballast::reserve(most, locality)?,
            threads: cpus.min(THREADS_MAX),
            lock_refusal: None,
            placement: None,
            next_touch: Bytes(0),
        })
    }

    /// A multiple of 2 MiB.
    pub(super) fn held(&self) -> Bytes {
        self.ballast.held()
    }

    pub(super) fn locked(&self) -> Bytes {
        self.ballast.locked()
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
        self.ballast.nodes()
    }

    /// Takes `bytes` more, rounded up to whole pieces; none of them where the kernel gives no more, or
    /// not on the node asked for.
    pub(super) fn take(&mut self, bytes: Bytes) -> Result<(), AllocateError> {
        self.placement = Some(self.ballast.grow(bytes, self.threads)?);
        if self.lock_refusal.is_none() {
            self.lock_refusal = self.ballast.lock().err();
        }
        Ok(())
    }

    /// Gives `bytes` back, rounded up to whole pieces, at most all.
    pub(super) fn give_back(&mut self, bytes: Bytes) -> io::Result<()> {
        self.ballast.shrink(bytes)
    }

    /// Touches about `bytes` of what is not locked, from where the last call ended, and around.
    pub(super) fn touch_part(&mut self, bytes: Bytes) -> io::Result<()> {
        if self.locked() == self.held() {
            return Ok(());
        }
        self.ballast.touch(self.next_touch, bytes)?;
        let end = Bytes(self.next_touch.0.saturating_add(bytes.0));
        self.next_touch = if end < self.held() { end } else { Bytes(0) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(locality: Locality) -> Result<HeldMemory, AllocateError> {
        HeldMemory::reserve(Bytes::mib(64), locality)
    }

    #[test]
    fn what_was_taken_is_held_until_it_is_given_back() {
        let mut memory = reserved(Locality::Anywhere).unwrap();
        memory.take(Bytes::mib(5)).unwrap();
        memory.take(Bytes::mib(2)).unwrap();
        assert_eq!(memory.held(), Bytes::mib(8));
        memory.give_back(Bytes::mib(3)).unwrap();
        assert_eq!(memory.held(), Bytes::mib(4));
        memory.give_back(Bytes(u64::MAX)).unwrap();
        assert_eq!(memory.held(), Bytes(0));
    }

    #[test]
    fn all_of_it_lies_on_some_node() {
        let mut memory = reserved(Locality::Anywhere).unwrap();
        memory.take(Bytes::mib(6)).unwrap();
        let nodes = memory.nodes().unwrap();
        assert_eq!(nodes.values().map(|bytes| bytes.0).sum::<u64>(), Bytes::mib(6).0);
        assert_eq!(memory.placement(), Some(Placement::Anywhere));
    }

    #[test]
    fn all_is_locked_or_the_refusal_is_known() {
        let mut memory = reserved(Locality::Anywhere).unwrap();
        memory.take(Bytes::mib(4)).unwrap();
        assert_eq!(memory.lock_refusal().is_none(), memory.locked() == Bytes::mib(4));
        for _ in 0..5 {
            memory.touch_part(Bytes::mib(1)).unwrap();
        }
        assert_eq!(memory.held(), Bytes::mib(4));
    }

    #[test]
    fn a_node_that_is_not_there_gives_nothing() {
        let refused = reserved(Locality::Numa(NumaNode(1023)));
        assert!(matches!(refused, Err(AllocateError::AbsentNode { .. })));
    }
}
