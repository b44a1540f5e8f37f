//! The whole way with real processes: `tierfeed` and a stand-in for a training, on generated files.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod apart;
mod bucket;
mod calibration;
mod cloud_server;
mod clouds;
mod confined;
mod deaths;
mod direct;
mod exit_codes;
mod failures;
mod filled;
mod fixture;
mod group;
mod index_transfer;
mod init;
mod look_ahead;
mod manual;
mod memory;
mod metrics;
mod network;
mod nodes;
mod order;
mod other_machine;
mod own_ram_disk;
mod page_cache;
mod peers;
mod prediction;
mod pressure;
mod restart;
mod run;
mod run_dirs;
mod schedule;
mod scratch;
mod signals;
mod staging;
mod strangers;
mod users;
mod waits;
