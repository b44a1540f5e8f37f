//! The page cache in the report: whether free memory cached files, and what it served.

use serde::Serialize;
use tierfeed_core::units::Bytes;
use tierfeed_dataset::read::page_cache::PageCacheFigures;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PageCacheEntry {
    /// `auto`, or `off` if the job says so or its cold store is emulated.
    pub mode: &'static str,
    /// The part of `cold_read_bytes` that the page cache had, so that the store itself was not read.
    pub read_bytes: u64,
    /// Samples of which it had at least a part.
    pub read_samples: u64,
    /// The most that reads may leave there, at the end: free memory beyond the budgets.
    pub limit_bytes: u64,
    /// Bytes that reads left there, as far as the agent knows.
    pub left_bytes: u64,
}

impl PageCacheEntry {
    /// `figures` is `None` if reads leave nothing in the page cache. At most `cold` was served: the figures also
    /// count reads whose batch was dropped meanwhile.
    #[must_use]
    pub fn of(mode: &'static str, figures: Option<PageCacheFigures>, cold: Bytes) -> Self {
        let PageCacheFigures { limit, left, served_samples, served } = figures.unwrap_or_default();
        Self {
            mode,
            read_bytes: served.min(cold).0,
            read_samples: served_samples,
            limit_bytes: limit.0,
            left_bytes: left.0,
        }
    }

    /// A line of text; `None` if the job has no page cache.
    pub(super) fn line(self, cold: Bytes) -> Option<String> {
        (self.mode == "auto").then(|| {
            let Self { read_bytes, left_bytes, limit_bytes, .. } = self;
            let [read, left, limit] = [read_bytes, left_bytes, limit_bytes].map(Bytes);
            format!("page cache: {read} of {cold} came from it; {left} of {limit} left there")
        })
    }
}
