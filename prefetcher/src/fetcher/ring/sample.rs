//! A sample on its way over a ring: which file, which pieces, and what comes of it.

use std::{
    fs::File,
    io, mem,
    os::fd::AsFd as _,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tierfeed_core::units::Bytes;
use tierfeed_dataset::{Extent, format::Encoding};
use tierfeed_file_io::direct;
use tierfeed_numa_memory::cached;

use super::pending::{RUN_MAX, Span, Way};
use crate::fetcher::{Fetch, Target};
use tierfeed_dataset::read::{
    Version,
    file::{indexed_version, is_shared},
    open_files::open_direct,
};

/// A file that is read past the page cache.
#[derive(Debug)]
pub(super) struct Direct {
    pub(super) file: Arc<File>,
    /// What the place of a read must be a multiple of; a power of two.
    memory: u64,
    /// What offset and length must be multiples of; a power of two.
    pub(super) block: u64,
}

impl Direct {
    /// Opens a file past the page cache.
    ///
    /// # Errors
    ///
    /// As `open(2)`, and [`io::ErrorKind::Unsupported`] if the file system cannot, or wants more than a
    /// page.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open_direct(path)?;
        let alignment = direct::alignment(&file)?.ok_or(io::ErrorKind::Unsupported)?;
        let (memory, block) = (alignment.memory.0, alignment.offset.0);
        let is_usual = |it: u64| it.is_power_of_two() && it <= direct_max();
        if !is_usual(memory) || !is_usual(block) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { file: Arc::new(file), memory, block })
    }

    fn way(&self, offset: u64, len: u64, place: u64) -> Way {
        let is_straight = offset.is_multiple_of(self.block)
            && len.is_multiple_of(self.block)
            && place.is_multiple_of(self.memory.max(self.block));
        if is_straight { Way::Straight } else { Way::Bounce }
    }

    /// Whether the page cache holds most of a range, which is then read from there.
    pub(super) fn is_cached(&self, offset: u64, len: u64) -> bool {
        self.cached(offset, len).is_ok_and(|it| it.0 > len / 2)
    }

    /// How much of a range the page cache holds.
    pub(super) fn cached(&self, offset: u64, len: u64) -> io::Result<Bytes> {
        cached(self.file.as_fd(), Bytes(offset), Bytes(len))
    }
}

fn direct_max() -> u64 {
    tierfeed_file_io::buffer::ALIGNMENT as u64
}

/// A sample of which pieces are still to come.
#[derive(Debug)]
pub(super) struct Sample {
    /// Taken when all pieces came.
    fetch: Mutex<Option<Fetch>>,
    to: Target,
    pub(super) direct: Arc<Direct>,
    extent: Extent,
    left: AtomicU64,
    is_lost: AtomicBool,
}

/// A part of a sample.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) sample: Arc<Sample>,
    /// From the start of the sample.
    pub(super) at: Bytes,
}

/// How a sample ended.
pub(super) enum Outcome {
    /// Other pieces are to come.
    Unfinished,
    /// All bytes are there, if the object is still the one that was indexed.
    There(Fetch),
    /// Some could not be read this way.
    Lost(Fetch),
}

/// Whether a ring can read it, as far as the index says.
pub(super) fn is_for_ring(extent: &Extent, to: &Target) -> bool {
    is_plain_part(extent) && extent.len == to.len.0
}

/// Whether it is a part of a file as it is stored.
pub(super) fn is_plain_part(extent: &Extent) -> bool {
    extent.encoding == Encoding::Plain && is_shared(extent) && extent.len > 0
}

/// Takes a sample apart; gives it back if it is better read through the page cache.
pub(super) fn pieces(
    fetch: Fetch,
    extent: Extent,
    direct: Arc<Direct>,
) -> Result<Vec<(Span, Piece)>, Fetch> {
    let (from, len) = (extent.offset, extent.len);
    if direct.is_cached(from, len) {
        return Err(fetch);
    }
    let to = fetch.to.clone();
    let file = Arc::as_ptr(&direct.file).addr();
    let sample = Arc::new(Sample {
        fetch: Mutex::new(Some(fetch)),
        direct,
        extent,
        left: AtomicU64::new(len.div_ceil(RUN_MAX)),
        is_lost: AtomicBool::new(false),
        to,
    });
    let piece = |start: u64| {
        let len = (len - start).min(RUN_MAX);
        let place = sample.to.offset.0 + start;
        let offset = from + start;
        // What is summed comes through memory that nobody else maps.
        let way =
            if sample.to.is_summed() { Way::Bounce } else { sample.direct.way(offset, len, place) };
        let piece = Piece { sample: Arc::clone(&sample), at: Bytes(start) };
        (Span { file, offset, len, way }, piece)
    };
    Ok((0..len).step_by(usize::try_from(RUN_MAX).unwrap_or(usize::MAX)).map(piece).collect())
}

impl Sample {
    /// Where it goes.
    pub(super) fn to(&self) -> &Target {
        &self.to
    }

    /// Whether an object like this is the one that was indexed.
    pub(super) fn is_of(&self, found: Version) -> bool {
        found == indexed_version(&self.extent)
    }

    /// The object.
    pub(super) fn path(&self) -> &Path {
        &self.extent.path
    }

    /// Takes note that a piece came, or did not.
    pub(super) fn piece_ended(&self, is_there: bool) -> Outcome {
        if !is_there {
            self.is_lost.store(true, Ordering::Relaxed);
        }
        // The last one sees what all others wrote before.
        if self.left.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Outcome::Unfinished;
        }
        let fetch = mem::take(&mut *self.fetch.lock().unwrap_or_else(PoisonError::into_inner));
        match (fetch, self.is_lost.load(Ordering::Relaxed)) {
            (Some(fetch), false) => Outcome::There(fetch),
            (Some(fetch), true) => Outcome::Lost(fetch),
            (None, _) => Outcome::Unfinished,
        }
    }
}
