//! Moves one sample from place to place and vouches for its bytes.
//!
//! A sample's sum travels with it. It is taken while the bytes are on their way from the cold store into
//! staging, in memory that nobody else maps ([`tierfeed_dataset::read::Target`]). The bytes are checked
//! against it whenever they leave a place that others can write: staging (trainers map it) and files.
//! Memory that only this process maps is checked too if the settings say so; else the sum goes along
//! unchecked, and the copy is a plain copy.
//!
//! Invariants:
//!
//! 1. A place has a sum only if all bytes of its sample were copied there without an error.
//! 2. A sum is that of the bytes that the source delivered, however often they moved since.

use std::{cell::RefCell, io};

use tierfeed_core::{
    id::{ChunkId, SampleId},
    units::Bytes,
};

use crate::tier::{
    bounce::Bounces,
    store::{Segment, Store, copy},
    sums::Sum,
};
use tierfeed_dataset::read::sample_sum::SampleSum;

thread_local! {
    /// Taken once for each thread that copies, not for each copy.
    static BOUNCES: RefCell<Bounces> = RefCell::default();
}

/// Whether bytes are compared with their sum on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Compare; a difference is an error.
    Bytes,
    /// Only carry the sum along.
    Nothing,
}

/// Why a transfer did not put a sample in its place.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// One of the places is shorter than the sample.
    TooShort {
        /// The length of that place.
        place: Bytes,
    },
    /// No complete copy of this sample was ever put in the first place.
    NotThere,
    /// The bytes are not those that the source delivered.
    Differs,
    /// A page of memory broke under the copy.
    Poisoned {
        /// Whether it is one of the first place or of the second.
        end: Which,
        /// The chunk that it belongs to; `None` for staging.
        chunk: Option<ChunkId>,
    },
    /// Reading or writing failed.
    Io(io::Error),
}

/// An end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Where the sample lies.
    From,
    /// Where it goes.
    To,
}

/// Copies `len` bytes of `sample` along `from` to `to`.
///
/// Where memory broke before, the bytes are compared with their sum whatever `check` says. Memory that
/// trainers map and that broke is not used at all: they see other pages there than this process.
pub(crate) fn transfer(
    sample: SampleId,
    from: &[Segment],
    to: &[Segment],
    len: Bytes,
    check: Check,
) -> Result<(), TransferError> {
    for place in [from, to] {
        let place = place.iter().fold(0_u64, |sum, it| sum.saturating_add(it.len.0));
        let place = Bytes(place);
        if place < len {
            return Err(TransferError::TooShort { place });
        }
    }
    if len.0 == 0 {
        return Ok(());
    }
    let (origin, target) = (&from[0], &to[0]);
    let sum = origin.store.sums().get(origin.offset, sample).ok_or(TransferError::NotThere)?;
    forget(to);
    let before = (errors_of(from), errors_of(to));
    refuse_broken(from, Which::From)?;
    refuse_broken(to, Which::To)?;
    let check = if before.0 > 0 { Check::Bytes } else { check };
    let arrived = copy_all(sample, from, to, len, check);
    blame(from, before.0, Which::From)?;
    blame(to, before.1, Which::To)?;
    if arrived.map_err(TransferError::Io)?.is_some_and(|arrived| arrived != sum) {
        return Err(TransferError::Differs);
    }
    target.store.sums().insert(target.offset, sum);
    Ok(())
}

fn errors_of(segments: &[Segment]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.store.bus_errors())).sum()
}

/// An error if memory broke that the trainer sees too.
fn refuse_broken(segments: &[Segment], end: Which) -> Result<(), TransferError> {
    let is_broken = |it: &&Segment| it.store.is_seen_by_trainers() && it.store.bus_errors() > 0;
    match segments.iter().find(is_broken) {
        Some(broken) => Err(TransferError::Poisoned { end, chunk: broken.store.chunk() }),
        None => Ok(()),
    }
}

/// An error if pages broke since there were `before` errors, by this copy or beside it.
fn blame(segments: &[Segment], before: u64, end: Which) -> Result<(), TransferError> {
    if errors_of(segments) == before {
        return Ok(());
    }
    let broken = segments.iter().find(|segment| segment.store.bus_errors() > 0);
    let chunk = broken.and_then(|segment| segment.store.chunk());
    Err(TransferError::Poisoned { end, chunk })
}

/// Keeps the sum of the bytes that a source has just delivered to `at`, as it was taken on their way.
pub(crate) fn record_arrival(sample: SampleId, at: &Segment, xxh3: u64) {
    // Nothing is kept of an empty sample: the next one starts at the same offset.
    if at.len.0 > 0 {
        at.store.sums().insert(at.offset, Sum::of(sample, xxh3));
    }
}

/// Drops the sums of what the segments held until now.
pub(crate) fn forget(segments: &[Segment]) {
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

/// A position in a list of segments.
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

    /// Goes on by at most [`Self::run`], and over empty segments.
    fn advance(&mut self, by: u64) {
        self.done += by;
        while self.segments.first().is_some_and(|segment| segment.len.0 == self.done) {
            self.segments = &self.segments[1..];
            self.done = 0;
        }
    }
}
