//! What requests for objects may cost, and how long they may take.

use std::{num::NonZeroUsize, time::Duration};

use tierfeed_object_stores::Patience;

use super::{Share, Split};

/// Requests in flight at a time: at 20 ms each 64 of 100 KiB bring 300 MB/s, of 16 MiB more than any
/// network card of a node.
pub const REQUESTS_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not 0");

/// Requests in flight beyond that, because others are late.
pub const HEDGES_MAX: usize = 8;

/// How a fetcher treats an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectSettings {
    /// Requests in flight at a time, without those that are made because others are late.
    pub requests_max: NonZeroUsize,
    /// How large samples are divided.
    pub split: Split,
    /// How long and how often a request is made; the client must not repeat any itself.
    pub patience: Patience,
    /// The longest wait before a repetition; also what those wait that are too many.
    pub pause_max: Duration,
    /// Repetitions that need not wait so long.
    pub retries: Share,
    /// Requests that are made because others are late.
    pub hedges: Share,
}

impl Default for ObjectSettings {
    /// A request that fails for ever is a fault after 60 s and a last attempt of 25 s.
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
    /// How long to wait before a request that failed `tries` times is made again; `is_quick` if there are
    /// not too many such. `chance` spreads those that failed together.
    pub(crate) fn pause(&self, tries: u32, is_quick: bool, chance: u64) -> Duration {
        let longest = self.pause_max;
        let doubled = 1_u32.checked_shl(tries.saturating_sub(1)).filter(|_| is_quick);
        let pause = doubled.and_then(|doubled| self.patience.pause.checked_mul(doubled));
        let pause = pause.unwrap_or(longest).min(longest);
        // Between a half and the whole.
        pause / 2 + (pause / 2).mul_f64((chance % 1_024) as f64 / 1_024.0)
    }
}
