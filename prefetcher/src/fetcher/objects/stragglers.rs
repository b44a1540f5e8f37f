//! Decides when a request is so late that a second one is worth its cost.
//!
//! Late is what takes twice as long as 95 of 100 requests of about its length took lately. Pure: the
//! times are arguments.
//!
//! 1. Without [`KNOWN_MIN`] requests of about its length no request is late.
//! 2. No request is late before [`PATIENCE_MIN`].
//! 3. Of requests that take as long as those before, none is late.
//!
//! Source: Dean and Barroso, *The Tail at Scale*, doi:10.1145/2408776.2408794, "hedged requests".

use tierfeed_core::units::{Bytes, Nanoseconds};

/// So many of a class are remembered.
const REMEMBERED: usize = 128;
/// Fewer say nothing about the slowest 5 of 100.
const KNOWN_MIN: usize = 20;
/// After so many more the limit is worked out again.
const RENEWED_AFTER: usize = 16;
/// What differs by less is due to schedulers, not to stores.
const PATIENCE_MIN: Nanoseconds = Nanoseconds(10_000_000);
/// Lengths up to four times as long are of one class.
const CLASSES: usize = 32;

/// How long requests took lately, by their length.
#[derive(Debug)]
pub(crate) struct Stragglers {
    classes: [Class; CLASSES],
}

#[derive(Debug, Default)]
struct Class {
    /// A ring, once it is full.
    took: Vec<Nanoseconds>,
    seen: usize,
    patience: Option<Nanoseconds>,
}

impl Default for Stragglers {
    fn default() -> Self {
        Self { classes: std::array::from_fn(|_| Class::default()) }
    }
}

impl Stragglers {
    /// A request for `len` bytes ended well.
    pub(crate) fn observe(&mut self, len: Bytes, took: Nanoseconds) {
        self.classes[class(len)].observe(took);
    }

    /// How long to wait for `len` bytes before they are asked for again; for ever if none.
    pub(crate) fn patience(&self, len: Bytes) -> Option<Nanoseconds> {
        self.classes[class(len)].patience
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
            self.patience = Some(self.twice_the_slow());
        }
    }

    fn twice_the_slow(&self) -> Nanoseconds {
        let mut took = self.took.clone();
        let rank = (took.len() * 95).div_ceil(100).saturating_sub(1);
        let (_, slow, _) = took.select_nth_unstable(rank);
        Nanoseconds(slow.0.saturating_mul(2)).max(PATIENCE_MIN)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEN: Bytes = Bytes(100 << 10);
    const MS: u64 = 1_000_000;

    fn after(took_ms: impl IntoIterator<Item = u64>) -> Option<Nanoseconds> {
        let mut stragglers = Stragglers::default();
        took_ms.into_iter().for_each(|ms| stragglers.observe(LEN, Nanoseconds(ms * MS)));
        stragglers.patience(LEN)
    }

    #[test]
    fn twice_what_95_of_100_took_is_late() {
        assert_eq!(after(1..=100), Some(Nanoseconds(2 * 92 * MS)), "of the first 96");
        assert_eq!(after(1..=20), Some(Nanoseconds(2 * 19 * MS)));
        assert_eq!(after(1..=19), None, "invariant 1");
        assert_eq!(after([0; 50]), Some(PATIENCE_MIN), "invariant 2");
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        assert_eq!(after([500; 40].into_iter().chain([20; 160])), Some(Nanoseconds(40 * MS)));
    }

    #[test]
    fn lengths_do_not_mix() {
        let mut stragglers = Stragglers::default();
        (0..50).for_each(|_| stragglers.observe(LEN, Nanoseconds(20 * MS)));
        assert_eq!(stragglers.patience(Bytes(16 << 20)), None);
        assert_eq!(stragglers.patience(Bytes(u64::MAX)), None);
        assert_eq!(stragglers.patience(Bytes(0)), None);
        (0..50).for_each(|_| stragglers.observe(Bytes(16 << 20), Nanoseconds(300 * MS)));
        assert_eq!(stragglers.patience(LEN), Some(Nanoseconds(40 * MS)));
    }

    proptest! {
        #[test]
        fn at_most_one_in_ten_of_steady_requests_is_late(
            took_ms in prop::collection::vec(10_u64..1_000, 20..400),
        ) {
            let patience = after(took_ms.iter().copied()).unwrap();
            let lately = &took_ms[took_ms.len().saturating_sub(REMEMBERED)..];
            let late = lately.iter().filter(|ms| **ms * MS > patience.0).count();
            // What came since the limit was worked out may all be late.
            prop_assert!(late <= lately.len() / 20 + RENEWED_AFTER, "{late} of {}", lately.len());
            prop_assert!(patience >= PATIENCE_MIN, "invariant 2");
        }

        #[test]
        fn what_takes_as_long_as_before_is_not_late(ms in 0_u64..100_000, count in 20_usize..300) {
            let patience = after(std::iter::repeat_n(ms, count)).unwrap();
            prop_assert!(patience.0 >= ms * MS, "invariant 3");
        }
    }
}
