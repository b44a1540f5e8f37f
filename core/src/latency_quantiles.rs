//! The distribution of a latency that varies: a table of quantiles.
//!
//! Between two quantiles every time is equally likely; below the first one all times count as the
//! first, so that a table with few points overestimates. The seeded generator of the draws is an
//! argument, so a simulated run repeats byte for byte.

use alloc::{vec, vec::Vec};
use core::fmt;

use crate::units::Nanoseconds;

/// A share in millionths: 999 000 is 99.9 %.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PerMillion(pub u32);

impl PerMillion {
    pub const ALL: Self = Self(1_000_000);
}

impl fmt::Display for PerMillion {
    /// In percent, with as many digits as it needs: `99.9 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut rest, mut digits) = (self.0 / 10_000, self.0 % 10_000, 4);
        if rest == 0 {
            return write!(f, "{whole} %");
        }
        while rest % 10 == 0 {
            (rest, digits) = (rest / 10, digits - 1);
        }
        write!(f, "{whole}.{rest:0digits$} %")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyQuantiles {
    /// In ascending order of shares, up to [`PerMillion::ALL`]; times never decrease.
    quantiles: Vec<(PerMillion, Nanoseconds)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantileError {
    #[error("the table of quantiles must end with the longest time, at 100 %")]
    NoMaximum,
    #[error("the quantile of {share} with {} ns does not lie above the one before it", .time.0)]
    Unsorted { share: PerMillion, time: Nanoseconds },
}

/// Times that are uniformly distributed between two quantiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Band {
    pub(crate) share: PerMillion,
    pub(crate) from: Nanoseconds,
    pub(crate) to: Nanoseconds,
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    Below,
    UpTo,
}

impl LatencyQuantiles {
    #[must_use]
    pub fn constant(time: Nanoseconds) -> Self {
        Self { quantiles: vec![(PerMillion::ALL, time)] }
    }

    /// For each share, the time that this share of all times does not exceed. Shares ascend.
    ///
    /// # Errors
    ///
    /// [`QuantileError`] if shares or times decrease, or if the last share is not 100 %.
    pub fn measured(quantiles: &[(PerMillion, Nanoseconds)]) -> Result<Self, QuantileError> {
        for pair in quantiles.windows(2) {
            let (share, time) = pair[1];
            if share <= pair[0].0 || time < pair[0].1 {
                return Err(QuantileError::Unsorted { share, time });
            }
        }
        if quantiles.last().is_none_or(|(share, _)| *share != PerMillion::ALL) {
            return Err(QuantileError::NoMaximum);
        }
        Ok(Self { quantiles: quantiles.to_vec() })
    }

    /// The distribution of times that come from several distributions, from each in proportion to its
    /// weight. `None` without any weight.
    #[must_use]
    pub fn mixed(parts: &[(u64, &Self)]) -> Option<Self> {
        let all = parts.iter().map(|(weight, _)| u128::from(*weight)).sum::<u128>();
        let times = parts
            .iter()
            .filter(|(weight, _)| *weight > 0)
            .flat_map(|(_, part)| part.quantiles.iter().map(|(_, time)| *time));
        let mut times: Vec<Nanoseconds> = times.collect();
        times.sort_unstable();
        times.dedup();
        let mut quantiles: Vec<(PerMillion, Nanoseconds)> = Vec::new();
        for time in times {
            for limit in [Limit::Below, Limit::UpTo] {
                let weighted = parts.iter().map(|(weight, part)| {
                    u128::from(*weight) * u128::from(part.share_of(time, limit))
                });
                let share = weighted.sum::<u128>() / all;
                let share = PerMillion(u32::try_from(share >> 32).unwrap_or(PerMillion::ALL.0));
                match quantiles.last() {
                    None if share.0 == 0 => {}
                    // No time lies between the last one and this: a share that is as good as none leads here.
                    Some((last, _)) if *last == share => {
                        let next = PerMillion(share.0 + 1);
                        let is_free = matches!(limit, Limit::Below) && next < PerMillion::ALL;
                        quantiles.extend(is_free.then_some((next, time)));
                    }
                    Some((last, _)) if *last > share => {}
                    _ => quantiles.push((share, time)),
                }
            }
        }
        (all > 0).then_some(Self { quantiles })
    }

    /// The time that this share of all times does not exceed.
    #[must_use]
    pub fn at(&self, share: PerMillion) -> Nanoseconds {
        self.at_position(u64::from(share.0.min(PerMillion::ALL.0)) << 32)
    }

    #[must_use]
    pub fn mean(&self) -> Nanoseconds {
        let weighted = |band: Band| {
            (u128::from(band.from.0) + u128::from(band.to.0)) * u128::from(band.share.0)
        };
        let sum: u128 = self.bands().map(weighted).sum();
        let mean = sum / (2 * u128::from(PerMillion::ALL.0));
        Nanoseconds(u64::try_from(mean).unwrap_or(u64::MAX))
    }

    pub fn draw(&self, draws: &mut Draws) -> Nanoseconds {
        if let [(_, time)] = self.quantiles[..] {
            return time;
        }
        self.at_position((draws.word() >> 32) * u64::from(PerMillion::ALL.0))
    }

    /// Shortest times first.
    pub(crate) fn bands(&self) -> impl Iterator<Item = Band> + '_ {
        let first = (PerMillion(0), self.quantiles[0].1);
        let before = core::iter::once(&first).chain(&self.quantiles).copied().collect::<Vec<_>>();
        before.into_iter().zip(&self.quantiles).map(|((low, from), (high, to))| Band {
            share: PerMillion(high.0 - low.0),
            from,
            to: *to,
        })
    }

    /// The share of the times below `time`, or up to it, in millionths of 2^-32.
    fn share_of(&self, time: Nanoseconds, limit: Limit) -> u64 {
        let (mut share_below, mut time_below) = (0_u64, None);
        for (share, at) in &self.quantiles {
            let share = u64::from(share.0) << 32;
            let is_passed = match limit {
                Limit::Below => *at < time,
                Limit::UpTo => *at <= time,
            };
            if is_passed {
                (share_below, time_below) = (share, Some(*at));
                continue;
            }
            let Some(Nanoseconds(from)) = time_below.filter(|from| *from < *at) else {
                return share_below;
            };
            let way = u128::from(share - share_below) * u128::from(time.0 - from);
            let way = way / u128::from(at.0 - from);
            return share_below + u64::try_from(way).expect("no more than the whole way");
        }
        share_below
    }

    /// `position` is a share in millionths of 2^-32, so that draws are finer than the table.
    fn at_position(&self, position: u64) -> Nanoseconds {
        let position_of = |share: PerMillion| u64::from(share.0) << 32;
        let above = self.quantiles.iter().position(|(share, _)| position_of(*share) >= position);
        let above = above.expect("the table reaches up to all");
        let (share, time) = self.quantiles[above];
        if above == 0 {
            return time;
        }
        let (share_below, time_below) = self.quantiles[above - 1];
        let (low, high) = (position_of(share_below), position_of(share));
        let way = u128::from(time.0 - time_below.0) * u128::from(position - low);
        let way = way.div_ceil(u128::from(high - low));
        Nanoseconds(time_below.0 + u64::try_from(way).expect("no more than the whole way"))
    }
}

/// A small generator of uniformly distributed words.
///
/// # Source
///
/// `SplitMix64`: Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014,
/// doi 10.1145/2660193.2660195.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// The stream `stream` of a seed. Streams of one seed start at unrelated states.
    #[must_use]
    pub fn of(seed: u64, stream: u64) -> Self {
        let mut draws = Self(seed);
        let start = draws.word();
        let mut draws = Self(start ^ stream);
        Self(draws.word())
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use proptest::prelude::*;

    use super::*;

    fn measured(quantiles: &[(u32, u64)]) -> Result<LatencyQuantiles, QuantileError> {
        let quantile = |(share, time): &(u32, u64)| (PerMillion(*share), Nanoseconds(*time));
        LatencyQuantiles::measured(&quantiles.iter().map(quantile).collect::<Vec<_>>())
    }

    fn any_latency() -> impl Strategy<Value = LatencyQuantiles> {
        prop::collection::btree_map(1_u32..1_000_000, 0_u64..1_000_000, 0..6).prop_map(|table| {
            let mut times: Vec<u64> = table.values().copied().collect();
            times.sort_unstable();
            let longest = times.last().copied().unwrap_or(5);
            let mut quantiles: Vec<_> = table.keys().copied().zip(times).collect();
            quantiles.push((1_000_000, longest));
            measured(&quantiles).unwrap()
        })
    }

    #[test]
    fn quantiles_are_read_back_and_interpolated() {
        let latency = measured(&[(500_000, 100), (990_000, 590), (1_000_000, 1000)]).unwrap();
        let at = |share| latency.at(PerMillion(share)).0;
        assert_eq!([at(0), at(500_000), at(990_000), at(1_000_000)], [100, 100, 590, 1000]);
        assert_eq!(at(510_000), 110);
        assert_eq!(latency.mean().0, (100 * 50 + 345 * 49 + 795) / 100);
    }

    #[test]
    fn tables_that_describe_no_distribution_are_refused() {
        assert_eq!(measured(&[]), Err(QuantileError::NoMaximum));
        assert_eq!(measured(&[(500_000, 1)]), Err(QuantileError::NoMaximum));
        let falling = measured(&[(500_000, 9), (1_000_000, 8)]);
        let (share, time) = (PerMillion(1_000_000), Nanoseconds(8));
        assert_eq!(falling, Err(QuantileError::Unsorted { share, time }));
    }

    #[test]
    fn shares_are_printed_in_percent() {
        let shares = [999_000, 1_000_000, 999_999, 500_010, 20_000].map(PerMillion);
        let printed = shares.map(|share| share.to_string());
        assert_eq!(printed, ["99.9 %", "100 %", "99.9999 %", "50.001 %", "2 %"]);
    }

    #[test]
    fn times_of_two_kinds_are_mixed_by_their_weights() {
        let constant = |time| LatencyQuantiles::constant(Nanoseconds(time));
        let mixed = LatencyQuantiles::mixed(&[(9, &constant(10)), (1, &constant(1_000))]).unwrap();
        let shares = [100_000, 899_999, 900_010, 1_000_000];
        let at = shares.map(|share| mixed.at(PerMillion(share)).0);
        assert_eq!(at, [10, 10, 1_000, 1_000]);
        assert!(mixed.mean().0.abs_diff(109) <= 1, "{mixed:?}");
        assert_eq!(LatencyQuantiles::mixed(&[(0, &constant(10))]), None);
    }

    proptest! {
        #[test]
        fn a_mixture_has_the_mean_of_its_parts(
            one in any_latency(), other in any_latency(), weights in (1_u64..100, 1_u64..100),
        ) {
            let (first, second) = weights;
            let mixed = LatencyQuantiles::mixed(&[(first, &one), (second, &other)]).unwrap();
            prop_assert_eq!(&LatencyQuantiles::measured(&mixed.quantiles), &Ok(mixed.clone()));
            let mean = (one.mean().0 * first + other.mean().0 * second) / (first + second);
            // Shares are rounded to millionths, of times up to a million.
            prop_assert!(mixed.mean().0.abs_diff(mean) <= 30, "{} {}", mixed.mean().0, mean);
            let same = LatencyQuantiles::mixed(&[(first, &one), (second, &one)]).unwrap();
            prop_assert!(same.mean().0.abs_diff(one.mean().0) <= 30);
        }

        #[test]
        fn draws_have_the_mean_and_the_quantiles_of_the_table(
            latency in any_latency(),
            seed: u64,
            share in 50_000_u32..950_000,
        ) {
            let mut draws = Draws::of(seed, 0);
            let drawn: Vec<u64> = (0..4000).map(|_| latency.draw(&mut draws).0).collect();
            let mean = drawn.iter().sum::<u64>() / 4000;
            let longest = latency.at(PerMillion::ALL).0;
            // Five standard deviations of a mean of 4000 times within 0..=longest.
            prop_assert!(mean.abs_diff(latency.mean().0) <= longest / 25 + 1);
            let limit = latency.at(PerMillion(share)).0;
            let within = drawn.iter().filter(|time| **time <= limit).count() as u64 * 250;
            prop_assert!(within + 40_000 >= u64::from(share), "{within} of {share}");
        }
    }
}
