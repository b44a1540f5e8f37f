//! The experiments of papers, and the policies beside what is possible in theory.
//!
//! `papers` and `loaders` train. `dlcache` and `limits` start no process and move no sample: their figures come from
//! the planner's state machines.

#![forbid(unsafe_code)]

pub mod dlcache;
pub mod figure;
pub mod floors;
pub mod limits;
pub mod loaders;
pub mod papers;
pub mod prediction;
pub mod record;
pub mod stage;

mod bucket;
mod claim;
mod document;
mod machine;
mod ranks;
mod sizes;
mod training;
