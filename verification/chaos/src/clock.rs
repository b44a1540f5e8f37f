//! The time of an experiment with processes, which give no event to wait for.

use std::{
    thread,
    time::{Duration, Instant},
};

/// The time since the experiment began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "the experiment takes the time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// What passed since `begin` on this clock.
    pub(crate) fn since(self, begin: Duration) -> Duration {
        self.now().saturating_sub(begin)
    }
}

#[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}
