//! Reads the clock, at the only place of the client, to limit waits.

use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    /// `None` if it is later than the clock can represent.
    at: Option<Instant>,
}

impl Deadline {
    #[expect(clippy::disallowed_methods, reason = "a wait with a limit must read the clock")]
    pub(super) fn after(timeout: Duration) -> Self {
        Self { at: Instant::now().checked_add(timeout) }
    }

    /// The time that is left; `None` means no limit.
    #[expect(clippy::disallowed_methods, reason = "a wait with a limit must read the clock")]
    pub(super) fn remaining(&self) -> Option<Duration> {
        self.at.map(|at| at.saturating_duration_since(Instant::now()))
    }
}
