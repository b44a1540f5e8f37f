//! The whole way with real processes: `tierfeed` and a stand-in for a training, on generated files.

mod apart;
mod failures;
mod fixture;
mod memory;
mod run;
