//! One chunk of a tier or one arena: bytes, and the checksums of the samples among them.
//!
//! Operations hold it by `Arc`. One that still runs when its chunk is dropped writes to memory that
//! nobody will read, never to memory that is somebody else's by now.

use std::{
    fs::File,
    io,
    os::fd::AsFd as _,
    os::unix::fs::FileExt as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{AllocateError, Region};

use crate::tier::sums::{Summing, Sums};

/// Where the bytes of a store lie.
#[derive(Debug)]
pub(crate) enum Body {
    /// In memory of this process.
    Memory(Arc<Region>),
    /// In a file without a name.
    File(File),
}

/// A stretch of memory or of a file.
#[derive(Debug)]
pub(crate) struct Store {
    body: Body,
    len: Bytes,
    sums: Mutex<Sums>,
    held: Held,
}

/// Counts bytes into a total for as long as it lives.
#[derive(Debug)]
struct Held {
    total: Arc<AtomicU64>,
    bytes: AtomicU64,
}

impl Held {
    fn add(&self, len: Bytes) {
        self.bytes.fetch_add(len.0, Ordering::Relaxed);
        self.total.fetch_add(len.0, Ordering::Relaxed);
    }

    fn take_off(&self, len: Bytes) {
        self.bytes.fetch_sub(len.0, Ordering::Relaxed);
        self.total.fetch_sub(len.0, Ordering::Relaxed);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// A range of a store.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) store: Arc<Store>,
    pub(crate) offset: Bytes,
    pub(crate) len: Bytes,
}

impl Store {
    /// A store of `len` bytes, counted into `total` while it lives.
    pub(crate) fn new(body: Body, len: Bytes, total: &Arc<AtomicU64>) -> Self {
        let held = Held { total: Arc::clone(total), bytes: AtomicU64::new(0) };
        held.add(len);
        Self { body, len, sums: Mutex::default(), held }
    }

    /// Gives the memory of a range back; each range once.
    ///
    /// # Errors
    ///
    /// As [`Region::give_back`]. Of a file nothing is given back.
    pub(crate) fn trim(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let Body::Memory(region) = &self.body else { return Ok(()) };
        region.give_back(offset, len)?;
        self.held.take_off(len);
        Ok(())
    }

    /// Takes memory for a range that was trimmed.
    ///
    /// # Errors
    ///
    /// As [`Region::restore`].
    pub(crate) fn restore(&self, offset: Bytes, len: Bytes) -> Result<(), AllocateError> {
        let Body::Memory(region) = &self.body else { return Ok(()) };
        region.restore(offset, len)?;
        self.held.add(len);
        Ok(())
    }

    /// Where its bytes lie.
    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// The sums of its samples. A panic between two changes leaves fewer sums, never wrong ones.
    pub(crate) fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses ranges that leave the store: a file would grow.
    fn check(&self, offset: Bytes, len: Bytes) -> io::Result<()> {
        match offset.0.checked_add(len.0) {
            Some(end) if end <= self.len.0 => Ok(()),
            _ => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        }
    }
}

/// Copies `len` bytes between ranges, and takes into `summing` what arrived.
///
/// What is summed is the copy, where it can be read back without a system call: the bytes at the
/// origin may be written by a trainer meanwhile. Where the copy lies in a file, the origin is summed
/// after the copy, so that a change that reached the file is seen.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] for a range outside its store, else as `preadv2(2)` and `pwrite(2)`.
pub(crate) fn copy(
    from: (&Store, Bytes),
    to: (&Store, Bytes),
    len: Bytes,
    summing: Option<&mut Summing>,
) -> io::Result<()> {
    let ((from, from_offset), (to, to_offset)) = (from, to);
    from.check(from_offset, len)?;
    to.check(to_offset, len)?;
    let summed = match (&from.body, &to.body) {
        (Body::Memory(origin), Body::Memory(copy)) => {
            copy.copy_from(to_offset, origin, from_offset, len)?;
            (copy, to_offset)
        }
        (Body::File(origin), Body::Memory(copy)) => {
            let read = copy.read_from_file(to_offset, len, origin.as_fd(), from_offset)?;
            if read < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (copy, to_offset)
        }
        (Body::Memory(origin), Body::File(copy)) => {
            origin.write_to_file(from_offset, len, copy.as_fd(), to_offset)?;
            (origin, from_offset)
        }
        (Body::File(origin), Body::File(copy)) => {
            return copy_between_files((origin, from_offset), (copy, to_offset), len, summing);
        }
    };
    if let Some(summing) = summing {
        let (region, offset) = summed;
        region.for_each_piece(offset, len, |piece| summing.update(piece))?;
    }
    Ok(())
}

/// Through a buffer, not `copy_file_range(2)`: the bytes must be summed on the way.
fn copy_between_files(
    from: (&File, Bytes),
    to: (&File, Bytes),
    len: Bytes,
    summing: Option<&mut Summing>,
) -> io::Result<()> {
    let mut buffer = vec![0; usize::try_from(len.0).map_err(|_| io::ErrorKind::InvalidInput)?];
    from.0.read_exact_at(&mut buffer, from.1.0)?;
    to.0.write_all_at(&buffer, to.1.0)?;
    if let Some(summing) = summing {
        summing.update(&buffer);
    }
    Ok(())
}
