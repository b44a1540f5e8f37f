//! A configuration of DELI.

use serde::Serialize;

/// A configuration of DELI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Setting {
    /// Samples of a batch.
    pub batch: u32,
    /// Samples of a fetch.
    pub fetch: u32,
    /// The next fetch is requested when so few numbers are left.
    pub threshold: u32,
    /// Samples in the cache, or `None` without a limit.
    pub cache: Option<u32>,
}
