//! The quantiles of a normal distribution truncated below 1, with a given mean and deviation.

use tierfeed_core::units::float;

/// The length of a tail in standard deviations; less than 1e-15 of the distribution lies beyond.
const TAIL: f64 = 8.0;
/// Steps of the numerical integration of the density.
const STEPS: u32 = 2_048;
/// Iterations of the bisection that finds the cut.
const HALVINGS: u32 = 40;

/// `count` sizes, ascending, each for an equal share of the distribution.
///
/// The deviation is exact if it is at most nine tenths of the mean. A single size is the mean.
///
/// # Source
///
/// A normal distribution truncated below `cut` has any deviation below its mean for some `cut` (it
/// approaches the exponential distribution as the cut moves right). So the quantiles are computed for a
/// cut, scaled to the mean and the deviation, and the leftmost cut is taken for which the smallest quantile
/// is at least 1.
pub(super) fn size_quantiles(mean: u64, deviation: u64, count: usize) -> Vec<u64> {
    if count < 2 || deviation == 0 {
        return vec![mean; count];
    }
    let (mean, deviation) = (float(mean), float(deviation));
    let room = (mean - 1.0) / deviation;
    let (mut left, mut right) = (-TAIL, TAIL);
    let mut standard = standard_quantiles(left, count);
    if -standard[0] > room {
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(left, right);
            if -standard_quantiles(middle, count)[0] > room {
                left = middle;
            } else {
                right = middle;
            }
        }
        standard = standard_quantiles(right, count);
    }
    standard.into_iter().map(|quantile| whole(mean + deviation * quantile)).collect()
}

/// The quantiles right of `cut`, scaled to mean 0 and deviation 1.
fn standard_quantiles(cut: f64, count: usize) -> Vec<f64> {
    let quantiles = quantiles(cut, count);
    let count = float(count as u64);
    let mean = quantiles.iter().sum::<f64>() / count;
    let squares: f64 = quantiles.iter().map(|it| (it - mean) * (it - mean)).sum();
    let deviation = (squares / count).sqrt();
    quantiles.into_iter().map(|quantile| (quantile - mean) / deviation).collect()
}

/// Integrates the density from `cut` on; a quantile is where the integral passes the middle of a share.
fn quantiles(cut: f64, count: usize) -> Vec<f64> {
    let end = cut.max(0.0) + TAIL;
    let step = (end - cut) / f64::from(STEPS);
    let mass = |number: u32| {
        let middle = cut + (f64::from(number) + 0.5) * step;
        // Relative to the density at the cut, so that a far tail does not underflow.
        exponential(f64::midpoint(middle, cut) * (middle - cut))
    };
    let total: f64 = (0..STEPS).map(mass).sum();
    let mut found = Vec::with_capacity(count);
    let mut sum = 0.0;
    for number in 0..STEPS {
        let here = mass(number);
        while found.len() < count {
            let wanted = (float(found.len() as u64) + 0.5) / float(count as u64) * total;
            if wanted > sum + here && number + 1 < STEPS {
                break;
            }
            found.push(cut + (f64::from(number) + (wanted - sum) / here) * step);
        }
        sum += here;
    }
    found
}

/// e to the power of `-x`. The result of the standard library differs between machines.
fn exponential(x: f64) -> f64 {
    const SQUARINGS: u32 = 10;
    const TERMS: u32 = 6;
    let small = -x / 1_024.0;
    let series = (1..=TERMS).rev().fold(1.0, |sum, term| 1.0 + small / f64::from(term) * sum);
    let mut power = series;
    for _ in 0..SQUARINGS {
        power *= power;
    }
    power
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is at least 1, and the cast of a float saturates"
)]
fn whole(value: f64) -> u64 {
    value.round().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_power_equals_that_of_the_standard_library() {
        for x in [0.0, 0.1, 1.0, 5.0, 31.9] {
            assert!((exponential(x) / f64::exp(-x) - 1.0).abs() < 1e-9, "{x}");
        }
    }

    /// The 16 %, 50 % and 84 % of a normal distribution.
    #[test]
    fn without_a_cut_the_quantiles_are_those_of_the_normal_distribution() {
        let quantiles = quantiles(-TAIL, 10_000);
        for (place, expected) in [(1_586, -1.0), (5_000, 0.0), (8_413, 1.0), (9_772, 2.0)] {
            assert!((quantiles[place] - expected).abs() < 1e-3, "{place}: {}", quantiles[place]);
        }
    }

    /// Half a normal distribution has the mean sqrt(2/pi).
    #[test]
    fn cut_in_the_middle_the_mean_is_that_of_the_half() {
        let quantiles = quantiles(0.0, 10_000);
        let mean = quantiles.iter().sum::<f64>() / 10_000.0;
        assert!((mean - (2.0 / std::f64::consts::PI).sqrt()).abs() < 1e-3, "{mean}");
    }
}
