//! Reads samples in another process, for a trainer that may have no threads, no network client and no decoders of
//! its own.
//!
//! A trainer without an agent reads files itself. What takes more, a bucket or a transform, is done by `tierfeed
//! read`, a child of the trainer: [`Reader`] is the trainer's side, `tierfeed_runtime::dataset::reader` the other.
//! They talk over a socket:
//!
//! | from | bytes |
//! |---|---|
//! | trainer | a [`ReadTask`] as a line of JSON; then for each request ([`Asked`]) the numbers of a sample and an epoch, 32 bits each |
//! | reader | a [`Header`]; then the sample, or its row with its stored bytes if those have fields, or a text |
//!
//! All numbers are little-endian.
//!
//! 1. Answers come in the order of the requests, one for each.
//! 2. At most [`AHEAD_MAX`] requests wait for an answer, so that no side blocks on a socket that the
//!    other does not read.
//! 3. A reader ends when the socket does, so it does not outlive its trainer.
//! 4. A process uses only its own reader: a forked child starts another.

mod process;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tierfeed_core::{
    id::{Epoch, SampleId},
    session::Fault,
    units::Bytes,
};
use tierfeed_dataset::{read::ReadError, source::Access};
use tierfeed_transform::Pipeline;

pub use self::process::{Reader, ReaderError};

/// Requests that a trainer sends ahead of the answers: more than a reader reads at a time, and less
/// than any socket holds.
pub const AHEAD_MAX: usize = 64;

/// Samples that a reader reads at a time.
pub const READS: usize = 16;

/// Longest text in bytes; a longer one is cut.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// The status of a fault is its place here, counted from 1; that of a sample that was read is 0.
const FAULTS: [Fault; 9] = [
    Fault::Io,
    Fault::Vanished,
    Fault::Changed,
    Fault::Truncated,
    Fault::Corrupt,
    Fault::NoSpace,
    Fault::Denied,
    Fault::Untransformable,
    Fault::NoWorker,
];

/// What a reader reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTask {
    pub index: PathBuf,
    /// That of the index when the trainer opened it.
    pub fingerprint: u64,
    /// How to reach the bucket of the index, in addition to its URL, which is in the index, and credentials,
    /// which are in the environment; `None` for files.
    pub bucket: Option<Access>,
    /// What samples become before they are answered.
    pub transform: Option<Pipeline>,
    /// Keys the random draws of the transform.
    pub seed: u64,
}

/// A sample, as an epoch draws for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub sample: SampleId,
    pub epoch: Epoch,
}

impl Asked {
    pub const BYTES: usize = 8;

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        (u64::from(self.sample.0) | u64::from(self.epoch.0) << 32).to_le_bytes()
    }

    #[must_use]
    pub fn of_bytes([a, b, c, d, epoch @ ..]: [u8; Self::BYTES]) -> Self {
        let sample = SampleId(u32::from_le_bytes([a, b, c, d]));
        Self { sample, epoch: Epoch(u32::from_le_bytes(epoch)) }
    }
}

/// What stands before the bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// `Some` if a text follows that says more of it.
    pub fault: Option<Fault>,
    /// Of the operating system; 0 for another error.
    pub errno: i32,
    pub len: Bytes,
}

impl Header {
    pub const BYTES: usize = 13;

    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.fault.map_or(0, status_of);
        bytes[1..5].copy_from_slice(&self.errno.to_le_bytes());
        bytes[5..].copy_from_slice(&self.len.0.to_le_bytes());
        bytes
    }

    /// The status is an error if it is that of no fault.
    pub fn of_bytes([status, a, b, c, d, len @ ..]: [u8; Self::BYTES]) -> Result<Self, u8> {
        let fault = match usize::from(status).checked_sub(1) {
            None => None,
            Some(place) => Some(*FAULTS.get(place).ok_or(status)?),
        };
        let len = Bytes(u64::from_le_bytes(len));
        Ok(Self { fault, errno: i32::from_le_bytes([a, b, c, d]), len })
    }
}

fn status_of(fault: Fault) -> u8 {
    // A reader has no chunks that could be poisoned.
    (1..).zip(FAULTS).find(|(_, it)| *it == fault).map_or(1, |(status, _)| status)
}

/// The reason that a sample was not read.
#[derive(Debug)]
pub struct ReadFault {
    pub fault: Fault,
    pub errno: Option<i32>,
    pub message: String,
}

impl From<ReadError> for ReadFault {
    fn from(error: ReadError) -> Self {
        Self { fault: error.fault(), errno: error.errno(), message: error.to_string() }
    }
}

#[cfg(test)]
mod tests;
