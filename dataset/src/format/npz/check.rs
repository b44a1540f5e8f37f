//! Inflates members, and compares their CRC-32.

use std::cmp::Ordering;

use flate2::{Decompress, FlushDecompress, Status};

use super::Member;
use crate::format::{
    Encoding, FormatError, ReadAt,
    piece::{end_of, expect_checksum, malformed},
    read_ahead::for_each_piece,
};

/// Bytes that are read, and inflated, at a time.
const PART_BYTES: u64 = 64 * 1024;

const DEFLATED: &str = "a deflated member";

/// Inflates a sample: `stored` is a [`Range`](super::super::Range) of [`Encoding::Deflate`] as
/// read, `len` and `crc32` are those of that encoding, `into` is `len` bytes long.
///
/// # Errors
///
/// [`FormatError::Malformed`] if `stored` is no deflate stream of `len` bytes or `into` has another
/// length, [`FormatError::Checksum`] if the inflated bytes differ; their offsets count from the
/// start of the sample. `into` may then hold a part.
pub fn inflate(stored: &[u8], len: u64, crc32: u32, into: &mut [u8]) -> Result<(), FormatError> {
    if into.len() as u64 != len {
        let found = format!("{len} bytes long, and {} are to be filled", into.len());
        return Err(malformed(DEFLATED, 0, found, "room for the whole sample is needed"));
    }
    // A stream that ends only after the last byte needs room to show that it has no more.
    let mut beyond = [0];
    let mut stream = Stream::new(0, len);
    let mut rest = stored;
    while !stream.has_ended {
        let (read, written) = (stream.read(), stream.written());
        let room = match usize::try_from(written).ok().and_then(|at| into.get_mut(at..)) {
            Some(room) if !room.is_empty() => room,
            _ => &mut beyond,
        };
        stream.step(rest, room)?;
        let taken = usize::try_from(stream.read() - read).unwrap_or(usize::MAX);
        rest = rest.get(taken..).unwrap_or_default();
        stream.refuse_standstill(read, written)?;
    }
    stream.finish(stored.len() as u64)?;
    expect_checksum(DEFLATED, 0, crc32, crc32fast::hash(into))
}

/// Reads a member, and inflates it if it is deflated, in two buffers of 64 KiB.
pub(super) fn member(object: &dyn ReadAt, member: &Member) -> Result<(), FormatError> {
    let range = member.range;
    match range.encoding {
        Encoding::Plain => stored(object, member),
        Encoding::Deflate { len, .. } => {
            end_of(object, DEFLATED, range.offset, range.len)?;
            deflated(object, member, len)
        }
    }
}

fn stored(object: &dyn ReadAt, member: &Member) -> Result<(), FormatError> {
    let what = "a stored member";
    let mut hasher = crc32fast::Hasher::new();
    end_of(object, what, member.range.offset, member.range.len)?;
    for_each_piece(object, member.range.offset, member.range.len, &mut |bytes| {
        hasher.update(bytes);
    })?;
    expect_checksum(what, member.range.offset, member.crc32, hasher.finalize())
}

fn deflated(object: &dyn ReadAt, member: &Member, len: u64) -> Result<(), FormatError> {
    let start = member.range.offset;
    let end = start + member.range.len;
    let mut hasher = crc32fast::Hasher::new();
    let mut stream = Stream::new(start, len);
    let (mut part, mut out) = (Vec::new(), vec![0; 64 * 1024]);
    while !stream.has_ended {
        let (read, written) = (stream.read(), stream.written());
        fill(object, &mut part, start + read, end)?;
        stream.step(&part, &mut out)?;
        let made = usize::try_from(stream.written() - written).unwrap_or(usize::MAX);
        hasher.update(out.get(..made).unwrap_or_default());
        stream.refuse_standstill(read, written)?;
    }
    stream.finish(member.range.len)?;
    expect_checksum(DEFLATED, start, member.crc32, hasher.finalize())
}

fn fill(object: &dyn ReadAt, part: &mut Vec<u8>, at: u64, end: u64) -> Result<(), FormatError> {
    let len = end.saturating_sub(at).min(PART_BYTES);
    part.resize(usize::try_from(len).expect("it is at most 64 KiB"), 0);
    Ok(object.read_exact_at(part, at)?)
}

/// A raw deflate stream that should give `len` bytes.
struct Stream {
    state: Decompress,
    at: u64,
    len: u64,
    has_ended: bool,
}

impl Stream {
    fn new(at: u64, len: u64) -> Self {
        Self { state: Decompress::new(false), at, len, has_ended: false }
    }

    fn read(&self) -> u64 {
        self.state.total_in()
    }

    fn written(&self) -> u64 {
        self.state.total_out()
    }

    fn step(&mut self, from: &[u8], into: &mut [u8]) -> Result<(), FormatError> {
        let status = self.state.decompress(from, into, FlushDecompress::None);
        let status = status.map_err(|_| self.damaged("no deflate stream"))?;
        self.has_ended = status == Status::StreamEnd;
        // A stream that inflates to more than its stated length is stopped at once.
        if self.written() > self.len { Err(self.damaged("longer than it says")) } else { Ok(()) }
    }

    fn refuse_standstill(&self, read: u64, written: u64) -> Result<(), FormatError> {
        if !self.has_ended && (self.read(), self.written()) == (read, written) {
            return Err(self.damaged("cut off"));
        }
        Ok(())
    }

    fn finish(&self, stored_len: u64) -> Result<(), FormatError> {
        if self.read() != stored_len {
            return Err(self.damaged("followed by other bytes"));
        }
        match self.written().cmp(&self.len) {
            Ordering::Equal => Ok(()),
            _ => Err(self.damaged("shorter than it says")),
        }
    }

    fn damaged(&self, found: &str) -> FormatError {
        let right = "the archive is damaged; write it again";
        malformed(DEFLATED, self.at, found, right)
    }
}
