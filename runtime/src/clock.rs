//! The one place of this crate that reads a clock.

use std::time::Instant;

use tierfeed_core::units::Nanoseconds;

/// Time since the process began its work, for the core and for reports.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that shows 0 now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the shell's only clock")]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// When it showed 0, for those who must count on the same clock.
    #[must_use]
    pub fn origin(&self) -> Instant {
        self.origin
    }

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Nanoseconds {
        // No process runs for the 584 years that fit.
        Nanoseconds(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
