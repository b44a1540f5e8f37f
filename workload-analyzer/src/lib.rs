//! Reads what a job is made of: its file, and the demand that follows from it and its dataset.
//!
//! [`Job`] is a job file, checked key by key; [`demand`] says how many bytes a second the trainers will ask
//! for and whether the tiers of a node can give them; [`cost`] says what a run costs on rented machines.
//!
//! Deliberately absent: reading samples (the prefetcher does it), and deciding what is kept where (the core
//! does it).

#![forbid(unsafe_code)]

pub mod analysis;
pub mod cost;
pub mod demand;
pub mod job;
mod job_file;
mod nearest;

pub use job::Job;
pub use nearest::nearest;
