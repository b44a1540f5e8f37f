//! Computes the position of a value on an axis, and the round values that label it.

/// Above this ratio of the highest to the lowest value, an axis is logarithmic.
const LOGARITHMIC_FROM: f64 = 8.0;

/// Approximate number of labels.
const TICKS: f64 = 6.0;

/// Values closer than this share of them are one value: ticks between them would be one number.
const DISTINCT: f64 = 1e-9;

/// An axis from its first pixel to its last.
#[derive(Debug, Clone)]
pub struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    pixels: (f64, f64),
    /// The labelled values, in ascending order.
    pub ticks: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scale {
    Linear,
    Logarithmic,
}

impl Axis {
    /// An axis that starts at zero and ends at a round value of at least `highest`.
    #[must_use]
    pub fn from_zero(highest: f64, pixels: (f64, f64)) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        Self::between(0.0, highest, pixels)
    }

    /// A linear axis from a round value of at most `lowest` to one of at least `highest`.
    #[must_use]
    pub fn between(lowest: f64, highest: f64, pixels: (f64, f64)) -> Self {
        let lowest = if lowest.is_finite() { lowest } else { 0.0 };
        let is_range = highest.is_finite() && highest - lowest > lowest.abs() * DISTINCT;
        let highest = if is_range { highest } else { lowest + lowest.abs().max(1.0) };
        let step = round_up((highest - lowest) / TICKS);
        let (first, last) = ((lowest / step).floor(), (highest / step).ceil());
        let counts = (0..).map(|it| first + f64::from(it)).take_while(|it| *it <= last);
        let ticks = counts.map(|it| it * step).collect();
        Self { low: first * step, high: last * step, scale: Scale::Linear, pixels, ticks }
    }

    /// An axis for values of which the highest may be many times the lowest.
    #[must_use]
    pub fn over(lowest: f64, highest: f64, pixels: (f64, f64)) -> Self {
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

    /// The pixel of `value`, limited to the ends of the axis.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }
}

/// The label of a value: short, without the noise of binary fractions.
#[must_use]
pub fn label(value: f64) -> String {
    // Ticks are 1, 2 or 5 times a power of ten apart, so twelve digits distinguish any two of them.
    let digits = format!("{value:.12}");
    let short = digits.trim_end_matches('0').trim_end_matches('.');
    if short.is_empty() || short == "-0" { "0".to_owned() } else { short.to_owned() }
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
    fn an_axis_between_two_values_ends_at_round_ones() {
        let axis = Axis::between(-12.0, 31.0, (0.0, 60.0));
        assert_eq!(axis.ticks, [-20.0, -10.0, 0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!((axis.at(-20.0), axis.at(0.0), axis.at(40.0)), (0.0, 20.0, 60.0));
        assert_eq!(Axis::between(25.0, 100.0, (0.0, 1.0)).ticks, [20.0, 40.0, 60.0, 80.0, 100.0]);
        let far = Axis::between(1e300, 1e300, (0.0, 1.0));
        assert!(far.at(1e300).is_finite() && far.ticks.len() < 20, "{far:?}");
    }

    #[test]
    fn wide_ranges_count_powers() {
        let axis = Axis::over(107.0, 1800.0, (300.0, 0.0));
        assert_eq!(axis.ticks, [100.0, 200.0, 500.0, 1000.0, 2000.0]);
        let (first, second) = (axis.at(100.0) - axis.at(200.0), axis.at(500.0) - axis.at(1000.0));
        assert!((first - second).abs() < 1e-9, "{first} {second}");
    }

    #[test]
    fn labels_are_as_short_as_their_ticks() {
        let labels = |highest| {
            let axis = Axis::from_zero(highest, (0.0, 1.0));
            axis.ticks.into_iter().map(label).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(labels(0.55), "0 0.1 0.2 0.3 0.4 0.5 0.6");
        assert_eq!(labels(0.000_07), "0 0.00002 0.00004 0.00006 0.00008");
        assert_eq!(labels(250_000.0), "0 50000 100000 150000 200000 250000");
    }

    #[test]
    fn nothing_lies_outside_and_nothing_is_no_number() {
        for axis in [Axis::from_zero(0.0, (0.0, 10.0)), Axis::over(0.0, f64::NAN, (0.0, 10.0))] {
            assert!(axis.at(1e9) <= 10.0 && axis.at(-1.0) >= 0.0);
            assert!(!axis.ticks.is_empty());
        }
    }
}
