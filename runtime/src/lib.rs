//! Talks: the manager and the agent as processes, what they say to each other, what they report.

#![forbid(unsafe_code)]

pub mod agent;
pub mod begun;
mod bounded_tasks;
pub mod briefing;
pub mod chrome_trace;
pub mod client;
pub mod clock;
pub mod dataset;
mod descriptors;
pub mod expansion;
pub mod footprint;
pub mod index_cache;
mod keep_alive;
mod local_socket;
pub mod manager;
pub mod metrics;
pub mod mutual_tls;
pub mod pauses;
pub mod places;
pub mod prediction;
pub mod published;
pub mod reader;
pub mod report;
pub mod run_dir;
pub mod scratch;
pub mod shutdown;
pub mod token;
pub mod top;
pub mod trainer_file;
pub mod wire;
