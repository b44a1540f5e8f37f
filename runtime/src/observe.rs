//! What is shown of a running or ended job: metrics, reports, the live view, traces.
//!
//! Everything here is made from plain figures that agents, managers and commands fill in. It stands above
//! the data plane, whose counters and events it takes as they are, and imports neither of the processes.

pub mod chrome_trace;
pub mod footprint;
pub mod metrics;
pub mod observed;
pub mod pauses;
pub mod report;
pub mod schedule;
pub mod status;
pub mod top;
