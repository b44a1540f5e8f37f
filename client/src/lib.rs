//! The rules of a feed that the trainers of all frameworks share.
//!
//! Deliberately absent: threads and runtimes, which a trainer must not get.

#![forbid(unsafe_code)]

mod ahead;
mod attempts;
mod cold_reader;
mod connection;
mod epoch_reads;
mod left_out;
mod loan;
mod memory;
mod patience;
pub mod reader;
mod refusals;
mod requests;
mod tallies;

pub use ahead::{EpochStep, following, window};
pub use cold_reader::{Caller, ColdBatch, ColdReader, OpenError, Stop, StorePatience};
pub use connection::{Connection, Held, Lease, NoConnection};
pub use epoch_reads::direct_reads_warning;
pub use left_out::TooManyLeftOut;
pub use loan::Loan;
pub use memory::{Memory, PrivatePages, first_byte, to_usize};
pub use patience::{AfterSilence, Holding, Patience};
pub use reader::ReadFault;
pub use refusals::final_sample;
pub use requests::Requests;
pub use tallies::Tallies;
