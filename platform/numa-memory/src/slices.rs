//! Records which slices of a chunk have memory, and claims the room of the others.
//!
//! To touch every page of a large chunk takes long, so it is done slice by slice: a background
//! thread does it in order, and an access that comes earlier does it for its own slices. The room
//! for the whole chunk is checked and claimed at first. It is checked again before each slice,
//! because another process may have taken it meanwhile. Then the access fails, and no process is
//! killed for lack of memory.
//!
//! 1. A slice is populated by one thread at a time, and not again after that succeeded. So a slice
//!    whose population failed holds no bytes that anyone uses.
//! 2. The claim covers the slices that have no memory.

use std::{
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tierfeed_units::{Bytes, Locality};

use crate::{
    capacity::{self, Claim, Purpose},
    error::AllocateError,
};

/// The length of a slice: populating it takes some milliseconds, and it starts on a huge page.
pub const SLICE: Bytes = Bytes::mib(16);

/// The slices of one chunk.
#[derive(Debug)]
pub struct Slices {
    len: Bytes,
    locality: Locality,
    states: Box<[Slice]>,
    missing: AtomicUsize,
    /// `None` if the free memory is unknown.
    claim: Mutex<Option<Claim>>,
}

#[derive(Debug, Default)]
struct Slice {
    has_memory: AtomicBool,
    populating: Mutex<()>,
}

impl Slices {
    /// Claims room for a cache of `len` bytes, of which no slice has memory yet.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] if it would not fit, [`AllocateError::AbsentNode`],
    /// [`AllocateError::FreeMemoryUnreadable`], and [`AllocateError::Empty`] for no bytes.
    pub fn reserve(len: Bytes, locality: Locality) -> Result<Self, AllocateError> {
        let claim = capacity::claim(Path::new("/"), locality, len, Purpose::Cache)?;
        Ok(Self { claim: Mutex::new(Some(claim)), ..Self::unclaimed(len, locality) })
    }

    /// As [`Self::reserve`], without a look at the free memory.
    #[must_use]
    pub fn unclaimed(len: Bytes, locality: Locality) -> Self {
        let count = usize::try_from(len.0.div_ceil(SLICE.0)).unwrap_or(usize::MAX);
        let states = (0..count).map(|_| Slice::default()).collect();
        Self { len, locality, states, missing: AtomicUsize::new(count), claim: Mutex::new(None) }
    }

    /// The slices of memory that was populated when it was allocated.
    #[must_use]
    pub fn complete() -> Self {
        Self::unclaimed(Bytes(0), Locality::Anywhere)
    }

    /// Number of bytes that have no memory yet, in whole slices.
    #[must_use]
    pub fn missing(&self) -> Bytes {
        let missing = self.missing.load(Ordering::Acquire) as u64;
        Bytes(missing.saturating_mul(SLICE.0).min(self.len.0))
    }

    /// Calls `populate` with the offset and length of each slice that touches `len` bytes at
    /// `offset` and has no memory yet. Waits for a slice that another thread populates.
    ///
    /// # Errors
    ///
    /// [`AllocateError::NoRoom`] if other processes took the memory meanwhile, else the error of
    /// `populate`. The slice has no memory then, and a later call tries again.
    pub fn ensure<E: From<AllocateError>>(
        &self,
        offset: Bytes,
        len: Bytes,
        mut populate: impl FnMut(Bytes, Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.missing.load(Ordering::Acquire) == 0 || len.0 == 0 {
            return Ok(());
        }
        let end = offset.0.saturating_add(len.0).div_ceil(SLICE.0);
        let touched = offset.0 / SLICE.0..end.min(self.states.len() as u64);
        touched.into_iter().try_for_each(|index| self.ensure_slice(index, &mut populate))
    }

    /// Populates the first slice that has no memory; returns how many bytes are missing after that.
    ///
    /// # Errors
    ///
    /// As [`Self::ensure`].
    pub fn ensure_next<E: From<AllocateError>>(
        &self,
        populate: impl FnMut(Bytes, Bytes) -> Result<(), E>,
    ) -> Result<Bytes, E> {
        let next = self.states.iter().position(|it| !it.has_memory.load(Ordering::Acquire));
        if let Some(index) = next {
            self.ensure(Bytes(index as u64 * SLICE.0), Bytes(1), populate)?;
        }
        Ok(self.missing())
    }

    fn ensure_slice<E: From<AllocateError>>(
        &self,
        index: u64,
        populate: &mut impl FnMut(Bytes, Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        let slice = usize::try_from(index).ok().and_then(|index| self.states.get(index));
        let Some(slice) = slice else { return Ok(()) };
        if slice.has_memory.load(Ordering::Acquire) {
            return Ok(());
        }
        let _populating = slice.populating.lock().unwrap_or_else(PoisonError::into_inner);
        if slice.has_memory.load(Ordering::Acquire) {
            return Ok(());
        }
        let offset = Bytes(index * SLICE.0);
        let len = Bytes(SLICE.0.min(self.len.0 - offset.0));
        #[cfg(any(test, feature = "fault-injection"))]
        injection::pass(offset, len, self.locality)?;
        if self.with_claim(|_| ()).is_some() {
            capacity::check_claimed(Path::new("/"), self.locality, len)?;
        }
        populate(offset, len)?;
        slice.has_memory.store(true, Ordering::Release);
        self.missing.fetch_sub(1, Ordering::AcqRel);
        self.with_claim(|claim| claim.release(len));
        Ok(())
    }

    fn with_claim<T>(&self, act: impl FnOnce(&mut Claim) -> T) -> Option<T> {
        self.claim.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(act)
    }
}

/// Delays or refuses memory behind the first slice of a chunk, for tests.
#[cfg(any(test, feature = "fault-injection"))]
pub mod injection {
    use std::{
        sync::atomic::{AtomicBool, AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use tierfeed_units::{Bytes, Locality};

    use crate::error::AllocateError;

    static MICROSECONDS: AtomicU64 = AtomicU64::new(0);
    static IS_FULL: AtomicBool = AtomicBool::new(false);

    /// From now on every slice but the first of a chunk takes `delay` longer.
    pub fn populate_late(delay: Duration) {
        let delay = u64::try_from(delay.as_micros()).unwrap_or(u64::MAX);
        MICROSECONDS.store(delay, Ordering::Relaxed);
    }

    /// From now on there is no room for any slice but the first of a chunk.
    pub fn take_all_memory() {
        IS_FULL.store(true, Ordering::Relaxed);
    }

    /// Ends the effect of [`take_all_memory`].
    pub fn return_memory() {
        IS_FULL.store(false, Ordering::Relaxed);
    }

    #[expect(clippy::disallowed_methods, reason = "the fault is that time passes")]
    pub(super) fn pass(
        offset: Bytes,
        wanted: Bytes,
        locality: Locality,
    ) -> Result<(), AllocateError> {
        if offset.0 == 0 {
            return Ok(());
        }
        let delay = MICROSECONDS.load(Ordering::Relaxed);
        if delay > 0 {
            thread::sleep(Duration::from_micros(delay));
        }
        if IS_FULL.load(Ordering::Relaxed) {
            return Err(AllocateError::NoRoom { wanted, available: Bytes(0), locality });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
