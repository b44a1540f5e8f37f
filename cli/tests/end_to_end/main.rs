//! The whole way with real processes: `tierfeed` and a stand-in for a training, on generated files.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod apart;
mod bucket;
mod confined;
mod direct;
mod failures;
mod fixture;
mod group;
mod memory;
mod metrics;
mod pressure;
mod restart;
mod run;
mod scratch;
