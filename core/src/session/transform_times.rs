//! How long transforms take, by the form and the length of what arrived: what deadlines and the depth of staging
//! count on.

use alloc::{collections::BTreeMap, vec::Vec};

use serde::{Deserialize, Serialize};

use super::{Form, Waits};
use crate::{
    latency_quantiles::{LatencyQuantiles, PerMillion},
    units::{Bytes, Nanoseconds},
};

/// The quantiles that are reported: enough for a mean, and for the few transforms that take long.
pub const SHARES: [PerMillion; 8] = [
    PerMillion(100_000),
    PerMillion(500_000),
    PerMillion(750_000),
    PerMillion(900_000),
    PerMillion(950_000),
    PerMillion(990_000),
    PerMillion(999_000),
    PerMillion::ALL,
];

/// After this many transforms of a length, the earlier ones count half.
const FADES_AFTER: u64 = 1024;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedTransforms {
    /// Samples that became rows.
    pub samples: u64,
    /// Summed over threads.
    pub time: Nanoseconds,
    /// At [`SHARES`].
    pub quantiles: [Nanoseconds; SHARES.len()],
}

impl ObservedTransforms {
    pub(super) fn of(times: &Waits) -> Self {
        Self {
            samples: times.count(),
            time: times.sum(),
            quantiles: SHARES.map(|share| times.quantile(share)),
        }
    }

    /// `None` before the first.
    #[must_use]
    pub fn mean(&self) -> Option<Nanoseconds> {
        self.time.0.checked_div(self.samples).map(Nanoseconds)
    }

    /// The distribution of the times, with their mean; `None` before the first, and if the quantiles do not
    /// ascend.
    #[must_use]
    pub fn spread(&self) -> Option<LatencyQuantiles> {
        let mut quantiles: Vec<_> = SHARES.into_iter().zip(self.quantiles).collect();
        LatencyQuantiles::measured(&quantiles).ok()?;
        let longest = self.quantiles[SHARES.len() - 1];
        let shorter = self.quantiles.iter().take_while(|time| **time < longest).count();
        if shorter > 0 {
            let (told, before) = quantiles[shorter - 1];
            let share = self.share_of_longest(shorter)?;
            quantiles.truncate(shorter);
            let up_to = PerMillion(PerMillion::ALL.0 - share.0);
            quantiles.extend((up_to > told).then_some((up_to, before)));
            let from = PerMillion(up_to.0 + 1);
            quantiles.extend((from < PerMillion::ALL).then_some((from, longest)));
            quantiles.push((PerMillion::ALL, longest));
        }
        LatencyQuantiles::measured(&quantiles).ok().filter(|_| self.samples > 0)
    }

    /// The share of transforms that took the longest time, of those above the last of `shorter` quantiles.
    /// It gives the mean, if the others took no longer than that quantile. One outlier does not count as a
    /// larger share.
    fn share_of_longest(&self, shorter: usize) -> Option<PerMillion> {
        let all = u128::from(PerMillion::ALL.0);
        let [before, longest] = [shorter - 1, SHARES.len() - 1].map(|at| self.quantiles[at].0);
        let above = PerMillion::ALL.0 - SHARES[shorter - 1].0;
        // The quantiles up to that one, twice: a share lies evenly between two of them.
        let (mut twice, mut low) = (0_u128, (PerMillion(0), self.quantiles[0]));
        for (share, time) in SHARES.into_iter().zip(self.quantiles).take(shorter) {
            let both = u128::from(low.1.0) + u128::from(time.0);
            twice += both * u128::from(share.0 - low.0.0);
            low = (share, time);
        }
        let sum = twice / 2 + u128::from(before) * u128::from(above);
        let sum_of_all = u128::from(self.time.0) * all / u128::from(self.samples.max(1));
        let share = sum_of_all.saturating_sub(sum) / u128::from(longest.checked_sub(before)?);
        let one = all.div_ceil(u128::from(self.samples.max(1)));
        let share = share.max(one).min(u128::from(above));
        u32::try_from(share).ok().map(PerMillion)
    }
}

#[derive(Debug, Clone, Default)]
pub struct TransformTimes {
    /// By [`Form`].
    spread: [Waits; 2],
    /// By [`Form`], and by the bits of the length.
    by_bits: [BTreeMap<u32, Mean>; 2],
}

#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    samples: u64,
    bytes: u64,
    time: u64,
}

impl TransformTimes {
    pub(super) fn note(&mut self, form: Form, len: Bytes, took: Nanoseconds) {
        self.spread[form as usize].record(took);
        let mean = self.by_bits[form as usize].entry(bits(len)).or_default();
        mean.samples += 1;
        mean.bytes = mean.bytes.saturating_add(len.0);
        mean.time = mean.time.saturating_add(took.0);
        if mean.samples >= FADES_AFTER {
            let Mean { samples, bytes, time } = *mean;
            *mean = Mean { samples: samples / 2, bytes: bytes / 2, time: time / 2 };
        }
    }

    /// The expected time for a sample of `len` bytes, by bytes, from samples of the closest length; 0
    /// before the first.
    pub(super) fn expected(&self, form: Form, len: Bytes) -> Nanoseconds {
        let means = self.by_bits[form as usize].iter();
        let closest = means.min_by_key(|(other, _)| other.abs_diff(bits(len)));
        let Some((_, Mean { bytes, time, .. })) = closest else { return Nanoseconds(0) };
        let expected = u128::from(*time) * u128::from(len.0.max(1)) / u128::from((*bytes).max(1));
        Nanoseconds(u64::try_from(expected).unwrap_or(u64::MAX))
    }

    #[must_use]
    pub fn spread(&self) -> &[Waits; 2] {
        &self.spread
    }
}

fn bits(len: Bytes) -> u32 {
    u64::BITS - len.0.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_expected_to_take_as_long_as_others_of_its_form_and_length() {
        let mut times = TransformTimes::default();
        assert_eq!(times.expected(Form::Stored, Bytes(1_000)), Nanoseconds(0));
        for _ in 0..3 * FADES_AFTER {
            times.note(Form::Stored, Bytes(1_000), Nanoseconds(1_000));
            times.note(Form::Stored, Bytes(100_000), Nanoseconds(10_000_000));
        }
        times.note(Form::Prepared, Bytes(300), Nanoseconds(7));
        let expected = |form, len| times.expected(form, Bytes(len)).0;
        assert_eq!(expected(Form::Stored, 900), 900);
        assert_eq!(expected(Form::Stored, 120_000), 12_000_000);
        assert_eq!(expected(Form::Stored, 4_000_000), 400_000_000, "as the closest");
        assert_eq!(expected(Form::Prepared, 300), 7);
    }

    #[test]
    fn what_was_observed_tells_the_mean_and_the_few_that_take_long() {
        let mut times = TransformTimes::default();
        for number in 0..1_000 {
            let took = if number % 100 == 0 { 50_000_000 } else { 1_000_000 };
            times.note(Form::Stored, Bytes(1_000), Nanoseconds(took));
        }
        let [stored, prepared] = times.spread().each_ref().map(ObservedTransforms::of);
        assert_eq!(stored.mean(), Some(Nanoseconds(1_490_000)));
        let spread = stored.spread().unwrap();
        let near = |share, time: u64| {
            let at = spread.at(PerMillion(share)).0;
            assert!(at.abs_diff(time) <= time / 16, "{share}: {at}");
        };
        near(500_000, 1_000_000);
        near(990_000, 1_000_000);
        near(999_000, 50_000_000);
        assert_eq!((prepared.mean(), prepared.spread()), (None, None));
    }

    #[test]
    fn one_outlier_changes_the_spread_by_no_more_than_the_mean() {
        let mut times = TransformTimes::default();
        times.note(Form::Stored, Bytes(1_000), Nanoseconds(10_000_000_000));
        for _ in 0..10_000 {
            times.note(Form::Stored, Bytes(1_000), Nanoseconds(5_000_000));
        }
        let [stored, _] = times.spread().each_ref().map(ObservedTransforms::of);
        let (spread, mean) = (stored.spread().unwrap(), stored.mean().unwrap().0);
        assert!(spread.mean().0.abs_diff(mean) <= mean / 16, "{mean}: {spread:?}");
        assert!(spread.at(PerMillion(999_800)).0 < 6_000_000, "{spread:?}");
        assert_eq!(spread.at(PerMillion::ALL).0, 10_000_000_000);
    }
}
