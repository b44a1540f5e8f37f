//! The experiments of papers, replayed, and the policies beside what is possible in theory.
//!
//! Nothing here starts a process or moves a sample: the figures come from the planner's state machines,
//! from models, and from published measurements.

#![forbid(unsafe_code)]

pub mod deli;
pub mod dlcache;
pub mod limits;
pub mod lobster;

mod sizes;
