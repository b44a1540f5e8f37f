//! The clock that agent and trainers of a host share, so that a trainer can timestamp its own
//! waits.

use rustix::time::{ClockId, clock_gettime};
use tierfeed_core::units::Nanoseconds;

/// The time since the host started (`CLOCK_MONOTONIC`, as Python's `time.monotonic_ns`).
#[must_use]
pub fn monotonic_now() -> Nanoseconds {
    let now = clock_gettime(ClockId::Monotonic);
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    Nanoseconds(part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_and_never_back() {
        let first = monotonic_now();
        let second = monotonic_now();
        assert!(Nanoseconds(0) < first && first <= second);
    }
}
