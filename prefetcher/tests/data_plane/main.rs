//! The data plane with real memory, real files and sources that fail by plan.
//!
//! The invariants are those of `plane.rs`.

// Always true here; it tells clippy that helpers are tests too.
#![cfg(test)]

mod ahead;
mod contents;
mod emulation;
mod faults;
mod faulty_source;
mod kept;
mod lifetimes;
mod page_cache;
mod poison;
mod rig;
mod shared_tiers;
mod slices;
