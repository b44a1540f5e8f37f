//! Gives parts of a region back to the system and restores them, while processes have the region
//! mapped.
//!
//! A restored range is treated like a new allocation: room is checked before, every page is
//! touched, and its placement is read back. Pages that lie on another node are given back at once.
//!
//! Code that lets the kernel pin pages of a region uses [`Region::pin_around`], and checks
//! [`Region::version`] before each use of them ([`super::holes`]).

use std::io;

use nix::{fcntl::FallocateFlags, sys::stat::fstat};
use tierfeed_units::Bytes;

use super::{
    Region, allocate_range, failed,
    holes::{Range, Ranges},
    parts::{self, PlacedPart},
};
use crate::{
    error::{AllocateError, Step},
    placement,
};

/// The unit of `st_blocks` of `stat(2)`, in bytes.
const BLOCK: u64 = 512;

impl Region {
    /// Gives the whole pages of a range back to the system. The range stays mapped, here and
    /// elsewhere: a read before [`Self::restore`] sees zeros, and allocates memory for them.
    /// Returns `false` for reserved huge pages, which stay: no other process could use them.
    ///
    /// # Errors
    ///
    /// [`AllocateError::Outside`] for a range that leaves the region, and [`AllocateError::System`] if
    /// the system refuses; the memory stays then.
    pub fn give_back(&self, offset: Bytes, len: Bytes) -> Result<bool, AllocateError> {
        let end = self.end_of(offset, len)?;
        if self.is_reserved {
            return Ok(false);
        }
        self.holes.change(|ranges| self.punch(ranges, &whole_pages_in(offset, end)))?;
        Ok(true)
    }

    /// Number of times that memory was given back or restored. Pages that were pinned under another
    /// version may not belong to the region any more, or keep memory allocated that it gave back.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.holes.version()
    }

    /// Lets `pin` pin pages: it gets the offset and length of the longest range around `len` bytes
    /// at `offset` that has memory and lies in the same piece of `piece` bytes, and the
    /// [version](Self::version) under which they are pinned. Meanwhile no memory of the region is
    /// given back or restored.
    ///
    /// Returns `None`, and does not call `pin`, if the range has a hole or leaves its piece or the
    /// region, or if memory is being given back or restored.
    pub fn pin_around<T>(
        &self,
        offset: Bytes,
        len: Bytes,
        piece: Bytes,
        pin: impl FnOnce(Bytes, Bytes, u64) -> T,
    ) -> Option<T> {
        let wanted = offset.0..offset.0.checked_add(len.0)?;
        let start = offset.0 - offset.0.checked_rem(piece.0)?;
        let within = start..start.saturating_add(piece.0).min(self.mapping.len().0);
        self.holes.pin(&wanted, &within, |run, version| {
            pin(Bytes(run.start), Bytes(run.end - run.start), version)
        })
    }

    /// Allocates memory again for a range that was given back, on the node of the region, and reads
    /// its placement back. Returns `false` if the range had never been given back.
    ///
    /// # Errors
    ///
    /// As [`Self::give_back`]; [`AllocateError::NoRoom`] before anything is taken if it would not fit;
    /// [`AllocateError::Misplaced`] if fewer than 99 % of the pages of the range came to lie on the node
    /// of the region. The range has no memory after an error, unless it is outside.
    pub fn restore(&self, offset: Bytes, len: Bytes) -> Result<bool, AllocateError> {
        let end = self.end_of(offset, len)?;
        if self.is_reserved {
            return Ok(false);
        }
        let _claims = self.claim_parts(offset, len)?;
        self.take_or_punch(offset, end)?;
        Ok(true)
    }

    /// Allocates memory for a range of a region that was [reserved](Self::reserve) or given back, on
    /// the node of the region, and reads its placement back. The caller has checked the room.
    ///
    /// # Errors
    ///
    /// As [`Self::restore`]. The range has no memory after an error, so it must not be in use.
    pub fn populate(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let end = self.end_of(offset, len)?;
        if self.is_reserved { Ok(()) } else { self.take_or_punch(offset, end) }
    }

    fn take_or_punch(&self, offset: Bytes, end: u64) -> Result<(), AllocateError> {
        self.holes.change(|ranges| {
            let taken = self.take_again(offset, Bytes(end - offset.0));
            match taken {
                Ok(()) => ranges.remove(&pages_around(offset, end)),
                Err(_) => self.punch(ranges, &whole_pages_in(offset, end))?,
            }
            taken
        })
    }

    fn punch(&self, ranges: &mut Ranges, hole: &Range) -> Result<(), AllocateError> {
        if hole.is_empty() {
            return Ok(());
        }
        // Also after an error: part of the range may be gone.
        ranges.add(hole);
        #[cfg(any(test, feature = "fault-injection"))]
        injection::delay();
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let len = Bytes(hole.end - hole.start);
        let punched = allocate_range(&self.fd, flags, Bytes(hole.start), len);
        punched.map_err(failed(Step::GiveBack, len))
    }

    /// Memory that the region has now, as the kernel counts it.
    ///
    /// # Errors
    ///
    /// As `fstat(2)`.
    pub fn resident(&self) -> io::Result<Bytes> {
        let blocks = u64::try_from(fstat(&self.fd)?.st_blocks).unwrap_or(0);
        Ok(Bytes(blocks.saturating_mul(BLOCK)))
    }

    fn take_again(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let taken = allocate_range(&self.fd, FallocateFlags::empty(), offset, len);
        taken.map_err(failed(Step::Reserve, len))?;
        self.mapping.populate(offset, len).map_err(failed(Step::Populate, len))?;
        self.verify_range(offset, len)
    }

    /// Reads back where a range lies, part by part.
    pub(super) fn verify_range(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let mut parts = self.parts_within(offset, len).into_iter();
        parts.try_for_each(|PlacedPart { start, len, placement }| {
            let (locality, policy) = (placement.locality(), placement.policy());
            parts::verify_part(self.mapping.raw(), (start, len), locality, policy).map(drop)
        })
    }

    fn end_of(&self, offset: Bytes, len: Bytes) -> Result<u64, AllocateError> {
        let mapped = self.mapping.len();
        let end = offset.0.checked_add(len.0).filter(|end| *end <= mapped.0);
        end.ok_or(AllocateError::Outside { offset, len, mapped })
    }
}

fn whole_pages_in(offset: Bytes, end: u64) -> Range {
    let page = placement::page_bytes() as u64;
    offset.0.next_multiple_of(page)..end - end % page
}

pub(super) fn pages_around(offset: Bytes, end: u64) -> Range {
    let page = placement::page_bytes() as u64;
    offset.0 - offset.0 % page..end.next_multiple_of(page)
}

/// Delays the release of memory, for tests of concurrent accesses.
#[cfg(any(test, feature = "fault-injection"))]
pub mod injection {
    use std::{
        sync::atomic::{AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    static MICROSECONDS: AtomicU64 = AtomicU64::new(0);

    /// From now on every region of this process waits for `delay` before it gives memory back.
    pub fn give_back_late(delay: Duration) {
        let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        MICROSECONDS.store(delay, Ordering::Relaxed);
    }

    #[expect(clippy::disallowed_methods, reason = "the fault is that time passes")]
    pub(super) fn delay() {
        let delay = MICROSECONDS.load(Ordering::Relaxed);
        if delay > 0 {
            thread::sleep(Duration::from_micros(delay));
        }
    }
}

#[cfg(test)]
mod tests {
    use tierfeed_units::{Locality, NumaNode};

    use super::*;
    use crate::{
        policy::Policy,
        region::{Pages, Request},
    };

    const LEN: Bytes = Bytes::mib(2);
    const HALF: Bytes = Bytes::mib(1);

    fn region(locality: Locality) -> Region {
        let request = Request { len: LEN, locality, name: "give_back", pages: Pages::Small };
        Region::allocate(&request).unwrap()
    }

    #[test]
    fn only_the_restored_range_is_looked_at() {
        let region = region(Locality::Numa(NumaNode(0)));
        region.give_back(Bytes(0), LEN).unwrap();
        assert!(region.restore(HALF, HALF).unwrap(), "the other half has no place to be found");
        assert_eq!(region.resident().unwrap(), HALF);
        region.restore(Bytes(0), HALF).unwrap();
        assert_eq!(region.resident().unwrap(), LEN);
    }

    #[test]
    fn a_range_that_lies_elsewhere_is_found_out() {
        let region = region(Locality::Numa(NumaNode(0)));
        let on = |node: u32| {
            let wanted = Locality::Numa(NumaNode(node));
            parts::verify_part(region.mapping.raw(), (HALF, HALF), wanted, Policy::Applied)
        };
        let (here, absent) = (0, 999);
        on(here).unwrap();
        let error = on(absent).unwrap_err();
        assert!(
            matches!(error, AllocateError::Misplaced { pages_sampled: 16, pages_on_node: 0, .. }),
            "{error}"
        );
        region.give_back(HALF, HALF).unwrap();
        let error = on(here).unwrap_err();
        assert!(matches!(error, AllocateError::Misplaced { .. }), "nothing lies nowhere: {error}");
    }

    #[test]
    fn what_is_restored_is_as_it_was_where_nothing_was_given_back() {
        let region = region(Locality::Anywhere);
        region.write(HALF, b"kept").unwrap();
        region.restore(Bytes(0), LEN).unwrap();
        let mut bytes = [0; 4];
        region.read(HALF, &mut bytes).unwrap();
        assert_eq!((bytes, region.resident().unwrap()), (*b"kept", LEN));
    }

    /// As when the requested node filled up between the check and the first touch.
    #[test]
    #[ignore = "needs several memory nodes: make test-numa"]
    fn memory_that_comes_back_on_another_node_is_given_back() {
        use crate::policy::{self, Mode};

        let region = region(Locality::Numa(NumaNode(0)));
        region.give_back(HALF, HALF).unwrap();
        policy::bind(region.mapping.raw(), NumaNode(1), Mode::Prefer).unwrap();
        let error = region.restore(HALF, HALF).unwrap_err();
        assert!(matches!(error, AllocateError::Misplaced { pages_on_node: 0, .. }), "{error}");
        assert_eq!(region.resident().unwrap(), HALF, "nothing stays");
        policy::bind(region.mapping.raw(), NumaNode(0), Mode::Prefer).unwrap();
        region.restore(HALF, HALF).unwrap();
    }
}
