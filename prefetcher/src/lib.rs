//! Moves bytes: from the cold store into staging, and between staging and tiers.
//!
//! [`plane::DataPlane`] carries out what the core's session decides; [`fetcher`] keeps reads of the cold store
//! in flight; [`tier`] holds what is cached; [`budget`] says how much memory all of that may take.
//!
//! Deliberately absent: any decision about what is read or kept when. Threads of this crate block on system
//! calls; only requests to object stores run on tokio (`fetcher/objects/network.rs`).

#![forbid(unsafe_code)]

pub mod budget;
pub mod fetcher;
pub mod plane;
pub mod recorder;
pub mod tier;
