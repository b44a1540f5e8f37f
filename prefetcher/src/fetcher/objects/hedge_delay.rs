//! Decides after which time a request is hedged by a second one.
//!
//! A request is late after twice the 95th percentile of recent requests of about its length. Pure: the times
//! are arguments.
//!
//! 1. Without [`KNOWN_MIN`] requests of about its length no request is late.
//! 2. No request is late before [`DELAY_MIN`].
//! 3. A request that takes as long as those before is not late.
//!
//! Source: Dean and Barroso, *The Tail at Scale*, doi:10.1145/2408776.2408794, "hedged requests".

use tierfeed_core::units::{Bytes, Nanoseconds};

/// Durations that are kept for each class.
const REMEMBERED: usize = 128;
/// Fewer durations do not give a 95th percentile.
const KNOWN_MIN: usize = 20;
/// The delay is computed again after this many requests.
const RENEWED_AFTER: usize = 16;
/// The shortest delay: smaller differences come from schedulers, not from stores.
const DELAY_MIN: Nanoseconds = Nanoseconds(10_000_000);
/// Number of length classes; each covers a factor of four.
const CLASSES: usize = 32;

#[derive(Debug)]
pub(crate) struct HedgeDelays {
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    /// The most recent durations; a ring buffer once it is full.
    took: Vec<Nanoseconds>,
    seen: usize,
    delay: Option<Nanoseconds>,
}

impl Default for HedgeDelays {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| Class::default()) }
    }
}

impl HedgeDelays {
    pub(crate) fn observe(&mut self, len: Bytes, took: Nanoseconds) {
        self.classes[class(len)].observe(took);
    }

    /// How long to wait for `len` bytes before a hedge; `None` for no hedge.
    pub(crate) fn delay(&self, len: Bytes) -> Option<Nanoseconds> {
        self.classes[class(len)].delay
    }
}

fn class(len: Bytes) -> usize {
    usize::try_from(len.0.max(1).ilog2() / 2).unwrap_or(0).min(CLASSES - 1)
}

impl Class {
    fn observe(&mut self, took: Nanoseconds) {
        if self.took.len() < REMEMBERED {
            self.took.push(took);
        } else {
            self.took[self.seen % REMEMBERED] = took;
        }
        self.seen = self.seen.wrapping_add(1);
        let is_due = self.seen.is_multiple_of(RENEWED_AFTER) || self.took.len() == KNOWN_MIN;
        if self.took.len() >= KNOWN_MIN && is_due {
            self.delay = Some(self.twice_p95());
        }
    }

    fn twice_p95(&self) -> Nanoseconds {
        let mut took = self.took.clone();
        let rank = (took.len() * 95).div_ceil(100).saturating_sub(1);
        let (_, slow, _) = took.select_nth_unstable(rank);
        Nanoseconds(slow.0.saturating_mul(2)).max(DELAY_MIN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: Bytes = Bytes(100 << 10);
    const MS: u64 = 1_000_000;

    fn after(took_ms: impl IntoIterator<Item = u64>) -> Option<Nanoseconds> {
        let mut hedge_delays = HedgeDelays::default();
        took_ms.into_iter().for_each(|ms| hedge_delays.observe(LEN, Nanoseconds(ms * MS)));
        hedge_delays.delay(LEN)
    }

    #[test]
    fn twice_what_95_of_100_took_is_late() {
        assert_eq!(after(1..=100), Some(Nanoseconds(2 * 92 * MS)), "of the first 96");
        assert_eq!(after(1..=20), Some(Nanoseconds(2 * 19 * MS)));
        assert_eq!(after(1..=19), None, "invariant 1");
        assert_eq!(after([0; 50]), Some(DELAY_MIN), "invariant 2");
    }

    #[test]
    fn old_durations_are_forgotten() {
        assert_eq!(after([500; 40].into_iter().chain([20; 160])), Some(Nanoseconds(40 * MS)));
    }

    #[test]
    fn lengths_do_not_mix() {
        let mut hedge_delays = HedgeDelays::default();
        (0..50).for_each(|_| hedge_delays.observe(LEN, Nanoseconds(20 * MS)));
        assert_eq!(hedge_delays.delay(Bytes(16 << 20)), None);
        assert_eq!(hedge_delays.delay(Bytes(u64::MAX)), None);
        assert_eq!(hedge_delays.delay(Bytes(0)), None);
        (0..50).for_each(|_| hedge_delays.observe(Bytes(16 << 20), Nanoseconds(300 * MS)));
        assert_eq!(hedge_delays.delay(LEN), Some(Nanoseconds(40 * MS)));
    }

    proptest! {
        #[test]
        fn at_most_one_in_ten_of_steady_requests_is_late(
            took_ms in prop::collection::vec(10_u64..1_000, 20..400),
        ) {
            let delay = after(took_ms.iter().copied()).unwrap();
            let lately = &took_ms[took_ms.len().saturating_sub(REMEMBERED)..];
            let late = lately.iter().filter(|ms| **ms * MS > delay.0).count();
            // All requests since the delay was computed may be late.
            prop_assert!(late <= lately.len() / 20 + RENEWED_AFTER, "{late} of {}", lately.len());
            prop_assert!(delay >= DELAY_MIN, "invariant 2");
        }

        #[test]
        fn what_takes_as_long_as_before_is_not_late(ms in 0_u64..100_000, count in 20_usize..300) {
            let delay = after(std::iter::repeat_n(ms, count)).unwrap();
            prop_assert!(delay.0 >= ms * MS, "invariant 3");
        }
    }
}
