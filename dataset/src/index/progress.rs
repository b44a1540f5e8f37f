//! How far the work on an index is.

/// How far the work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Objects listed or read so far.
    pub done: u64,
    /// Objects in all, or `None` while they are being listed.
    pub total: Option<u64>,
}

/// What is done to the objects of a dataset, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Asking for names, sizes and times.
    Listing,
    /// Reading what says where samples lie.
    Reading,
    /// Reading everything, to compare it with its checksums.
    Checking,
}
