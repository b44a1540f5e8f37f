//! Writes single figures: three digits that mean something, and how sure they are.

use crate::figures::estimate::{Estimate, relative_half_width};

/// Stands for a figure that was not measured.
pub(super) const NONE: &str = "-";

/// A rate in GB/s with its confidence.
pub(super) fn rate(estimate: Option<Estimate>) -> String {
    with_confidence(estimate, |median| digits(median / 1e9))
}

pub(super) fn latency(estimate: Option<Estimate>) -> String {
    with_confidence(estimate, nanoseconds)
}

pub(super) fn operations(estimate: Option<Estimate>) -> String {
    with_confidence(estimate, |value| match value {
        value if value >= 999_500.0 => digits(value / 1e6) + " M",
        value if value >= 999.5 => digits(value / 1e3) + " k",
        value => digits(value),
    })
}

fn with_confidence(estimate: Option<Estimate>, text: impl Fn(f64) -> String) -> String {
    estimate.map_or_else(|| NONE.to_owned(), |it| text(it.median) + &confidence(it))
}

pub(super) fn time(nanoseconds_or_none: Option<f64>) -> String {
    nanoseconds_or_none.map_or_else(|| NONE.to_owned(), nanoseconds)
}

pub(super) fn gibibytes(bytes: Option<u64>) -> String {
    let text = |bytes| digits(crate::figures::estimate::to_f64(bytes) / f64::from(1_u32 << 30));
    bytes.map_or_else(|| NONE.to_owned(), text)
}

fn nanoseconds(value: f64) -> String {
    match value {
        value if value >= 999.5e6 => digits(value / 1e9) + " s",
        value if value >= 999.5e3 => digits(value / 1e6) + " ms",
        value if value >= 999.5 => digits(value / 1e3) + " us",
        value => digits(value) + " ns",
    }
}

/// Three significant digits, or all of a whole number.
pub(super) fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        value if value >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Half the width of the interval, rounded up to whole percent; a question mark if it is wider than the value,
/// and nothing for a value that was stated.
fn confidence(estimate: Estimate) -> String {
    let percent = (relative_half_width(&estimate) * 100.0).ceil().max(1.0);
    match estimate.samples {
        0 => String::new(),
        _ if percent > 100.0 => " ±?".to_owned(),
        _ => format!(" ±{percent:.0}%"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_wider_than_the_value_is_no_percentage() {
        let of = |low, high| Estimate { low, high, samples: 3, ..Estimate::stated(329.0) };
        assert_eq!(operations(Some(of(300.0, 340.0))), "329 ±7%");
        assert_eq!(operations(Some(of(0.0, 658.0))), "329 ±100%");
        assert_eq!(operations(Some(of(1.0, 58_000.0))), "329 ±?");
        assert_eq!(operations(Some(Estimate::stated(329.0))), "329");
    }
}
