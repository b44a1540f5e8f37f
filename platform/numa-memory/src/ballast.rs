//! Holds memory so that no other process can use it.
//!
//! A ballast is a range of address space that fills from its start and empties from its end, so
//! that any multiple of [`QUANTUM`] can be held without a list of pieces. Its policy is a
//! preference, never strict: the kernel kills a process that fills a node it is bound to. Pages
//! that lie on another node are detected and given back.
//!
//! 1. The first [`Ballast::held`] bytes are touched; no byte behind them is.
//! 2. The first [`Ballast::locked`] bytes are locked, never more than are held.
//! 3. Nothing here checks whether there is room: the caller takes memory on purpose and decides
//!    that.

use std::{collections::BTreeMap, ffi::c_void, io, ptr::NonNull, thread};

use memmap2::{Advice, MmapOptions, MmapRaw, UncheckedAdvice};
use nix::sys::mman;
use tierfeed_units::{Bytes, Locality, NumaNode};

use crate::{
    error::{AllocateError, Step},
    mapping::Mapping,
    placement::{self, Found, Placement},
    policy::{self, Mode, Policy},
    region::{self, Pages},
};

/// The held size is a multiple of this: a huge page of most machines, because a part of one that is
/// given back stays with the process until the kernel runs short.
pub const QUANTUM: Bytes = Bytes::mib(2);

/// The placement of one page in so many bytes is queried.
const SAMPLE_STRIDE: Bytes = Bytes(128 << 10);

/// Memory that is held.
#[derive(Debug)]
pub struct Ballast {
    /// Longer than `room` by one quantum, so that it can start on one.
    mapping: Mapping,
    start: Bytes,
    room: Bytes,
    held: Bytes,
    locked: Bytes,
    locality: Locality,
    policy: Policy,
}

impl Ballast {
    /// Reserves address space for `room`, rounded up to whole quanta, and holds none of it yet.
    ///
    /// # Errors
    ///
    /// [`AllocateError::AbsentNode`] for a node without memory; [`AllocateError::System`] if the
    /// kernel denies the address space, as under `vm.overcommit_memory=2`.
    pub fn reserve(room: Bytes, locality: Locality) -> Result<Self, AllocateError> {
        let room = match room {
            Bytes(0) => return Err(AllocateError::Empty),
            Bytes(room) => Bytes(room.saturating_add(QUANTUM.0 - 1) / QUANTUM.0 * QUANTUM.0),
        };
        let too_large = |_| AllocateError::TooLarge { len: room };
        let anonymous = MmapOptions::new()
            .len(usize::try_from(room.0 + QUANTUM.0).map_err(too_large)?)
            .no_reserve_swap()
            .map_anon()
            .map_err(|source| AllocateError::System { step: Step::Map, len: room, source })?;
        let raw = MmapRaw::from(anonymous);
        region::advise_pages(&raw, Pages::Huge);
        let policy = region::set_policy(&raw, locality, room, Mode::Prefer)?;
        let address = raw.as_ptr() as u64;
        let start = Bytes(address.next_multiple_of(QUANTUM.0) - address);
        let (held, locked) = (Bytes(0), Bytes(0));
        Ok(Self { mapping: Mapping::new(raw), start, room, held, locked, locality, policy })
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> Bytes {
        self.held
    }

    /// Held bytes that the kernel may not swap.
    #[must_use]
    pub fn locked(&self) -> Bytes {
        self.locked
    }

    /// Bytes that can still be taken.
    #[must_use]
    pub fn free(&self) -> Bytes {
        Bytes(self.room.0 - self.held.0)
    }

    /// Takes `bytes` more, rounded up to whole quanta, touches them on `threads` threads and reads
    /// their placement back.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] if less room is left, [`AllocateError::Misplaced`] if the node did
    /// not provide the memory. Previously held memory stays held, and no more.
    pub fn grow(&mut self, bytes: Bytes, threads: usize) -> Result<Placement, AllocateError> {
        let bytes = Bytes(bytes.0.div_ceil(QUANTUM.0).saturating_mul(QUANTUM.0));
        if bytes > self.free() {
            let (available, locality) = (self.free(), self.locality);
            return Err(AllocateError::NoRoom { wanted: bytes, available, locality });
        }
        let from = self.held;
        self.held.0 += bytes.0;
        let placed = self
            .populate(from, threads)
            .map_err(|source| AllocateError::System { step: Step::Populate, len: bytes, source })
            .and_then(|()| self.verify(from));
        if placed.is_err() {
            // For memory that was never locked this gives everything back.
            self.shrink(bytes).map_err(|source| AllocateError::System {
                step: Step::GiveBack,
                len: bytes,
                source,
            })?;
        }
        placed
    }

    /// Gives `bytes` back, rounded up to whole quanta, at most everything.
    ///
    /// # Errors
    ///
    /// If the kernel can no longer describe the parts of the memory (`vm.max_map_count`); drop the
    /// ballast then.
    #[expect(unsafe_code, reason = "gives pages back")]
    pub fn shrink(&mut self, bytes: Bytes) -> io::Result<()> {
        let bytes = bytes.0.div_ceil(QUANTUM.0).saturating_mul(QUANTUM.0).min(self.held.0);
        let kept = Bytes(self.held.0 - bytes);
        if self.locked > kept {
            let (start, count) = self.range(kept, Bytes(self.locked.0 - kept.0));
            // SAFETY:
            // - The range is part of one live mapping that `self` owns.
            // - `munlock` changes no byte of it.
            unsafe { mman::munlock(start, count) }?;
            self.locked = kept;
        }
        let (offset, count) = self.offsets(kept, Bytes(bytes));
        let raw = self.mapping.raw();
        // SAFETY:
        // - The range is part of one live mapping that `self` owns, private and anonymous.
        // - Its bytes become zero. No reference to them exists: the mapping never leaves this
        //   value, and no method reads it.
        unsafe { raw.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, count) }?;
        self.held = kept;
        Ok(())
    }

    /// Locks the held memory.
    ///
    /// # Errors
    ///
    /// As `mlock(2)`: `ENOMEM` or `EPERM` beyond `RLIMIT_MEMLOCK` without `CAP_IPC_LOCK`. The
    /// memory stays held.
    #[expect(unsafe_code, reason = "locks pages")]
    pub fn lock(&mut self) -> io::Result<()> {
        let (start, count) = self.range(self.locked, Bytes(self.held.0 - self.locked.0));
        // SAFETY:
        // - The range is part of one live mapping that `self` owns.
        // - `mlock` changes no byte of it.
        unsafe { mman::mlock(start, count) }?;
        self.locked = self.held;
        Ok(())
    }

    /// Touches up to `len` held bytes from `offset` on, so that they stay resident.
    ///
    /// # Errors
    ///
    /// If the kernel could not bring them back from swap.
    pub fn touch(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        let from = offset.min(self.held);
        self.populate_one(from, Bytes(len.0.min(self.held.0 - from.0)))
    }

    /// Held bytes by node, estimated from one page in 128 KiB; `None` if the kernel denies the
    /// query.
    #[must_use]
    pub fn nodes(&self) -> Option<BTreeMap<NumaNode, Bytes>> {
        let mut nodes = BTreeMap::new();
        let places = policy::nodes_of(&self.sampled_pages(Bytes(0))).ok()?;
        for node in places.into_iter().filter_map(|it| u32::try_from(it).ok()) {
            nodes.entry(NumaNode(node)).or_insert(Bytes(0)).0 += SAMPLE_STRIDE.0;
        }
        Some(nodes)
    }

    fn populate(&self, from: Bytes, threads: usize) -> io::Result<()> {
        let quanta = (self.held.0 - from.0) / QUANTUM.0;
        let share = quanta.div_ceil(threads.max(1) as u64).max(1) * QUANTUM.0;
        let mut starts =
            (from.0..self.held.0).step_by(usize::try_from(share).unwrap_or(usize::MAX));
        let Some(own) = starts.next() else { return Ok(()) };
        thread::scope(|scope| {
            let part =
                |start: u64| self.populate_one(Bytes(start), Bytes(share.min(self.held.0 - start)));
            let others: Vec<_> = starts.map(|start| scope.spawn(move || part(start))).collect();
            let mut outcome = part(own);
            for other in others {
                outcome = outcome.and(other.join().expect("touching memory does not panic"));
            }
            outcome
        })
    }

    fn populate_one(&self, from: Bytes, len: Bytes) -> io::Result<()> {
        let (offset, count) = self.offsets(from, len);
        loop {
            match self.mapping.raw().advise_range(Advice::PopulateWrite, offset, count) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                // Linux before 5.14. The content does not matter, so writing zeros is allowed.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    let offset = Bytes(self.start.0 + from.0);
                    return self.mapping.fill(offset, len, 0).map_err(io::Error::from);
                }
                outcome => return outcome,
            }
        }
    }

    fn verify(&self, from: Bytes) -> Result<Placement, AllocateError> {
        placement::judge(self.locality, self.policy, |node| {
            let places = policy::nodes_of(&self.sampled_pages(from)).ok()?;
            let on_node = places.iter().filter(|it| i64::from(**it) == i64::from(node.0));
            Some(Found { pages_on_node: on_node.count(), pages_sampled: places.len() })
        })
    }

    fn sampled_pages(&self, from: Bytes) -> Vec<*const c_void> {
        let (start, count) = self.range(from, Bytes(self.held.0 - from.0));
        let first = start.as_ptr() as usize;
        let stride =
            usize::try_from(SAMPLE_STRIDE.0).expect("the constant fits in the address space");
        (first..first + count).step_by(stride).map(|page| page as *const c_void).collect()
    }

    /// Offset and length in the mapping of `len` bytes from `from` on.
    fn offsets(&self, from: Bytes, len: Bytes) -> (usize, usize) {
        let size = |bytes: u64| usize::try_from(bytes).expect("a mapped length fits");
        (size(self.start.0 + from.0), size(len.0))
    }

    fn range(&self, from: Bytes, len: Bytes) -> (NonNull<c_void>, usize) {
        let (offset, count) = self.offsets(from, len);
        let start = self.mapping.as_ptr_range(Bytes(offset as u64), len);
        let start = start.expect("what is held lies in the mapping").cast();
        (NonNull::new(start).expect("a mapping does not start at address 0"), count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballast(room_mib: u64) -> Ballast {
        Ballast::reserve(Bytes::mib(room_mib), Locality::Anywhere).unwrap()
    }

    /// Resident bytes of the ballast, as the kernel reports them.
    fn resident(ballast: &Ballast) -> Bytes {
        let (start, count) = ballast.range(Bytes(0), ballast.room);
        let first = start.as_ptr() as usize;
        let pages: Vec<_> =
            (first..first + count).step_by(4096).map(|page| page as *const c_void).collect();
        let present = policy::nodes_of(&pages).unwrap().iter().filter(|it| **it >= 0).count();
        Bytes(present as u64 * 4096)
    }

    #[test]
    fn what_is_held_is_resident_and_what_was_given_back_is_not() {
        let mut ballast = ballast(32);
        assert_eq!(resident(&ballast), Bytes(0));
        ballast.grow(Bytes::mib(20), 2).unwrap();
        assert_eq!((ballast.held(), resident(&ballast)), (Bytes::mib(20), Bytes::mib(20)));
        ballast.shrink(Bytes::mib(6)).unwrap();
        assert_eq!((ballast.held(), resident(&ballast)), (Bytes::mib(14), Bytes::mib(14)));
        assert_eq!(ballast.free(), Bytes::mib(18));
        ballast.shrink(Bytes(u64::MAX)).unwrap();
        assert_eq!((ballast.held(), resident(&ballast)), (Bytes(0), Bytes(0)));
    }

    #[test]
    fn amounts_are_rounded_up_to_whole_quanta() {
        let mut ballast = ballast(7);
        assert_eq!(ballast.free(), Bytes::mib(8));
        ballast.grow(Bytes(1), 1).unwrap();
        assert_eq!(ballast.held(), QUANTUM);
        ballast.grow(Bytes::mib(3), 5).unwrap();
        ballast.shrink(Bytes(1)).unwrap();
        assert_eq!(ballast.held(), Bytes::mib(4));
    }

    #[test]
    fn more_than_the_room_is_refused_and_takes_nothing() {
        let mut ballast = ballast(4);
        ballast.grow(Bytes::mib(2), 1).unwrap();
        let refused = ballast.grow(Bytes::mib(4), 1);
        assert!(matches!(refused, Err(AllocateError::NoRoom { available, .. })
            if available == Bytes::mib(2)));
        assert_eq!((ballast.held(), resident(&ballast)), (QUANTUM, QUANTUM));
    }

    #[test]
    fn locked_memory_can_be_given_back() {
        let mut ballast = ballast(4);
        ballast.grow(Bytes::mib(4), 1).unwrap();
        if ballast.lock().is_err() {
            assert_eq!((ballast.held(), ballast.locked()), (Bytes::mib(4), Bytes(0)));
        } else {
            assert_eq!(ballast.locked(), Bytes::mib(4));
            ballast.shrink(Bytes::mib(2)).unwrap();
            assert_eq!((ballast.held(), ballast.locked()), (QUANTUM, QUANTUM));
            assert_eq!(resident(&ballast), QUANTUM);
        }
    }

    #[test]
    fn touching_reaches_no_further_than_what_is_held() {
        let mut ballast = ballast(8);
        ballast.grow(Bytes::mib(2), 1).unwrap();
        ballast.touch(Bytes(0), Bytes::mib(8)).unwrap();
        ballast.touch(Bytes::mib(6), Bytes::mib(8)).unwrap();
        assert_eq!(resident(&ballast), QUANTUM);
    }

    #[test]
    fn every_quantum_lies_on_some_node() {
        let mut ballast = ballast(4);
        ballast.grow(Bytes::mib(4), 1).unwrap();
        let nodes = ballast.nodes().unwrap();
        assert_eq!(nodes.values().map(|it| it.0).sum::<u64>(), Bytes::mib(4).0);
    }

    #[test]
    fn an_absent_node_is_named() {
        let refused = Ballast::reserve(QUANTUM, Locality::Numa(NumaNode(1023)));
        assert!(matches!(refused, Err(AllocateError::AbsentNode { node: NumaNode(1023) })));
    }

    #[test]
    #[ignore = "needs several memory nodes: make test-numa"]
    fn a_node_is_held_without_being_bound_and_what_spills_is_given_back() {
        // Not a CXL device, which takes minutes to fill where it is emulated.
        let node = NumaNode(1);
        let free = || crate::capacity::free_bytes("/".as_ref(), Some(node)).unwrap();
        let before = free();
        let room = Bytes(before.0 + (96 << 20));
        let mut ballast = Ballast::reserve(room, Locality::Numa(node)).unwrap();
        let placement = ballast.grow(Bytes::mib(64), 2).unwrap();
        assert!(matches!(placement, Placement::Verified { node: on, .. } if on == node));
        assert_eq!(ballast.nodes().unwrap(), BTreeMap::from([(node, Bytes::mib(64))]));
        let spilled = ballast.grow(ballast.free(), 2).unwrap_err();
        assert!(matches!(spilled, AllocateError::Misplaced { .. }), "{spilled}");
        assert_eq!(ballast.held(), Bytes::mib(64), "what was held before stays");
        drop(ballast);
        // All of the node was taken, and the kernel keeps part of the returned memory.
        assert!(free().0 > before.0 / 4 * 3, "{} of {before} are free again", free());
    }
}
