//! Reads what a job is made of: its file, its dataset, and the demand that follows from both.
//!
//! [`Job`] is a job file, checked key by key; [`Index`] says where every sample of a dataset lies;
//! [`demand`] says how many bytes a second the trainers will ask for and whether the tiers of a node
//! can give them; [`cost`] says what a run costs on rented machines.
//!
//! Deliberately absent: reading the samples themselves (the prefetcher does it), and deciding what
//! is kept where (the core does it).

#![forbid(unsafe_code)]

pub mod analysis;
pub mod cost;
pub mod demand;
pub mod format;
pub mod index;
pub mod job;
mod job_file;
mod nearest;
pub mod script;
pub mod source;

pub use index::{Extent, Index};
pub use job::{Dataset, Job};
pub use nearest::nearest;
