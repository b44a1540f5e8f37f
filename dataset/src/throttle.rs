//! Computes when a transfer over a slow link would end: the arithmetic of an emulated link.
//!
//! A link is a latency and a rate. Transfers share the rate, one after the other in the order of
//! their requests, as on a saturated bus; their latencies overlap. Pure: the caller provides the
//! time and does the waiting, so the properties below are tested without a clock.
//!
//! Invariants:
//!
//! 1. No window of time carries more bytes than the rate allows.
//! 2. No transfer ends before its latency has passed, plus its own length at the full rate.
//! 3. A link that always has a transfer loses no time: only rounding, one nanosecond a transfer.

use tierfeed_core::{
    tier::Speed,
    units::{Bytes, Nanoseconds},
};

/// A link of limited speed, and the end of its reservations.
#[derive(Debug, Clone)]
pub struct Throttle {
    speed: Speed,
    busy_until: Nanoseconds,
}

impl Throttle {
    #[must_use]
    pub fn new(speed: Speed) -> Self {
        Self { speed, busy_until: Nanoseconds(0) }
    }

    /// Reserves the link for `amount` and returns when the last byte would arrive.
    ///
    /// `now` must come from one clock. If it jumps back, transfers only get later.
    pub fn reserve(&mut self, now: Nanoseconds, amount: Bytes) -> Nanoseconds {
        let starts = now.max(self.busy_until);
        let busy = starts.0.saturating_add(self.speed.bandwidth.time_for(amount).0);
        self.busy_until = Nanoseconds(busy);
        Nanoseconds(busy.saturating_add(self.speed.latency.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tierfeed_core::units::BytesPerSecond;

    use super::*;

    const LATENCY: Nanoseconds = Nanoseconds(5_000);
    const BANDWIDTH: BytesPerSecond = BytesPerSecond(1_000_000_000);

    fn link() -> Throttle {
        Throttle::new(Speed { latency: LATENCY, bandwidth: BANDWIDTH })
    }

    #[test]
    fn latencies_overlap_and_the_rate_is_shared() {
        let mut link = link();
        let deadlines: Vec<_> =
            (0..4).map(|_| link.reserve(Nanoseconds(0), Bytes(1_000))).collect();
        assert_eq!(deadlines, [6_000, 7_000, 8_000, 9_000].map(Nanoseconds));
    }

    #[test]
    fn an_idle_link_gathers_no_credit() {
        let mut link = link();
        link.reserve(Nanoseconds(0), Bytes(1_000));
        let later = Nanoseconds(1_000_000_000);
        assert_eq!(link.reserve(later, Bytes(1_000)), Nanoseconds(later.0 + 6_000));
    }

    #[test]
    fn a_rate_of_zero_is_unlimited() {
        let speed = Speed { latency: LATENCY, bandwidth: BytesPerSecond(0) };
        let mut link = Throttle::new(speed);
        assert_eq!(link.reserve(Nanoseconds(7), Bytes(u64::MAX)), Nanoseconds(5_007));
        assert_eq!(link.reserve(Nanoseconds(7), Bytes(u64::MAX)), Nanoseconds(5_007));
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        let speed = Speed { latency: LATENCY, bandwidth: BytesPerSecond(1) };
        let mut link = Throttle::new(speed);
        assert_eq!(link.reserve(Nanoseconds(1), Bytes(u64::MAX)), Nanoseconds(u64::MAX));
    }

    proptest! {
        #[test]
        fn no_window_carries_more_than_the_rate(
            transfers in prop::collection::vec((0_u64..50_000, 1_u64..100_000), 1..60),
        ) {
            let mut link = link();
            let mut now = 0;
            let mut done = Vec::new();
            for (gap, amount) in transfers {
                now += gap;
                let deadline = link.reserve(Nanoseconds(now), Bytes(amount)).0;
                prop_assert!(deadline >= now + LATENCY.0 + amount, "invariant 2");
                done.push((deadline, amount));
            }
            for first in 0..done.len() {
                // Everything after `first` arrived in the window that starts when `first` arrived.
                let carried: u64 = done[first + 1..].iter().map(|(_, amount)| amount).sum();
                let window = done[done.len() - 1].0 - done[first].0;
                prop_assert!(carried <= window, "invariant 1: {carried} bytes in {window} ns");
            }
        }

        #[test]
        fn a_link_in_demand_loses_no_time(amounts in prop::collection::vec(1_u64..100_000, 1..60)) {
            let speed = Speed { latency: LATENCY, bandwidth: BytesPerSecond(3_000_000_000) };
            let mut link = Throttle::new(speed);
            let mut last = 0;
            for amount in &amounts {
                last = link.reserve(Nanoseconds(0), Bytes(*amount)).0;
            }
            let total: u64 = amounts.iter().sum();
            let rounding = amounts.len() as u64;
            prop_assert!(last <= LATENCY.0 + total.div_ceil(3) + rounding, "invariant 3");
        }
    }
}
