//! Moves bytes: from sources into staging, between staging and tiers, and to the trainers.
//!
//! [`plane::DataPlane`] carries out what the core's session decides; [`fetcher`] keeps reads of a [`source`],
//! the cold store, in flight;
//! [`handoff`] gives staged batches to trainers without copying them; [`reader`] reads for a trainer that
//! has no agent any more. [`budget`] and [`throttle`] are
//! pure arithmetic for both.
//!
//! Deliberately absent: any decision about what is read or kept when, and any runtime: threads of this
//! crate block on system calls and nothing else.

#![deny(unsafe_code)]

mod arrival;
pub mod budget;
pub mod fetcher;
pub mod handoff;
pub mod plane;
pub mod reader;
pub mod recorder;
pub mod source;
pub mod throttle;
pub mod tier;

mod pace;
mod sample_sum;
