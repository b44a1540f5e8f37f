//! Writes the bytes of a sample to its place in staging or in a tier, and computes the checksum of a
//! sample that a tier keeps.
//!
//! Trainers map staging and can write there at any time, by mistake or after a crash. A sum of
//! bytes read back from staging would confirm what they wrote, and the cache would give it to every
//! rank in every epoch. So the bytes of a sample that will be kept are read into private memory of
//! this process, a piece at a time, and go from there into the sum and into staging in one pass.
//! Later writes of a trainer are detected by the copy into the cache, which compares the copied
//! bytes with the sum.
//!
//! 1. A sum covers bytes from memory that only this process maps.
//! 2. It exists only if every segment of the sample came, in order from its first byte to its last.
//!    A segment that is started again drops its previous state.
//!
//! This does not protect against a process that writes into the memory of the agent itself, as one
//! of the same user can through `/proc`.

use std::{
    cell::RefCell,
    fmt,
    fs::File,
    io,
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tierfeed_core::units::Bytes;
use tierfeed_numa_memory::{Checksum, PageCache, RangeError, Region, read_cached_into, read_into};

use crate::read::sample_sum::{SEGMENT, combined, segment_len};

/// Bytes that are read into private memory at once: they are still in a processor cache when they
/// are copied.
const PIECE_BYTES: usize = 256 << 10;

thread_local! {
    /// Grows to the size that the thread reads at once, at most a piece.
    static PIECE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, Clone)]
pub struct Target {
    memory: SampleMemory,
    len: Bytes,
    sum: Option<Arc<ArrivalSum>>,
}

/// Where the bytes of a sample go. The memory stays allocated while it is written to.
#[derive(Debug, Clone)]
enum SampleMemory {
    /// In a region, from this offset on.
    Region(Arc<Region>, Bytes),
    Sink(Arc<dyn Sink>),
}

/// Takes the bytes of a sample that does not lie in one region.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Writes `bytes`, which start `at` bytes behind the start of the sample, and adds them to `sum`.
    ///
    /// # Errors
    ///
    /// If they cannot be written; they may be there in part then.
    fn write_summed(&self, at: Bytes, bytes: &[u8], sum: &mut Checksum) -> io::Result<()>;
}

#[derive(Debug)]
struct ArrivalSum {
    segments: Vec<Mutex<Segment>>,
    is_refused: AtomicBool,
}

#[derive(Debug)]
struct Segment {
    len: u64,
    sum: Checksum,
    done: u64,
}

impl Target {
    /// The destination of a sample that is not kept.
    #[must_use]
    pub fn new(region: Arc<Region>, offset: Bytes, len: Bytes) -> Self {
        Self { memory: SampleMemory::Region(region, offset), len, sum: None }
    }

    /// The destination of a sample that will be kept: the bytes written there are summed.
    #[must_use]
    pub fn summed(region: Arc<Region>, offset: Bytes, len: Bytes) -> Self {
        let sum = Some(Arc::new(ArrivalSum::of_len(len)));
        Self { memory: SampleMemory::Region(region, offset), len, sum }
    }

    /// The destination of a sample that is kept where `sink` puts it: the bytes written there are summed.
    #[must_use]
    pub fn sink(sink: Arc<dyn Sink>, len: Bytes) -> Self {
        Self { memory: SampleMemory::Sink(sink), len, sum: Some(Arc::new(ArrivalSum::of_len(len))) }
    }

    /// Length of the sample according to the index.
    #[must_use]
    pub fn len(&self) -> Bytes {
        self.len
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len.0 == 0
    }

    /// Whether a tier copies the sample from here. False for a sample that is read directly into a tier.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self.memory, SampleMemory::Region(..)) && self.sum.is_some()
    }

    /// The memory that may be written directly, from the offset on; `None` if all writes must use
    /// [`Self::write`] or [`Self::read_from_file`], so that the sum covers them.
    #[must_use]
    pub fn direct(&self) -> Option<(&Arc<Region>, Bytes)> {
        match &self.memory {
            SampleMemory::Region(region, offset) if self.sum.is_none() => Some((region, *offset)),
            SampleMemory::Region(..) | SampleMemory::Sink(_) => None,
        }
    }

    /// The memory where the sample will lie, from the offset on, for a source that knows the sum of the
    /// sample and compares the bytes with it as they lie there; `None` if all writes must use
    /// [`Self::write`].
    #[must_use]
    pub fn memory(&self) -> Option<(&Arc<Region>, Bytes)> {
        match &self.memory {
            SampleMemory::Region(region, offset) => Some((region, *offset)),
            SampleMemory::Sink(_) => None,
        }
    }

    /// Writes bytes that start `at` bytes behind the start of the sample.
    ///
    /// `bytes` is private memory of this process: a slice never covers memory that others write.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if they do not fit in the sample, or, for a sample that is
    /// summed, if they are not the next of their segment.
    pub fn write(&self, at: Bytes, bytes: &[u8]) -> io::Result<()> {
        self.check(at, bytes.len() as u64)?;
        let sum = match (&self.sum, &self.memory) {
            (Some(sum), _) => sum,
            (None, SampleMemory::Region(region, offset)) => {
                return Ok(region.write(Bytes(offset.0.saturating_add(at.0)), bytes)?);
            }
            (None, SampleMemory::Sink(_)) => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let (mut at, mut rest) = (at.0, bytes);
        while !rest.is_empty() {
            let mut segment = sum.segment(at / SEGMENT)?;
            segment.go_on_at(at % SEGMENT)?;
            let left = usize::try_from(segment.len - segment.done).unwrap_or(usize::MAX);
            let (piece, behind) = rest.split_at(rest.len().min(left));
            let written = self.memory.write_summed(Bytes(at), piece, &mut segment.sum);
            written.inspect_err(|_| sum.is_refused.store(true, Ordering::Relaxed))?;
            let len = piece.len() as u64;
            segment.done += len;
            (at, rest) = (at + len, behind);
        }
        Ok(())
    }

    /// Reads all bytes of the sample from `from` of a file on; returns fewer only at the end of the
    /// file.
    ///
    /// # Errors
    ///
    /// As `preadv2(2)`; the destination may hold part of the bytes then.
    pub fn read_from_file(
        &self,
        file: &File,
        from: Bytes,
        page_cache: PageCache,
    ) -> io::Result<Bytes> {
        if let Some((region, offset)) = self.direct() {
            return region.read_from_file_with(offset, self.len, file.as_fd(), from, page_cache);
        }
        let read = self.read_pieces(|piece, at| {
            read_into(piece, file.as_fd(), Bytes(from.0.saturating_add(at)), page_cache).map(Some)
        })?;
        Ok(read.unwrap_or(Bytes(0)))
    }

    /// As [`Self::read_from_file`] if the page cache has all of it; `None` if the read would wait.
    ///
    /// # Errors
    ///
    /// As [`Self::read_from_file`].
    pub fn read_cached_from_file(&self, file: &File, from: Bytes) -> io::Result<Option<Bytes>> {
        if let Some((region, offset)) = self.direct() {
            return region.read_cached_from_file(offset, self.len, file.as_fd(), from);
        }
        self.read_pieces(|piece, at| {
            read_cached_into(piece, file.as_fd(), Bytes(from.0.saturating_add(at)))
        })
    }

    /// Whether the destination refused bytes that a tier was to keep; a read that failed then says nothing
    /// about its source.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.sum.as_ref().is_some_and(|sum| sum.is_refused.load(Ordering::Relaxed))
    }

    /// The sum of a summed sample; `None` until all of its bytes were written.
    pub fn sum(&self) -> Option<u64> {
        let segments = self.sum.as_ref()?.segments.iter().map(|segment| {
            let segment = locked(segment);
            (segment.done == segment.len).then(|| segment.sum.finish())
        });
        let segments: Vec<u64> = segments.collect::<Option<_>>()?;
        Some(combined(segments.into_iter()))
    }

    /// Lets `read` fill one piece after another, and writes each to the destination. Stops before
    /// the end of the sample if a piece is not filled, and with `None` if `read` returns it.
    fn read_pieces(
        &self,
        mut read: impl FnMut(&mut [u8], u64) -> io::Result<Option<usize>>,
    ) -> io::Result<Option<Bytes>> {
        PIECE.with_borrow_mut(|piece| {
            let mut done = 0;
            while done < self.len.0 {
                let left = usize::try_from(self.len.0 - done).unwrap_or(usize::MAX);
                let wanted = left.min(PIECE_BYTES);
                if piece.len() < wanted {
                    piece.resize(wanted, 0);
                }
                let Some(count) = read(&mut piece[..wanted], done)? else { return Ok(None) };
                self.write(Bytes(done), &piece[..count])?;
                done += count as u64;
                if count < wanted {
                    break;
                }
            }
            Ok(Some(Bytes(done)))
        })
    }

    fn check(&self, at: Bytes, len: u64) -> Result<(), RangeError> {
        let outside = RangeError::Outside { offset: at, len: Bytes(len), mapped: self.len };
        match at.0.checked_add(len) {
            Some(end) if end <= self.len.0 => Ok(()),
            _ => Err(outside),
        }
    }
}

impl SampleMemory {
    fn write_summed(&self, at: Bytes, bytes: &[u8], sum: &mut Checksum) -> io::Result<()> {
        match self {
            Self::Region(region, offset) => {
                let place = Bytes(offset.0.saturating_add(at.0));
                Ok(region.write_summed(place, bytes, sum)?)
            }
            Self::Sink(sink) => sink.write_summed(at, bytes, sum),
        }
    }
}

impl ArrivalSum {
    fn of_len(len: Bytes) -> Self {
        let segments = (0..len.0.div_ceil(SEGMENT)).map(|it| Segment::new(segment_len(len.0, it)));
        let segments = segments.map(Mutex::new).collect();
        Self { segments, is_refused: AtomicBool::new(false) }
    }

    fn segment(&self, number: u64) -> io::Result<MutexGuard<'_, Segment>> {
        let segment = usize::try_from(number).ok().and_then(|number| self.segments.get(number));
        segment.map(locked).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Segment {
    fn new(len: u64) -> Self {
        Self { len, sum: Checksum::of_len(len), done: 0 }
    }

    /// Prepares for bytes that start at `at` of the segment.
    fn go_on_at(&mut self, at: u64) -> io::Result<()> {
        if at == 0 {
            *self = Self::new(self.len);
        }
        if at == self.done { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

/// A panic under the lock leaves an incomplete segment, which has no sum.
fn locked(segment: &Mutex<Segment>) -> MutexGuard<'_, Segment> {
    segment.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
