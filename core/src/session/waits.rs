//! A histogram of waits.

use alloc::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{latency_quantiles::PerMillion, units::Nanoseconds};

/// Buckets in each doubling of the wait: a percentile is at most 1/16 too high.
const BUCKETS_PER_OCTAVE: u64 = 16;

/// A histogram of waits, in buckets that grow with the wait.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waits {
    buckets: BTreeMap<u64, u64>,
    count: u64,
    sum: Nanoseconds,
    max: Nanoseconds,
}

impl Waits {
    pub fn record(&mut self, wait: Nanoseconds) {
        self.record_several(wait, 1);
    }

    pub(super) fn record_several(&mut self, wait: Nanoseconds, count: u64) {
        *self.buckets.entry(bucket(wait.0)).or_default() += count;
        self.count += count;
        self.sum.0 = self.sum.0.saturating_add(wait.0.saturating_mul(count));
        self.max = self.max.max(wait);
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    #[must_use]
    pub fn sum(&self) -> Nanoseconds {
        self.sum
    }

    #[must_use]
    pub fn max(&self) -> Nanoseconds {
        self.max
    }

    /// A wait that at least `percent` of all waits do not exceed.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Nanoseconds {
        self.quantile(PerMillion(u32::from(percent) * 10_000))
    }

    /// A wait that at least this share of all waits does not exceed.
    #[must_use]
    pub fn quantile(&self, share: PerMillion) -> Nanoseconds {
        let rank = u128::from(self.count) * u128::from(share.0);
        let rank = rank.div_ceil(u128::from(PerMillion::ALL.0)).max(1);
        let rank = u64::try_from(rank).unwrap_or(u64::MAX);
        let mut seen = 0;
        for (bucket, count) in &self.buckets {
            seen += count;
            if seen >= rank {
                return Nanoseconds(upper_end(*bucket)).min(self.max);
            }
        }
        self.max
    }

    /// The waits that were recorded after `earlier`. The longest of them is known only to the precision of
    /// a bucket.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let left = self.buckets.iter().filter_map(|(bucket, count)| {
            let count = count - earlier.buckets.get(bucket).copied().unwrap_or(0).min(*count);
            (count > 0).then_some((*bucket, count))
        });
        let buckets: BTreeMap<u64, u64> = left.collect();
        let longest = buckets.last_key_value().map_or(0, |(bucket, _)| upper_end(*bucket));
        Self {
            buckets,
            count: self.count - earlier.count.min(self.count),
            sum: Nanoseconds(self.sum.0 - earlier.sum.0.min(self.sum.0)),
            max: Nanoseconds(longest).min(self.max),
        }
    }

    /// In ascending order: the longest wait that belongs to each bucket, and the count of its waits.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanoseconds, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (Nanoseconds(upper_end(*bucket)), *count))
    }
}

fn bucket(value: u64) -> u64 {
    if value < BUCKETS_PER_OCTAVE {
        return value;
    }
    let shift = u64::from(value.ilog2() - BUCKETS_PER_OCTAVE.ilog2());
    (shift << 32) | (value >> shift)
}

fn upper_end(bucket: u64) -> u64 {
    let (shift, mantissa) = (bucket >> 32, bucket & 0xffff_ffff);
    (mantissa << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_at_most_a_sixteenth_too_high(
            mut waits in prop::collection::vec(0_u64..10_000_000_000, 1..200), percent in 1_u8..=100,
        ) {
            let mut recorded = Waits::default();
            waits.iter().for_each(|wait| recorded.record(Nanoseconds(*wait)));
            waits.sort_unstable();
            let rank = (waits.len() * usize::from(percent)).div_ceil(100).max(1);
            let exact = waits[rank - 1];
            let reported = recorded.percentile(percent).0;
            prop_assert!(exact <= reported && reported <= exact + exact / 16, "{exact} {reported}");
            prop_assert_eq!(recorded.sum().0, waits.iter().sum::<u64>());
            let mut seen = 0;
            for (longest, count) in recorded.buckets() {
                seen += count;
                let within = waits.iter().filter(|wait| **wait <= longest.0).count();
                prop_assert_eq!(seen, within as u64, "waits up to {}", longest.0);
            }
            prop_assert_eq!(seen, waits.len() as u64);
        }

        #[test]
        fn what_came_later_is_all_without_what_came_before(
            before in prop::collection::vec(0_u64..10_000_000, 0..50),
            later in prop::collection::vec(0_u64..10_000_000, 0..50),
        ) {
            let of = |waits: &[u64]| {
                let mut recorded = Waits::default();
                waits.iter().for_each(|wait| recorded.record(Nanoseconds(*wait)));
                recorded
            };
            let since = of(&[&before[..], &later].concat()).since(&of(&before));
            let alone = of(&later);
            prop_assert_eq!((since.count(), since.sum()), (alone.count(), alone.sum()));
            for percent in 1..100 {
                let (since, alone) = (since.percentile(percent).0, alone.percentile(percent).0);
                prop_assert!(alone <= since && since <= alone + alone / 16, "{since} {alone}");
            }
        }
    }
}
