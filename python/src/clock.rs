//! The clock of long calls, and how they notice Ctrl-C: the interpreter is asked every 100 ms.
//!
//! Nothing here is attached to the interpreter while it waits.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

use pyo3::prelude::*;
use tierfeed_core::units::Nanoseconds;

/// How long a signal may go unnoticed.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// A clock that starts at zero.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

/// Remembers when the interpreter was last asked for signals.
#[derive(Debug)]
pub(crate) struct Watch<'a> {
    clock: &'a Clock,
    asked: Cell<Nanoseconds>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: instant_now() }
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Nanoseconds {
        let elapsed = instant_now().duration_since(self.origin);
        Nanoseconds(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Begins to watch for signals.
    pub(crate) fn watch(&self) -> Watch<'_> {
        Watch { clock: self, asked: Cell::new(self.now()) }
    }
}

impl Watch<'_> {
    /// Runs pending signal handlers if it is time to, and returns what they raise.
    pub(crate) fn check(&self) -> PyResult<()> {
        let now = self.clock.now();
        let since = Duration::from_nanos(now.0.saturating_sub(self.asked.get().0));
        if since < SIGNAL_INTERVAL {
            return Ok(());
        }
        self.asked.set(now);
        check_signals()
    }

    /// Waits until `deadline`, unless a signal handler raises before.
    pub(crate) fn wait_until(&self, deadline: Nanoseconds) -> PyResult<()> {
        loop {
            let remaining = deadline.0.saturating_sub(self.clock.now().0);
            if remaining == 0 {
                return Ok(());
            }
            sleep(Duration::from_nanos(remaining).min(SIGNAL_INTERVAL));
            self.check()?;
        }
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

#[expect(
    clippy::disallowed_methods,
    reason = "plays a slow cold store: there is no event to wait for"
)]
fn sleep(time: Duration) {
    thread::sleep(time);
}
