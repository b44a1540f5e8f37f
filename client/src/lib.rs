//! The rules of a feed that the trainers of all frameworks share.
//!
//! Deliberately absent: threads and runtimes, which a trainer must not get.

#![forbid(unsafe_code)]

mod attempts;
mod cold_reader;
mod memory;

pub use attempts::Attempts;
pub use cold_reader::{Caller, ColdReader, OpenError, Patience, ReadFault, Reading, Stop};
pub use memory::{Memory, PrivatePages, to_usize};
