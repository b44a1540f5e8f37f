//! The limits of requests to an object store.

use std::{num::NonZeroUsize, time::Duration};

use tierfeed_object_stores::Patience;

use super::{Share, Split};

/// Requests in flight at a time: at 20 ms each, 64 requests of 100 KiB deliver 300 MB/s, and of 16 MiB more
/// than the network card of any node.
pub const REQUESTS_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not 0");

/// Hedges in flight at a time, in addition to [`REQUESTS_MAX`].
pub const HEDGES_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectSettings {
    /// Requests in flight at a time, without hedges.
    pub requests_max: NonZeroUsize,
    pub split: Split,
    /// Timeouts and retries of a request; the client must not repeat requests itself.
    pub patience: Patience,
    /// The longest pause before a retry; also the pause of retries beyond their share.
    pub pause_max: Duration,
    /// The share of retries that need not wait for the longest pause.
    pub retries: Share,
    /// The share of requests that may be hedged.
    pub hedges: Share,
}

impl Default for ObjectSettings {
    /// A request that always fails becomes a fault after 60 s and a last attempt of 25 s.
    fn default() -> Self {
        Self {
            requests_max: REQUESTS_MAX,
            split: Split::default(),
            patience: Patience::default(),
            pause_max: Duration::from_secs(5),
            retries: Share { per_mille: 100, saved_max: 64 },
            hedges: Share { per_mille: 50, saved_max: 8 },
        }
    }
}

impl ObjectSettings {
    /// The pause before a request that failed `tries` times is repeated: exponential, or the longest one if
    /// not `is_quick`. `chance` adds jitter between requests that failed together.
    pub(crate) fn pause(&self, tries: u32, is_quick: bool, chance: u64) -> Duration {
        let longest = self.pause_max;
        let doubled = 1_u32.checked_shl(tries.saturating_sub(1)).filter(|_| is_quick);
        let pause = doubled.and_then(|doubled| self.patience.pause.checked_mul(doubled));
        let pause = pause.unwrap_or(longest).min(longest);
        // Between half of the pause and all of it.
        let share = u32::try_from(chance % 1_024).unwrap_or(0);
        pause / 2 + (pause / 2 / 1_024).saturating_mul(share)
    }
}
