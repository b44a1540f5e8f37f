//! Copies one sample between two locations and verifies its bytes.
//!
//! The checksum of a sample is copied with it. It is computed while the bytes move from the cold store into
//! staging, in memory that only this process maps ([`tierfeed_dataset::read::Target`]). The bytes are
//! compared with it whenever they leave memory that other processes can write: staging (trainers map it) and
//! files. Memory that only this process maps is checked too if the settings say so; else the sum is copied
//! unchecked, and the copy is a plain copy.
//!
//! Invariants:
//!
//! 1. A location has a sum only if all bytes of its sample were copied there without an error.
//! 2. A sum is that of the bytes that the source delivered, after any number of copies.

use std::{cell::RefCell, io};

use tierfeed_core::{
    id::{ChunkId, SampleId},
    units::Bytes,
};

use crate::tier::{
    SpaceError,
    bounce::Bounces,
    store::{Segment, Store, copy},
    sums::Sum,
};
use tierfeed_dataset::read::sample_sum::SampleSum;

thread_local! {
    /// Allocated once for each thread that copies, not for each copy.
    static BOUNCES: RefCell<Bounces> = RefCell::default();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Compare them; a difference is an error.
    Bytes,
    /// Only copy the checksum.
    Nothing,
}

#[derive(Debug)]
pub(crate) enum TransferError {
    TooShort {
        /// The length of the shorter one.
        place: Bytes,
    },
    /// The source holds no complete copy of this sample.
    NotThere,
    /// The bytes are not those that the source delivered.
    Differs,
    Poisoned {
        end: Side,
        /// `None` for staging.
        chunk: Option<ChunkId>,
    },
    NoMemory {
        /// `None` for staging.
        chunk: Option<ChunkId>,
        source: SpaceError,
    },
    Io(io::Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    From,
    To,
}

/// Copies `len` bytes of `sample` from the segments `from` to the segments `to`.
///
/// If the source had a memory error before, the bytes are always compared with their sum. Memory with an
/// error that trainers map is not used at all: they see other pages there than this process.
pub(crate) fn transfer(
    sample: SampleId,
    from: &[Segment],
    to: &[Segment],
    len: Bytes,
    check: Check,
) -> Result<(), TransferError> {
    let Some(sum) = sum_to_copy(sample, from, to, len)? else { return Ok(()) };
    forget_sums(to);
    copy_checked(sample, from, to, len, (check, sum))?;
    to[0].store.sums().insert(to[0].offset, sum);
    Ok(())
}

/// As [`transfer`], to where no sample has a sum, and without one for this.
pub(crate) fn transfer_bytes(
    sample: SampleId,
    from: &[Segment],
    to: &[Segment],
    len: Bytes,
    check: Check,
) -> Result<(), TransferError> {
    let sum = sum_to_copy(sample, from, to, len)?;
    sum.map_or(Ok(()), |sum| copy_checked(sample, from, to, len, (check, sum)))
}

/// `None` if there is nothing to copy.
fn sum_to_copy(
    sample: SampleId,
    from: &[Segment],
    to: &[Segment],
    len: Bytes,
) -> Result<Option<Sum>, TransferError> {
    check_length(from, len)?;
    check_length(to, len)?;
    let Some(origin) = from.first().filter(|_| len.0 > 0) else { return Ok(None) };
    let sum = origin.store.sums().get(origin.offset, sample);
    sum.ok_or(TransferError::NotThere).map(Some)
}

fn copy_checked(
    sample: SampleId,
    from: &[Segment],
    to: &[Segment],
    len: Bytes,
    (check, sum): (Check, Sum),
) -> Result<(), TransferError> {
    let before = (bus_errors_of(from), bus_errors_of(to));
    refuse_poisoned(from, Side::From)?;
    refuse_poisoned(to, Side::To)?;
    to.iter().try_for_each(Segment::ensure)?;
    let check = if before.0 > 0 { Check::Bytes } else { check };
    let arrived = copy_all(sample, from, to, len, check);
    check_new_errors(from, before.0, Side::From)?;
    check_new_errors(to, before.1, Side::To)?;
    match arrived.map_err(TransferError::Io)? {
        Some(arrived) if arrived != sum => Err(TransferError::Differs),
        _ => Ok(()),
    }
}

impl Segment {
    /// An error if it has no memory, and gets none.
    pub(super) fn ensure(&self) -> Result<(), TransferError> {
        let ensured = self.store.ensure(self.offset, self.len);
        ensured.map_err(|source| TransferError::NoMemory { chunk: self.store.chunk(), source })
    }
}

pub(super) fn check_length(segments: &[Segment], len: Bytes) -> Result<(), TransferError> {
    let place = segments.iter().fold(0_u64, |sum, it| sum.saturating_add(it.len.0));
    let place = Bytes(place);
    if place < len { Err(TransferError::TooShort { place }) } else { Ok(()) }
}

pub(super) fn bus_errors_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.store.bus_errors())).sum()
}

/// An error if memory that trainers map is poisoned.
pub(super) fn refuse_poisoned(segments: &[Segment], end: Side) -> Result<(), TransferError> {
    let is_broken = |it: &&Segment| it.store.is_seen_by_trainers() && it.store.bus_errors() > 0;
    match segments.iter().find(is_broken) {
        Some(broken) => Err(TransferError::Poisoned { end, chunk: broken.store.chunk() }),
        None => Ok(()),
    }
}

/// An error if there are more memory errors than `before`, from this copy or from a concurrent one.
pub(super) fn check_new_errors(
    segments: &[Segment],
    before: u64,
    end: Side,
) -> Result<(), TransferError> {
    if bus_errors_of(segments) == before {
        return Ok(());
    }
    let broken = segments.iter().find(|segment| segment.store.bus_errors() > 0);
    let chunk = broken.and_then(|segment| segment.store.chunk());
    Err(TransferError::Poisoned { end, chunk })
}

/// Keeps the checksum of a sample that a source has just delivered to `at`.
pub(crate) fn record_arrival(sample: SampleId, at: &Segment, xxh3: u64) {
    // An empty sample has no sum: the next one starts at the same offset.
    if at.len.0 > 0 {
        at.store.sums().insert(at.offset, Sum::of(sample, xxh3));
    }
}

/// Removes the sums of all samples that start in the segments.
pub(crate) fn forget_sums(segments: &[Segment]) {
    for Segment { store, offset, len } in segments {
        store.sums().forget(*offset, *len);
    }
}

fn copy_all(
    sample: SampleId,
    from: &[Segment],
    to: &[Segment],
    len: Bytes,
    check: Check,
) -> io::Result<Option<Sum>> {
    let mut sum = (check == Check::Bytes).then(|| SampleSum::of_len(len.0));
    let (mut from, mut to) = (Cursor::new(from), Cursor::new(to));
    let mut left = len.0;
    while left > 0 {
        let (origin, target) = (from.position(), to.position());
        let run = left.min(from.run()).min(to.run());
        let run = sum.as_ref().map_or(run, |sum| run.min(sum.left_of_segment()));
        let piece = run.min(origin.0.piece_max()).min(target.0.piece_max());
        let segment = sum.as_mut().map(SampleSum::segment);
        BOUNCES.with_borrow_mut(|bounces| copy(origin, target, Bytes(piece), segment, bounces))?;
        if let Some(sum) = &mut sum {
            sum.took(piece);
        }
        from.advance(piece);
        to.advance(piece);
        left -= piece;
    }
    Ok(sum.map(|sum| Sum::of(sample, sum.finish())))
}

struct Cursor<'a> {
    segments: &'a [Segment],
    done: u64,
}

impl<'a> Cursor<'a> {
    fn new(segments: &'a [Segment]) -> Self {
        let mut cursor = Self { segments, done: 0 };
        cursor.advance(0);
        cursor
    }

    /// Bytes up to the end of the current segment.
    fn run(&self) -> u64 {
        self.segments.first().map_or(0, |segment| segment.len.0 - self.done)
    }

    fn position(&self) -> (&'a Store, Bytes) {
        let segment = &self.segments[0];
        (&segment.store, Bytes(segment.offset.0 + self.done))
    }

    /// Advances by at most [`Self::run`] bytes, and over empty segments.
    fn advance(&mut self, by: u64) {
        self.done += by;
        while self.segments.first().is_some_and(|segment| segment.len.0 == self.done) {
            self.segments = &self.segments[1..];
            self.done = 0;
        }
    }
}
