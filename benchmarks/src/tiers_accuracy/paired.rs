//! Decides from pairs of measurements whether a figure agrees with that of a reference.
//!
//! 1. Only ratios within a pair count: drift between pairs affects both sides of each.
//! 2. A pair in which either side was kept from its CPU, or did not get the pages it asked for, is
//!    disturbed and left out. It is never left out because of its ratio.
//! 3. The interval of the median ratio is exact and assumes no distribution: two order statistics that
//!    enclose the median with a probability of at least 95 % (binomial). Fewer than six values have none.
//! 4. Agreement and difference are both conclusions: the interval lies wholly inside the tolerance or
//!    wholly outside. Everything else is inconclusive, with the reason.
//!
//! Source: T. Hoefler, R. Belli, "Scientific Benchmarking of Parallel Computing Systems", SC 2015
//! (doi:10.1145/2807591.2807644), section 3.1.3, with exact ranks instead of the normal approximation.

use serde::Serialize;

/// With fewer pairs no pair of order statistics encloses the median with 95 %.
pub(crate) const PAIRS_MIN: usize = 6;

/// The least share of its CPU that a side may have in a pair that counts.
const SHARE_MIN: f64 = 0.95;

/// The least share of its memory in the pages it asked for.
const PAGES_MIN: f64 = 0.9;

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// In the unit of the comparison.
    pub(crate) value: f64,
    /// The least share of a CPU that one of its threads had. If it waits for a device, the share of the turn
    /// in which no thread of the host waited for a CPU; `None` where the kernel does not tell.
    pub(crate) cpu_share: Option<f64>,
    /// The share of its memory that lay in the pages it asked for; `None` if it asked for none.
    pub(crate) page_share: Option<f64>,
}

/// One turn of each side, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) ours: Figure,
    pub(crate) reference: Figure,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// `agrees`, `differs` or `inconclusive`.
    #[serde(rename = "verdict")]
    pub(crate) name: &'static str,
    pub(crate) reason: Option<String>,
}

impl Verdict {
    pub(crate) const AGREES: Self = Self { name: "agrees", reason: None };
    pub(crate) const DIFFERS: Self = Self { name: "differs", reason: None };

    pub(crate) fn inconclusive(reason: impl Into<String>) -> Self {
        Self { name: "inconclusive", reason: Some(reason.into()) }
    }
}

impl Pair {
    pub(crate) fn is_undisturbed(&self) -> bool {
        [self.ours, self.reference].iter().all(|it| {
            it.cpu_share.is_none_or(|share| share >= SHARE_MIN)
                && it.page_share.is_none_or(|share| share >= PAGES_MIN)
        })
    }
}

pub(crate) fn is_enough(pairs: &[Pair], wanted: usize) -> bool {
    undisturbed(pairs).len() >= wanted
}

/// The ratio of the undisturbed pairs, if there are enough, and the verdict.
pub(crate) fn judge(pairs: &[Pair], tolerance: f64) -> (Option<Ratio>, Verdict) {
    let ratios: Vec<f64> =
        undisturbed(pairs).iter().map(|pair| pair.ours.value / pair.reference.value).collect();
    match judge_ratios(&ratios, tolerance) {
        (None, _) => (None, Verdict::inconclusive(disturbance(pairs, ratios.len()))),
        judged => judged,
    }
}

/// As [`judge`], of the ratios that count.
pub(crate) fn judge_ratios(ratios: &[f64], tolerance: f64) -> (Option<Ratio>, Verdict) {
    let Some(ratio) = median_interval(ratios) else {
        return (None, Verdict::inconclusive(few(ratios.len())));
    };
    let (least, most) = (1.0 - tolerance, 1.0 + tolerance);
    let verdict = if least <= ratio.low && ratio.high <= most {
        Verdict::AGREES
    } else if ratio.high < least || ratio.low > most {
        Verdict::DIFFERS
    } else {
        Verdict::inconclusive("the interval reaches over the border of the tolerance")
    };
    (Some(ratio), verdict)
}

fn undisturbed(pairs: &[Pair]) -> Vec<&Pair> {
    pairs.iter().filter(|pair| pair.is_undisturbed()).collect()
}

fn few(pairs: usize) -> String {
    format!("{pairs} pairs count, {PAIRS_MIN} are needed")
}

/// Why too few pairs count.
fn disturbance(pairs: &[Pair], undisturbed: usize) -> String {
    let least = |of: fn(&Figure) -> Option<f64>| {
        let side = |side: fn(&Pair) -> &Figure| {
            pairs.iter().filter_map(|pair| of(side(pair))).fold(1.0, f64::min)
        };
        (side(|pair| &pair.ours), side(|pair| &pair.reference))
    };
    let (ours, reference) = least(|it| it.page_share);
    if ours < PAGES_MIN || reference < PAGES_MIN {
        return format!(
            "only {ours:.2} of the memory here and {reference:.2} in the reference lay in the pages \
             that were asked for, {PAGES_MIN} is needed"
        );
    }
    if undisturbed == pairs.len() {
        return few(undisturbed);
    }
    let (ours, reference) = least(|it| it.cpu_share);
    format!(
        "{undisturbed} of {} pairs were undisturbed, {PAIRS_MIN} are needed: the least CPU share was \
         {ours:.2} here and {reference:.2} in the reference, {SHARE_MIN} is needed",
        pairs.len()
    )
}

/// Median and exact 95 % interval; `None` for fewer values than an interval needs.
pub(crate) fn median_interval(values: &[f64]) -> Option<Ratio> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let outer = values_outside(sorted.len())?;
    let (low, high) = (sorted[outer], sorted[sorted.len() - 1 - outer]);
    Some(Ratio { median: median_of_sorted(&sorted), low, high })
}

pub(crate) fn median_of_sorted(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// The number of the `count` sorted values that lie below the interval; as many lie above it.
///
/// The number of values below the median is binomial. The interval from the rank `k + 1` to the rank
/// `count - k` misses it if at most `k` values are on either side: twice the sum of the first terms.
fn values_outside(count: usize) -> Option<usize> {
    const MISS_MAX: f64 = 0.05;
    let count_i32 = i32::try_from(count).ok()?;
    let mut term = 0.5_f64.powi(count_i32);
    let mut miss = 2.0 * term;
    let mut outside = None;
    for k in 0..count_i32 / 2 {
        if miss > MISS_MAX {
            break;
        }
        outside = usize::try_from(k).ok();
        term *= f64::from(count_i32 - k) / f64::from(k + 1);
        miss += 2.0 * term;
    }
    outside
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn figure(value: f64) -> Figure {
        Figure { value, cpu_share: Some(1.0), page_share: Some(1.0) }
    }

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        let pair = |ratio: &f64| Pair { ours: figure(*ratio), reference: figure(1.0) };
        ratios.iter().map(pair).collect()
    }

    /// Binomial tables: 2 x P(Bin(n, 1/2) <= k) is 0.031 for n = 6, k = 0; 0.039 for 9, 1; 0.039 for
    /// 12, 2; 0.041 for 20, 5; 0.035 for 100, 39 (and 0.057 for 40).
    #[test]
    fn the_interval_leaves_out_as_many_values_as_95_percent_allow() {
        for (count, outside) in [
            (0, None),
            (5, None),
            (6, Some(0)),
            (8, Some(0)),
            (9, Some(1)),
            (11, Some(1)),
            (12, Some(2)),
            (20, Some(5)),
            (100, Some(39)),
        ] {
            assert_eq!(values_outside(count), outside, "{count} values");
        }
    }

    #[test]
    fn nine_pairs_bear_one_outlier_on_each_side() {
        let ratios = [0.5, 0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 1.03, 9.0];
        let (ratio, verdict) = judge(&pairs(&ratios), 0.05);
        assert_eq!(ratio, Some(Ratio { median: 1.0, low: 0.98, high: 1.03 }));
        assert_eq!(verdict, Verdict::AGREES);
    }

    #[test]
    fn an_interval_inside_the_tolerance_agrees_outside_differs_and_across_is_inconclusive() {
        let verdict = |from: f64, to: f64| {
            let ratios: Vec<f64> =
                (0..6_i32).map(|i| from + (to - from) * f64::from(i) / 5.0).collect();
            judge(&pairs(&ratios), 0.05).1
        };
        assert_eq!(verdict(0.96, 1.04), Verdict::AGREES);
        assert_eq!(verdict(1.06, 1.20), Verdict::DIFFERS);
        assert_eq!(verdict(0.70, 0.94), Verdict::DIFFERS);
        for (from, to) in [(0.94, 1.0), (1.0, 1.06), (0.9, 1.1), (0.94, 0.96), (1.04, 1.06)] {
            assert_eq!(verdict(from, to).name, "inconclusive", "{from} to {to}");
        }
    }

    #[test]
    fn disturbed_pairs_do_not_count_on_either_side() {
        let mut all = pairs(&[1.0; 8]);
        all[0].ours.cpu_share = Some(0.94);
        all[0].ours.value *= 2.0;
        all[1].reference.cpu_share = Some(0.3);
        assert_eq!(judge(&all, 0.05).1, Verdict::AGREES);
        assert!(is_enough(&all, 6) && !is_enough(&all, 7));
        all[2].reference.cpu_share = Some(0.5);
        let (ratio, verdict) = judge(&all, 0.05);
        let reason = verdict.reason.unwrap();
        assert!(ratio.is_none() && reason.starts_with("5 of 8 pairs"), "{reason}");
        assert!(reason.contains("0.94 here and 0.30 in the reference"), "{reason}");
    }

    #[test]
    fn a_ratio_far_off_is_no_disturbance() {
        assert_eq!(judge(&pairs(&[3.0; 6]), 0.05).1, Verdict::DIFFERS);
    }

    #[test]
    fn wrong_pages_are_named_as_the_reason() {
        let mut all = pairs(&[1.0; 6]);
        all[3].reference.page_share = Some(0.5);
        let reason = judge(&all, 0.05).1.reason.unwrap();
        assert!(reason.contains("1.00 of the memory here and 0.50 in the reference"), "{reason}");
    }

    #[test]
    fn what_has_no_share_is_not_judged_by_it() {
        let mut all = pairs(&[1.0; 6]);
        for pair in &mut all {
            pair.ours.cpu_share = None;
            pair.ours.page_share = None;
        }
        assert_eq!(judge(&all, 0.05).1, Verdict::AGREES);
    }

    #[test]
    fn too_few_pairs_are_inconclusive_however_close() {
        let (ratio, verdict) = judge(&pairs(&[1.0; 5]), 0.05);
        assert_eq!((ratio, verdict), (None, Verdict::inconclusive("5 pairs count, 6 are needed")));
    }

    proptest! {
        #[test]
        fn the_median_lies_in_its_interval(values in proptest::collection::vec(0.1..10.0_f64, 6..60)) {
            let ratio = median_interval(&values).unwrap();
            prop_assert!(ratio.low <= ratio.median && ratio.median <= ratio.high);
        }

        /// The order of pairs is arbitrary.
        #[test]
        fn the_order_of_values_does_not_matter(mut values in proptest::collection::vec(0.1..10.0_f64, 6..60)) {
            let before = median_interval(&values);
            values.reverse();
            prop_assert_eq!(median_interval(&values), before);
        }
    }
}
