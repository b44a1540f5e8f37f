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

    /// Time since the start.
    #[must_use]
    pub fn now(&self) -> Nanoseconds {
        let elapsed = self.origin.elapsed().as_nanos();
        Nanoseconds(u64::try_from(elapsed).expect("a process runs for less than 584 years"))
    }
}
