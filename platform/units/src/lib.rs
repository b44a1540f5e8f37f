//! The values that crates pass to each other: quantities with their unit in the type, and NUMA nodes.

#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[cfg(test)]
extern crate std;

mod float;
mod numa;
mod quantity;

pub use float::{float, seconds, share, whole};
pub use numa::{Locality, NumaNode};
pub use quantity::{Bytes, BytesPerSecond, Nanoseconds, ParseError};
