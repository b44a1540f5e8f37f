//! The cost of a run on rented machines, by the location of its data: on their disks, in a bucket, or in a
//! bucket with a cache in front of it.
//!
//! The equations are those of DELI ([`equations`]); the prices come from a file of the user ([`Prices`]).
//! Deliberately absent: the prices of any provider, and the duration of a run, which the caller measures or
//! predicts.
//!
//! 1. Money is counted in whole billionths of a dollar; each product is rounded once, to the nearest.
//! 2. Amounts and counts saturate instead of overflowing.
//!
//! # Source
//!
//! Krichevsky, St Louis, Guo: Quantifying and Improving Performance of Distributed Deep Learning with
//! Cloud Storage (IC2E 2021), section III-C.

mod bill;
mod charge;
pub mod equations;
mod money;
mod price;
mod prices;
mod table;
mod usage;

pub use bill::{Bill, bill};
pub use charge::{Charge, Requests, Scenario};
pub use money::Money;
pub use price::{Hourly, PriceError, Requested, Stored};
pub use prices::{Prices, StorageCharged};
pub use table::table;
pub use usage::{Planned, Prefetched, Usage};

#[cfg(test)]
mod tests;
