//! What a run costs on rented machines, by where its data is: on their disks, in a bucket, or in a bucket
//! with a cache in front.
//!
//! The equations are those of DELI ([`equations`]); the prices come from a file that people write
//! ([`Prices`]). Deliberately absent: the prices of any provider in the code, and how long a run takes,
//! which the caller measures or predicts.
//!
//! 1. Money is counted in whole billionths of a dollar; each product is rounded once, to the nearest.
//! 2. Nothing overflows: an amount or a count that is too large stays at the largest that there is.
//!
//! # Source
//!
//! Krichevsky, St Louis, Guo: Quantifying and Improving Performance of Distributed Deep Learning with
//! Cloud Storage (IC2E 2021), section III-C.

mod bill;
pub mod equations;
mod error;
mod money;
mod price;
mod prices;
mod prices_file;
mod table;

pub use bill::{Bill, Charge, Planned, Prefetched, Usage, Way, bill};
pub use equations::Requests;
pub use error::{PricesError, Reason};
pub use money::Money;
pub use price::{Hourly, PriceError, Requested, Stored};
pub use prices::{FILE_BYTES_MAX, Prices, StorageCharged};
pub use table::table;

#[cfg(test)]
mod tests;
