//! The time of a campaign: other processes give no event to wait for, so it is polled.

use std::time::{Duration, Instant};

use tierfeed_harness::clock::now;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(now())
    }

    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    pub(crate) fn since(self, begin: Duration) -> Duration {
        self.now().saturating_sub(begin)
    }
}
