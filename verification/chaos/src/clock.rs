//! The time of a campaign: other processes give no event to wait for, so it is polled.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The time since the campaign began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "a campaign measures time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// The time since `begin` on this clock.
    pub(crate) fn since(self, begin: Duration) -> Duration {
        self.now().saturating_sub(begin)
    }
}

#[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}
