//! Reads samples in another process, for a trainer that may have no threads and no network client
//! of its own.
//!
//! A trainer without an agent reads files itself. A bucket takes TLS, sockets and threads, so
//! `tierfeed read` does that as a child of the trainer: [`serve()`] is its side, [`Reader`] the
//! trainer's. Requests go through one pipe, answers through another:
//!
//! | from | bytes |
//! |---|---|
//! | trainer | the number of a sample, 32 bits |
//! | reader | one byte: 0, or why it cannot be read ([`code_of`]); a length, 64 bits; the sample, or a text |
//!
//! All numbers are little-endian.
//!
//! 1. Answers come in the order of the numbers, one for each.
//! 2. At most [`AHEAD_MAX`] numbers wait for an answer, so that no side blocks on a pipe that the
//!    other does not read.
//! 3. A reader ends when the pipe of numbers does, so it does not outlive its trainer.
//! 4. A process uses only its own reader: a forked child starts another.

mod process;
mod serve;

use tierfeed_core::session::Fault;

pub use self::{
    process::{InvalidAnswer, Launch, Reader, ReaderError},
    serve::{ServeError, serve},
};

/// Numbers that a trainer sends ahead of the answers: more than a reader reads at a time, and less
/// than any pipe holds.
pub const AHEAD_MAX: usize = 64;

/// Samples that a reader reads at a time.
pub const READS: usize = 16;

/// Longest text in bytes; a longer one is cut.
const TEXT_BYTES_MAX: usize = 16 << 10;

const HEADER_BYTES: usize = 9;

/// The status of a sample that was read.
const READ: u8 = 0;

#[must_use]
pub const fn code_of(fault: Fault) -> u8 {
    match fault {
        Fault::Vanished => 1,
        Fault::Changed => 2,
        Fault::Truncated => 3,
        // A reader has no chunks, and transforms nothing.
        Fault::Io | Fault::Poisoned(..) | Fault::Untransformable | Fault::NoWorker => 4,
        Fault::Corrupt => 5,
        Fault::NoSpace => 6,
        Fault::Denied => 7,
    }
}

fn fault_of(code: u8) -> Option<Fault> {
    let faults = [
        Fault::Vanished,
        Fault::Changed,
        Fault::Truncated,
        Fault::Io,
        Fault::Corrupt,
        Fault::NoSpace,
        Fault::Denied,
    ];
    faults.into_iter().find(|fault| code_of(*fault) == code)
}

#[cfg(test)]
mod tests;
