//! Decides what is kept where, and when, from the order in which every sample will be read.
//!
//! Nothing here touches a file, a clock, a thread or a random source: time and completions are
//! arguments, decisions are return values. The simulator and the agent run this same code, so what
//! the one predicts the other does.
//!
//! Deliberately absent: buffers (data planes hold them), serialisation (the edges do it), `unsafe`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod id;
pub mod launch;
pub mod order;
pub mod spread;
pub mod throughput;
pub mod wear;

pub mod assignment;
pub mod batch;
pub mod books;
pub mod cache;
pub mod direct;
pub mod fleet;
pub mod horizon;
pub mod peers;
pub mod place;
pub mod policy;
pub mod replay;
pub mod session;
pub mod simulator;
pub mod space;
pub mod staging_depth;
pub mod tier;

pub use tierfeed_units as units;
