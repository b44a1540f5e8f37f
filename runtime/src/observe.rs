//! Metrics, reports, the live view and traces: all that is shown of a running or ended job.
//!
//! Everything here is made from plain figures that agents, managers and commands fill in. It stands above the
//! data plane, whose counters and events it takes as they are, and imports neither the agent nor the manager.

pub mod chrome_trace;
pub mod footprint;
pub mod metrics;
pub mod node_figures;
pub mod observed;
pub mod pauses;
pub mod report;
pub mod schedule;
pub mod status;
pub mod top;
pub mod total;
