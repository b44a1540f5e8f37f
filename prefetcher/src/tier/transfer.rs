//! Moves one sample from place to place and vouches for its bytes.
//!
//! A sample's sum travels with it, from the moment it came out of the cold store. The bytes are checked
//! against it whenever they leave a place that others can write: staging (trainers map it) and files.
//! Memory that only this process maps is checked too if the settings say so; else the sum goes along
//! unchecked, and the copy is a plain copy.
//!
//! Invariants:
//!
//! 1. A place has a sum only if all bytes of its sample were copied there without an error.
//! 2. A sum is that of the bytes that the source delivered, however often they moved since.

use std::io;

use tierfeed_core::{id::SampleId, units::Bytes};

use crate::tier::{
    store::{Body, Segment, Store, copy},
    sums::{Sum, Summing},
};

/// The piece in which bytes are copied, and then summed while they lie in a level-2 cache.
///
/// It also bounds the buffer between two files, and is long enough for a system call or a `memcpy`
/// to cost what it costs for longer ones.
const PIECE: Bytes = Bytes(256 << 10);

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
    /// Reading or writing failed.
    Io(io::Error),
}

/// Copies `len` bytes of `sample` along `from` to `to`.
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
    let arrived = copy_all(sample, from, to, len, check).map_err(TransferError::Io)?;
    if arrived.is_some_and(|arrived| arrived != sum) {
        return Err(TransferError::Differs);
    }
    target.store.sums().insert(target.offset, sum);
    Ok(())
}

/// Sums the bytes that a source has just delivered to `at`, and keeps the sum.
///
/// # Errors
///
/// If the range leaves its store.
pub(crate) fn record_arrival(sample: SampleId, at: &Segment) -> io::Result<()> {
    let Body::Memory(region) = at.store.body() else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut summing = Summing::of(sample);
    region.for_each_piece(at.offset, at.len, |piece| summing.update(piece))?;
    // Nothing is kept of an empty sample: the next one starts at the same offset.
    if at.len.0 > 0 {
        at.store.sums().insert(at.offset, summing.finish());
    }
    Ok(())
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
    let mut summing = (check == Check::Bytes).then(|| Summing::of(sample));
    let (mut from, mut to) = (Cursor::new(from), Cursor::new(to));
    let mut left = len.0;
    while left > 0 {
        let piece = left.min(from.run()).min(to.run()).min(PIECE.0);
        copy(from.position(), to.position(), Bytes(piece), summing.as_mut())?;
        from.advance(piece);
        to.advance(piece);
        left -= piece;
    }
    Ok(summing.map(|summing| summing.finish()))
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
