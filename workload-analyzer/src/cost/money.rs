//! An amount of money.

use std::{fmt, iter::Sum, ops::Add};

use serde::{Serialize, Serializer};

pub(super) const NANOS: u64 = 1_000_000_000;

/// An amount in billionths of a dollar: a request for 0.0000004 dollars is still a whole number.
///
/// Sums saturate at the largest amount, 18 billion dollars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Money(pub u64);

impl Money {
    #[must_use]
    pub const fn cents(count: u32) -> Self {
        Self(count as u64 * (NANOS / 100))
    }

    /// The amount in cents, rounded to the nearest, half a cent up.
    #[must_use]
    pub const fn to_cents(self) -> u64 {
        let half = NANOS / 200;
        self.0.saturating_add(half) / (NANOS / 100)
    }

    /// The amount in dollars, as the nearest binary fraction.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "16 digits are more than a price has")]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// `self * count / per`, rounded to the nearest billionth.
    pub(super) fn share(self, count: u64, per: u64) -> Self {
        let per = u128::from(per.max(1));
        // The product of two factors of 64 bits may fill all bits, so half of `per` is not added to it.
        let product = u128::from(self.0) * u128::from(count);
        let nearest = product / per + u128::from(product % per >= per.div_ceil(2));
        Self(u64::try_from(nearest).unwrap_or(u64::MAX))
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for Money {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Self::add)
    }
}

/// With two decimals from one dollar on, and with four below.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = if self.0 >= NANOS {
            let cents = self.to_cents();
            format!("${}.{:02}", cents / 100, cents % 100)
        } else {
            // Rounding up may give a whole dollar.
            let parts = self.0.saturating_add(NANOS / 20_000) / (NANOS / 10_000);
            format!("${}.{:04}", parts / 10_000, parts % 10_000)
        };
        f.pad(&text)
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_rounded_to_the_nearest_and_never_overflows() {
        assert_eq!(Money(10).share(1, 3), Money(3));
        assert_eq!(Money(11).share(1, 3), Money(4));
        assert_eq!(Money(1).share(1, 2), Money(1));
        assert_eq!(Money(u64::MAX).share(u64::MAX, 1), Money(u64::MAX));
        assert_eq!(Money(u64::MAX).share(u64::MAX, u64::MAX), Money(u64::MAX));
        assert_eq!(Money(5).share(7, 0), Money(35));
        assert_eq!(Money(u64::MAX) + Money(1), Money(u64::MAX));
        assert_eq!(Money(u64::MAX).times(2), Money(u64::MAX));
    }

    #[test]
    fn amounts_are_printed_in_dollars() {
        assert_eq!(Money(1_945_000_000).to_string(), "$1.95");
        assert_eq!(Money(86_520_000).to_string(), "$0.0865");
        assert_eq!(Money(999_999_999).to_string(), "$1.0000");
        assert_eq!(Money(0).to_string(), "$0.0000");
        assert_eq!(Money::cents(205).to_string(), "$2.05");
        assert_eq!(Money::cents(205).to_cents(), 205);
        assert_eq!(Money(4_999_999).to_cents(), 0);
        assert_eq!(Money(5_000_000).to_cents(), 1);
    }
}
