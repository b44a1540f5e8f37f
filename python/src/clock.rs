//! The clock of long calls, and how they notice Ctrl-C: the interpreter is asked every 100 ms.
//!
//! Nothing here is attached to the interpreter while it waits.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use pyo3::prelude::*;
use tierfeed_core::units::Nanoseconds;

/// How long a pending signal handler may wait.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

/// Runs signal handlers at intervals during a long call.
#[derive(Debug)]
pub(crate) struct SignalPoll<'a> {
    clock: &'a Clock,
    checked: Cell<Nanoseconds>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: instant_now() }
    }

    pub(crate) fn now(&self) -> Nanoseconds {
        let elapsed = instant_now().duration_since(self.origin);
        Nanoseconds(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn signal_poll(&self) -> SignalPoll<'_> {
        SignalPoll { clock: self, checked: Cell::new(self.now()) }
    }
}

impl SignalPoll<'_> {
    /// Runs pending signal handlers if the interval is over, and returns what they raise.
    pub(crate) fn check(&self) -> PyResult<()> {
        let now = self.clock.now();
        let since = Duration::from_nanos(now.0.saturating_sub(self.checked.get().0));
        if since < SIGNAL_INTERVAL {
            return Ok(());
        }
        self.checked.set(now);
        check_signals()
    }
}

/// Runs pending signal handlers and returns what they raise. Attaches to the interpreter.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method is for one lifetime only"
)]
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}

#[expect(clippy::disallowed_methods, reason = "the one place of this crate that reads the clock")]
fn instant_now() -> Instant {
    Instant::now()
}
