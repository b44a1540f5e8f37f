//! The clock of measurements, and waits for other processes.

use std::{
    thread,
    time::{Duration, Instant},
};

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Lets time pass without using a CPU.
#[expect(clippy::disallowed_methods, reason = "other processes give no event to wait for")]
pub fn pause(time: Duration) {
    thread::sleep(time);
}
