//! Computes the position of a value on an axis, and the round values that label it.

/// Approximate number of labels.
const TICKS: f64 = 6.0;

/// An axis from zero, at its first pixel, to its last.
#[derive(Debug, Clone)]
pub struct Axis {
    high: f64,
    pixels: (f64, f64),
    /// The labelled values, in ascending order.
    pub ticks: Vec<f64>,
}

impl Axis {
    /// An axis that starts at zero and ends at a round value of at least `highest`.
    #[must_use]
    pub fn from_zero(highest: f64, pixels: (f64, f64)) -> Self {
        let highest = if highest.is_finite() && highest > 0.0 { highest } else { 1.0 };
        let step = round_up(highest / TICKS);
        let last = (highest / step).ceil();
        let counts = (0..).map(f64::from).take_while(|it| *it <= last);
        Self { high: last * step, pixels, ticks: counts.map(|it| it * step).collect() }
    }

    /// The pixel of `value`, limited to the ends of the axis.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let share = value.clamp(0.0, self.high) / self.high;
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
        for axis in [Axis::from_zero(0.0, (0.0, 10.0)), Axis::from_zero(f64::NAN, (0.0, 10.0))] {
            assert!(axis.at(1e9) <= 10.0 && axis.at(-1.0) >= 0.0);
            assert!(!axis.ticks.is_empty());
        }
    }
}
