//! The clock of emulated links, and the only place where reads and copies wait for a point in time.
//!
//! Only emulated links wait. A short wait yields instead of sleeping, because the kernel wakes a
//! sleeper tens of microseconds late, and the latencies of an emulated memory tier are shorter than
//! that. All waits can be ended at once, so that a shutdown takes no longer than a system call.

use std::{
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tierfeed_core::{
    tier::Speed,
    units::{Bytes, Nanoseconds},
};

use crate::throttle::Throttle;

/// Waits up to this long spin: the kernel wakes a sleeper too late (its timer slack is 50 us, and
/// the switch takes time too). Longer ones sleep, because a late wake-up costs less than a busy
/// CPU.
const SPUN_MAX: Nanoseconds = Nanoseconds(100_000);

/// A clock that starts at zero, and a signal that ends all waits on it.
#[derive(Debug)]
pub struct Pace {
    origin: Instant,
    released: Mutex<bool>,
    bell: Condvar,
}

impl Pace {
    #[must_use]
    pub fn start() -> Self {
        Self { origin: instant_now(), released: Mutex::new(false), bell: Condvar::new() }
    }

    #[must_use]
    pub fn now(&self) -> Nanoseconds {
        let elapsed = instant_now().duration_since(self.origin);
        Nanoseconds(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Blocks until `deadline`, or until all waits are released.
    pub fn wait_until_blocking(&self, deadline: Nanoseconds) {
        loop {
            let remaining = deadline.0.saturating_sub(self.now().0);
            if remaining == 0 {
                return;
            }
            if remaining <= SPUN_MAX.0 {
                thread::yield_now();
                continue;
            }
            let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
            let (released, _) = self
                .bell
                .wait_timeout_while(released, Duration::from_nanos(remaining), |released| {
                    !*released
                })
                .unwrap_or_else(PoisonError::into_inner);
            if *released {
                return;
            }
        }
    }

    /// Ends all waits, now and from now on.
    pub fn release(&self) {
        *self.released.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.bell.notify_all();
    }
}

#[derive(Debug)]
pub struct Link {
    throttle: Mutex<Throttle>,
}

impl Link {
    #[must_use]
    pub fn new(speed: Speed) -> Self {
        Self { throttle: Mutex::new(Throttle::new(speed)) }
    }

    /// Reserves the link for `amount` from now on and returns when the last byte would arrive.
    ///
    /// The real transfer runs meanwhile, so an emulated link is never faster than the real one and
    /// never slower than the sum of both.
    pub fn reserve(&self, pace: &Pace, amount: Bytes) -> Nanoseconds {
        let mut throttle = self.throttle.lock().unwrap_or_else(PoisonError::into_inner);
        throttle.reserve(pace.now(), amount)
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place of the data plane that reads a clock")]
fn instant_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_after_its_deadline() {
        let pace = Pace::start();
        let deadline = Nanoseconds(pace.now().0 + 3_000_000);
        pace.wait_until_blocking(deadline);
        assert!(pace.now() >= deadline);
    }

    #[test]
    fn a_release_ends_the_longest_wait() {
        let pace = Pace::start();
        thread::scope(|scope| {
            scope.spawn(|| pace.wait_until_blocking(Nanoseconds(u64::MAX)));
            pace.release();
        });
        pace.wait_until_blocking(Nanoseconds(u64::MAX));
    }
}
