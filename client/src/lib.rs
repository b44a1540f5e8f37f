//! The rules of a feed that the trainers of all frameworks share.
//!
//! Deliberately absent: threads and runtimes, which a trainer must not get.

#![forbid(unsafe_code)]

mod attempts;
mod cold_reader;
mod connection;
mod memory;
mod tallies;

pub use attempts::Attempts;
pub use cold_reader::{Caller, ColdReader, OpenError, Patience, ReadFault, Reading, Stop};
pub use connection::{Connection, Held, Lease, NoConnection};
pub use memory::{Memory, PrivatePages, to_usize};
pub use tallies::Tallies;
