//! Decides what is kept where, and when, from the order in which every sample will be read.
//!
//! Nothing here touches a file, a clock, a thread or a random source: time and completions are
//! arguments, decisions are return values. The simulator and the agent run this same code, so the
//! agent does what the simulator predicts.
//!
//! Deliberately absent: buffers (data planes hold them), formats of messages and files (types derive how they are
//! serialised, the outer crates choose as what), `unsafe`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod fnv1a;
mod hash_table;
mod named;
mod sorted_queue;

pub mod batch;
pub mod budget;
pub mod id;
pub mod latency_quantiles;
pub mod outage;
pub mod place;
pub mod space;
pub mod throughput;
pub mod tier;

pub mod order;

pub mod retention;

pub mod session;

pub mod fleet;

pub mod simulator;

pub use tierfeed_units as units;
