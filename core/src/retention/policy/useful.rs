//! How much of each tier is worth filling: the bytes that can be read from it while the trainer
//! computes.

use alloc::vec::Vec;

use crate::units::{Bytes, BytesPerSecond, Nanoseconds};

/// A tier or store that samples are read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    pub capacity: Bytes,
    /// Its read rate. Zero means unlimited.
    pub rate: BytesPerSecond,
}

/// The bytes of each tier that are worth filling if an epoch reads every byte of `dataset` once on
/// one node, the trainer computes for `compute`, and all tiers are read at the same time. A tier may
/// hold less now and grow, so its capacity is no limit here.
///
/// A slow and large tier delivers less in an epoch than it can hold: reading the rest from it would
/// take longer than from the cold store.
///
/// # Source
///
/// An epoch takes the least time `T`, at least `compute`, with
/// `sum min(capacity, rate * T) + cold * T >= dataset`; each tier then delivers `min(capacity, rate * T)`.
#[must_use]
pub fn useful(
    dataset: Bytes,
    tiers: &[Reach],
    cold: BytesPerSecond,
    compute: Nanoseconds,
) -> Vec<Bytes> {
    let time = least_time(dataset, tiers, cold, compute);
    tiers.iter().map(|tier| tier.readable_within(time)).collect()
}

fn least_time(
    dataset: Bytes,
    tiers: &[Reach],
    cold: BytesPerSecond,
    compute: Nanoseconds,
) -> Nanoseconds {
    let cold = Reach { capacity: dataset, rate: cold };
    let given = |time| {
        let tiers = tiers.iter().map(|tier| tier.within(time).0);
        tiers.fold(cold.within(time).0, u64::saturating_add)
    };
    let (mut low, mut high) = (compute.0, u64::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if given(Nanoseconds(middle)) >= dataset.0 { high = middle } else { low = middle + 1 }
    }
    Nanoseconds(low)
}

impl Reach {
    fn within(self, time: Nanoseconds) -> Bytes {
        self.readable_within(time).min(self.capacity)
    }

    /// Bytes that it would deliver within `time` if it held enough.
    fn readable_within(self, time: Nanoseconds) -> Bytes {
        if self.rate.0 == 0 {
            return Bytes(u64::MAX);
        }
        let bytes = u128::from(self.rate.0) * u128::from(time.0) / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanoseconds = Nanoseconds(1_000_000_000);

    fn reach(capacity: u64, rate: u64) -> Reach {
        Reach { capacity: Bytes(capacity), rate: BytesPerSecond(rate) }
    }

    const ALL: Bytes = Bytes(u64::MAX);

    #[test]
    fn a_tier_that_keeps_up_is_filled_however_much_it_grows() {
        let tiers = [reach(300, 0), reach(200, 250)];
        let useful = useful(Bytes(1000), &tiers, BytesPerSecond(600), SECOND);
        assert_eq!(useful, [ALL, Bytes(250)]);
    }

    #[test]
    fn a_slow_tier_is_filled_as_far_as_it_can_be_read() {
        let tiers = [reach(300, 0), reach(700, 100)];
        // 300 at once, 100 from the slow tier, 600 cold: all in the second that the trainer computes.
        let of = useful(Bytes(1000), &tiers, BytesPerSecond(600), SECOND);
        assert_eq!(of, [ALL, Bytes(100)]);
        // Half of the cold rate: 300 + 100 T + 300 T = 1000 at T = 1.75 s.
        let of = useful(Bytes(1000), &tiers, BytesPerSecond(300), SECOND);
        assert_eq!(of, [ALL, Bytes(175)]);
    }

    #[test]
    fn nothing_known_limits_nothing() {
        let of = useful(Bytes(1000), &[reach(900, 0)], BytesPerSecond(0), Nanoseconds(0));
        assert_eq!(of, [ALL]);
    }
}
