//! Quantities with their unit in the type, in the notation of users: `512 MiB`, `250 us`, `12
//! GB/s`.
//!
//! The output of [`core::fmt::Display`] can be parsed; it is cut to two decimals, so at most 1 % is
//! lost.
//! Arithmetic stays on the inner integers, where overflow is visible.

use core::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

/// A span of time, or a point on the clock that the caller passes in.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Nanoseconds(pub u64);

/// A data rate. `GB/s` means 10^9 bytes per second, as memory benchmarks print it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct BytesPerSecond(pub u64);

/// Why a text is not a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The text does not start with a number.
    #[error("expected a number with a unit")]
    NoNumber,
    /// The unit is missing or unknown.
    #[error("expected one of the units {allowed}")]
    UnknownUnit {
        /// The units that this quantity may have.
        allowed: &'static str,
    },
    /// The value does not fit in 64 bits of the base unit.
    #[error("the value is too large")]
    TooLarge,
}

type Scale = (&'static str, u64);

const BYTE_UNITS: &[Scale] = &[
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];
const TIME_UNITS: &[Scale] =
    &[("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1), ("min", 60_000_000_000)];
const RATE_UNITS: &[Scale] = &[
    ("TB/s", 1_000_000_000_000),
    ("GB/s", 1_000_000_000),
    ("MB/s", 1_000_000),
    ("kB/s", 1_000),
    ("B/s", 1),
    ("GiB/s", 1 << 30),
    ("MiB/s", 1 << 20),
];

impl Bytes {
    /// The bytes of `count` mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
}

impl BytesPerSecond {
    /// Time for `amount` at this rate, rounded up. A rate of zero means unlimited.
    #[must_use]
    pub fn time_for(self, amount: Bytes) -> Nanoseconds {
        if self.0 == 0 {
            return Nanoseconds(0);
        }
        let nanoseconds = (u128::from(amount.0) * 1_000_000_000).div_ceil(u128::from(self.0));
        Nanoseconds(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// What moves at this rate in `time`, rounded down. A rate of zero means unlimited.
    #[must_use]
    pub fn bytes_in(self, time: Nanoseconds) -> Bytes {
        if self.0 == 0 {
            return Bytes(u64::MAX);
        }
        let bytes = u128::from(self.0) * u128::from(time.0) / 1_000_000_000;
        Bytes(u64::try_from(bytes).unwrap_or(u64::MAX))
    }
}

impl FromStr for Bytes {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text, BYTE_UNITS, "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB").map(Self)
    }
}

impl FromStr for Nanoseconds {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text, TIME_UNITS, "ns, us, ms, s, min").map(Self)
    }
}

impl FromStr for BytesPerSecond {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse(text, RATE_UNITS, "B/s, kB/s, MB/s, GB/s, TB/s, MiB/s, GiB/s").map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, &BYTE_UNITS[..4], "B")
    }
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, &TIME_UNITS[..3], "ns")
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print(f, self.0, &RATE_UNITS[..4], "B/s")
    }
}

/// Exact for whole numbers; decimal fractions are cut after nine digits.
fn parse(text: &str, units: &[Scale], allowed: &'static str) -> Result<u64, ParseError> {
    let text = text.trim();
    let number_len = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.contains('.') {
        return Err(ParseError::NoNumber);
    }
    let unit = unit.trim_start();
    let (_, scale) =
        units.iter().find(|(name, _)| *name == unit).ok_or(ParseError::UnknownUnit { allowed })?;
    let whole: u64 = whole.parse().map_err(|_| ParseError::TooLarge)?;
    let digits = &fraction[..fraction.len().min(9)];
    let numerator: u128 = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(0) };
    let denominator = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(9));
    let value =
        u128::from(whole) * u128::from(*scale) + numerator * u128::from(*scale) / denominator;
    u64::try_from(value).map_err(|_| ParseError::TooLarge)
}

/// Prints in the largest of `units` that the value reaches, with two decimals if it is not whole.
fn print(f: &mut fmt::Formatter<'_>, value: u64, units: &[Scale], base: &str) -> fmt::Result {
    for (unit, scale) in units {
        if value >= *scale {
            return if value.is_multiple_of(*scale) {
                write!(f, "{} {unit}", value / scale)
            } else {
                let hundredths = u128::from(value) * 100 / u128::from(*scale);
                write!(f, "{}.{:02} {unit}", hundredths / 100, hundredths % 100)
            };
        }
    }
    write!(f, "{value} {base}")
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn quantities_read_as_people_write_them() {
        assert_eq!("512 MiB".parse(), Ok(Bytes::mib(512)));
        assert_eq!("1.5GiB".parse(), Ok(Bytes::mib(1536)));
        assert_eq!("250 us".parse(), Ok(Nanoseconds(250_000)));
        assert_eq!("12 GB/s".parse(), Ok(BytesPerSecond(12_000_000_000)));
        assert_eq!("0.1 s".parse(), Ok(Nanoseconds(100_000_000)));
    }

    #[test]
    fn what_is_not_a_quantity_is_refused() {
        assert_eq!("".parse::<Bytes>(), Err(ParseError::NoNumber));
        assert_eq!("MiB".parse::<Bytes>(), Err(ParseError::NoNumber));
        assert_eq!("1. s".parse::<Nanoseconds>(), Err(ParseError::NoNumber));
        assert_eq!("99999999999999999999 B".parse::<Bytes>(), Err(ParseError::TooLarge));
        assert_eq!("99999999 TiB".parse::<Bytes>(), Err(ParseError::TooLarge));
        assert!(matches!("512".parse::<Bytes>(), Err(ParseError::UnknownUnit { .. })));
        assert!(matches!("-1 B".parse::<Bytes>(), Err(ParseError::NoNumber)));
    }

    #[test]
    fn printing_picks_the_largest_unit() {
        assert_eq!(Bytes::mib(512).to_string(), "512 MiB");
        assert_eq!(Bytes(1_600_000).to_string(), "1.52 MiB");
        assert_eq!(Nanoseconds(1_500).to_string(), "1.50 us");
        assert_eq!(BytesPerSecond(31_300_000_000).to_string(), "31.30 GB/s");
        assert_eq!(Bytes(0).to_string(), "0 B");
    }

    proptest::proptest! {
        #[test]
        fn what_is_printed_parses_to_within_a_percent(value in 0_u64..u64::MAX / 4) {
            let printed = Bytes(value).to_string();
            let parsed: Bytes = printed.parse().unwrap();
            let drift = value.abs_diff(parsed.0);
            proptest::prop_assert!(u128::from(drift) * 99 <= u128::from(value), "{printed}: {drift}");
        }
    }
}
