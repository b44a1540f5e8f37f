//! The speed of the cold store in the report.

use serde::Serialize;

/// The speed of the cold store, as known when the run began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct ColdStoreEntry {
    /// The time from a request to the first byte; `None` if it is not known.
    pub latency_ns: Option<u64>,
    /// The rate of many reads at a time; `None` if it is not known.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Where these figures come from, or why there are none.
    pub figures_from: String,
}
