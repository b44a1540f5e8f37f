//! How long calls notice Ctrl-C: the interpreter is asked every 100 ms.
//!
//! Nothing here is attached to the interpreter while it waits.

use std::time::Duration;

use pyo3::prelude::*;
use tierfeed_core::units::Nanoseconds;
use tierfeed_handoff::monotonic_now;

/// How long a pending signal handler may wait.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// Runs signal handlers at intervals during a long call.
#[derive(Debug)]
pub(crate) struct SignalPoll {
    checked: Nanoseconds,
}

impl SignalPoll {
    pub(crate) fn start() -> Self {
        Self { checked: monotonic_now() }
    }

    /// Runs pending signal handlers if the interval is over, and returns what they raise.
    pub(crate) fn check(&mut self) -> PyResult<()> {
        let now = monotonic_now();
        if Duration::from_nanos(now.0.saturating_sub(self.checked.0)) < SIGNAL_INTERVAL {
            return Ok(());
        }
        self.checked = now;
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
