//! Moves bytes: from the cold store into staging, and between staging and tiers.
//!
//! [`plane::DataPlane`] carries out the commands of the core's session; [`fetcher`] keeps reads of the cold
//! store in flight; [`tier`] holds cached samples; [`peers`] carries samples between nodes; [`transforms`]
//! turns staged samples into rows.
//!
//! Deliberately absent: any decision about which sample is read or kept, and when. Threads of this crate
//! block in system calls; only requests to object stores and to peers run on tokio ([`network`]).

#![forbid(unsafe_code)]

pub mod fetcher;
pub mod network;
pub mod peers;
pub mod plane;
pub mod recorder;
pub mod tier;
pub mod transforms;
