//! The one place where the client reads the clock: to know when to stop waiting.

use std::time::{Duration, Instant};

/// A point in time after which nobody waits any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// `None` if it lies farther away than the clock reaches.
    at: Option<Instant>,
}

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "a wait with a limit must read the clock")]
    pub(super) fn after(timeout: Duration) -> Self {
        Self { at: Instant::now().checked_add(timeout) }
    }

    /// The time that is left; `None` means for ever.
    #[expect(clippy::disallowed_methods, reason = "a wait with a limit must read the clock")]
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}
