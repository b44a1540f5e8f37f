//! The experiments behind `tierfeed bench`: both sides in one run on the same machine, with the ratio.

#![forbid(unsafe_code)]

pub mod chaos;
pub mod deli;
pub mod dlcache;
pub mod handoff;
pub mod index;
pub mod limits;
pub mod lobster;
pub mod policies;
pub mod reader;
pub mod tiers_accuracy;
pub mod tiers_contended;

mod files;
mod parallel;
mod sizes;
mod statistics;
