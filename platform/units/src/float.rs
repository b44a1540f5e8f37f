//! Floating-point figures of whole numbers, for reports: more than 53 bits are never shown.

use crate::Nanoseconds;

/// `count` as a figure.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "53 bits are enough for a figure")]
pub const fn float(count: u64) -> f64 {
    count as f64
}

/// A time in seconds.
#[must_use]
pub const fn seconds(time: Nanoseconds) -> f64 {
    float(time.0) / 1e9
}

/// `part` over `whole`; 0 without a whole.
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { float(part) / float(whole) }
}

/// The nearest whole number; 0 for what is negative or no number.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast of a float saturates"
)]
pub const fn whole(figure: f64) -> u64 {
    (figure + 0.5) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_and_never_negative() {
        let figures = [0.0, 0.49, 0.5, 2.5, -3.0, f64::NAN, f64::INFINITY];
        assert_eq!(figures.map(whole), [0, 0, 1, 3, 0, 0, u64::MAX]);
        let fractions = [share(1, 4), share(1, 0), seconds(Nanoseconds(1_500_000_000))];
        assert_eq!(fractions.map(|it| whole(it * 100.0)), [25, 0, 150]);
    }
}
