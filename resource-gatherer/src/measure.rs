//! Measures memory, directories and buckets, cell by cell.
//!
//! Each measurement stays within its [`limits`] and gives plain figures ([`crate::figures`]). Which tiers
//! they make is decided by [`crate::classify`].

pub(crate) mod allotment;
mod cell;
pub mod clock;
pub(crate) mod cold;
pub(crate) mod default_directories;
mod direct_file;
pub mod directory;
mod histogram;
mod laps;
pub(crate) mod limits;
pub mod memory;
pub mod object_store;
mod sampler;
pub(crate) mod transfer;
