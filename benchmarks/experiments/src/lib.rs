//! The experiments of papers, replayed, and the policies beside what is possible in theory.
//!
//! `deli`, `dlcache`, `limits` and `lobster` start no process and move no sample: their figures come from the
//! planner's state machines, from models, and from published measurements. `loaders` trains.

#![forbid(unsafe_code)]

pub mod deli;
pub mod dlcache;
pub mod figure;
pub mod floors;
pub mod limits;
pub mod loaders;
pub mod lobster;
pub mod page;
pub mod papers;
pub mod record;
pub mod stage;

mod bucket;
mod chart;
mod claim;
mod machine;
mod prediction;
mod ranks;
mod sizes;
mod training;
