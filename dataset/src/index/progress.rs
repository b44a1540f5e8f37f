//! The progress of the work on an index.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub stage: Stage,
    /// Number of objects listed or read so far.
    pub done: u64,
    /// Number of all objects, or `None` while they are being listed.
    pub total: Option<u64>,
}

/// The stages of the work on a dataset, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Reading names, sizes and times.
    Listing,
    /// Reading the positions of samples.
    Reading,
    /// Reading everything, to compare it with its checksums.
    Checking,
}
