//! Reads job files, and computes the demand of a job on its dataset.
//!
//! [`Job`] is a job file, checked key by key; [`demand`] computes the read rate of the trainers and whether
//! the tiers of a node can deliver it; [`analysis`] lists the phases of a job; [`cost`] computes the price of
//! a run on rented machines.
//!
//! Deliberately absent: reading samples (the prefetcher) and deciding which tier keeps them (the core).

#![forbid(unsafe_code)]

pub mod analysis;
pub mod cost;
pub mod demand;
pub mod job;
mod nearest;
mod yaml;

pub use job::Job;
pub use nearest::nearest;
pub use yaml::YamlError;
