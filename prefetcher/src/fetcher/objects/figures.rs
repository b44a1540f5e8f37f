//! The figures of the requests of a fetcher since its start.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tierfeed_core::units::Bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ObjectFigures {
    /// All requests that were sent: first ones, retries and hedges.
    pub requests: u64,
    pub retries: u64,
    pub hedges: u64,
    /// Hedges that delivered the last byte of their range.
    pub hedges_won: u64,
    /// Samples that were read by several requests for parts.
    pub split: u64,
    /// Bytes that were received in vain: another request delivered them first, or they are requested again.
    #[serde(rename = "discarded_bytes")]
    pub discarded: Bytes,
}

#[derive(Debug, Default)]
pub struct ObjectCounters(Mutex<ObjectFigures>);

impl ObjectCounters {
    #[must_use]
    pub fn figures(&self) -> ObjectFigures {
        *self.0.lock()
    }

    pub(super) fn count(&self, by: impl FnOnce(&mut ObjectFigures)) {
        by(&mut self.0.lock());
    }
}
