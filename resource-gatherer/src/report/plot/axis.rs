//! Decides where a value stands on an axis, and which round values are written beside it.

/// Beyond this ratio of the highest to the lowest value, an axis counts powers.
const LOGARITHMIC_FROM: f64 = 8.0;

/// About so many values are written.
const TICKS: f64 = 6.0;

/// An axis from its first pixel to its last.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    pixels: (f64, f64),
    /// The values that are written, in ascending order.
    pub(super) ticks: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Axis {
    /// An axis that starts at zero and ends at a round value from `highest` on.
    pub(super) fn from_zero(highest: f64, pixels: (f64, f64)) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        let step = round_up(highest / TICKS);
        let count = (highest / step).ceil();
        let ticks = (0..).map(f64::from).take_while(|it| *it <= count).map(|it| it * step);
        Self { low: 0.0, high: count * step, scale: Scale::Linear, pixels, ticks: ticks.collect() }
    }

    /// An axis for values of which the highest may be many times the lowest.
    pub(super) fn over(lowest: f64, highest: f64, pixels: (f64, f64)) -> Self {
        if !(lowest > 0.0 && highest / lowest > LOGARITHMIC_FROM) {
            return Self::from_zero(highest, pixels);
        }
        let first = lowest.log10().floor();
        let decades = (0..=20).map(|decade| 10_f64.powf(first + f64::from(decade)));
        let steps: Vec<f64> = decades.flat_map(|it| [it, 2.0 * it, 5.0 * it]).collect();
        let low = steps.iter().copied().rfind(|step| *step <= lowest).unwrap_or(lowest);
        let high = steps.iter().copied().find(|step| *step >= highest).unwrap_or(highest);
        let ticks = steps.into_iter().filter(|step| (low..=high).contains(step)).collect();
        Self { low, high, scale: Scale::Logarithmic, pixels, ticks }
    }

    /// The pixel of `value`, no farther out than the ends of the axis.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }
}

/// The next of 1, 2, 5 times a power of ten.
fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value * 0.999).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_from_zero_ends_at_a_round_value() {
        let axis = Axis::from_zero(98.8, (0.0, 100.0));
        assert_eq!(axis.ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((axis.at(0.0), axis.at(50.0), axis.at(100.0)), (0.0, 50.0, 100.0));
    }

    #[test]
    fn wide_ranges_count_powers() {
        let axis = Axis::over(107.0, 1800.0, (300.0, 0.0));
        assert_eq!(axis.ticks, [100.0, 200.0, 500.0, 1000.0, 2000.0]);
        let (first, second) = (axis.at(100.0) - axis.at(200.0), axis.at(500.0) - axis.at(1000.0));
        assert!((first - second).abs() < 1e-9, "{first} {second}");
    }

    #[test]
    fn nothing_lies_outside_and_nothing_is_no_number() {
        for axis in [Axis::from_zero(0.0, (0.0, 10.0)), Axis::over(0.0, f64::NAN, (0.0, 10.0))] {
            assert!(axis.at(1e9) <= 10.0 && axis.at(-1.0) >= 0.0);
            assert!(!axis.ticks.is_empty());
        }
    }
}
