//! Prices as users write them: `0.95 $/h`, `0.04 $/GB/month`, `0.05 $/10k`.

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::money::{Money, NANOS};
use crate::yaml::scalar::Scalar;

/// The month of cloud providers: 730 hours, a twelfth of a year.
pub(super) const MONTH: Nanoseconds = Nanoseconds(730 * 3600 * 1_000_000_000);

/// The most decimals of an amount: the resolution of [`Money`].
const DECIMALS: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceError {
    #[error("expected an amount in dollars")]
    NoAmount,
    #[error("an amount has at most nine decimals; give the price of more of it")]
    TooFine,
    #[error("the amount is too large")]
    TooLarge,
    #[error("expected one of the units {allowed}")]
    UnknownUnit { allowed: &'static str },
}

/// The price of a running machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hourly {
    amount: Money,
    time: Nanoseconds,
}

/// The price of bytes that are stored for a month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    amount: Money,
    bytes: Bytes,
}

/// The price of requests to a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requested {
    amount: Money,
    requests: u64,
}

impl Hourly {
    #[must_use]
    pub fn charge(self, time: Nanoseconds) -> Money {
        self.amount.share(time.0, self.time.0)
    }
}

impl Stored {
    #[must_use]
    pub fn monthly(self, bytes: Bytes) -> Money {
        self.amount.share(bytes.0, self.bytes.0)
    }
}

impl Requested {
    #[must_use]
    pub fn charge(self, count: u64) -> Money {
        self.amount.share(count, self.requests)
    }
}

impl Scalar for Hourly {
    type Reason = PriceError;

    const EXAMPLE: Option<&str> = Some("0.95 $/h");

    fn parse(text: &str) -> Result<Self, PriceError> {
        const UNITS: [(&str, u64); 3] = [("h", 3600), ("min", 60), ("s", 1)];
        let (amount, unit) = amount_and_unit(text)?;
        let known = UNITS.into_iter().find(|(name, _)| *name == unit);
        let (_, seconds) = known.ok_or(PriceError::UnknownUnit { allowed: "$/h, $/min, $/s" })?;
        Ok(Self { amount, time: Nanoseconds(seconds * 1_000_000_000) })
    }
}

impl Scalar for Stored {
    type Reason = PriceError;

    const EXAMPLE: Option<&str> = Some("0.04 $/GB/month");

    fn parse(text: &str) -> Result<Self, PriceError> {
        const ALLOWED: &str =
            "$/GB/month, $/TB/month, $/GiB/month, $/TiB/month, or a smaller unit of bytes";
        let unknown = PriceError::UnknownUnit { allowed: ALLOWED };
        let (amount, unit) = amount_and_unit(text)?;
        let bytes = unit.strip_suffix("/month").ok_or(unknown)?;
        let bytes: Bytes = format!("1 {bytes}").parse().map_err(|_| unknown)?;
        Ok(Self { amount, bytes })
    }
}

impl Scalar for Requested {
    type Reason = PriceError;

    const EXAMPLE: Option<&str> = Some("0.05 $/10k");

    fn parse(text: &str) -> Result<Self, PriceError> {
        const ALLOWED: &str = "$/10k, $/1000, $/1M, or another number of requests";
        let unknown = PriceError::UnknownUnit { allowed: ALLOWED };
        let (amount, unit) = amount_and_unit(text)?;
        let scales = [("k", 1_000_u64), ("M", 1_000_000)];
        let prefix = scales.into_iter().find_map(|(name, it)| Some((unit.strip_suffix(name)?, it)));
        let (digits, scale) = prefix.unwrap_or((unit, 1));
        if !digits.bytes().all(|it| it.is_ascii_digit()) {
            return Err(unknown);
        }
        let count: u64 = digits.parse().map_err(|_| unknown)?;
        let requests = count.checked_mul(scale).filter(|requests| *requests > 0).ok_or(unknown)?;
        Ok(Self { amount, requests })
    }
}

/// Splits a price at `$/` into amount and unit.
fn amount_and_unit(text: &str) -> Result<(Money, &str), PriceError> {
    let (number, unit) = text.split_once('$').ok_or(match amount(text.trim()) {
        Ok(_) => PriceError::UnknownUnit { allowed: "$/…, as in the example" },
        Err(problem) => problem,
    })?;
    let amount = amount(number.trim())?;
    Ok((amount, unit.trim_start().strip_prefix('/').unwrap_or("").trim()))
}

fn amount(number: &str) -> Result<Money, PriceError> {
    let (whole, fraction) = match number.split_once('.') {
        Some((_, "")) => return Err(PriceError::NoAmount),
        Some(parts) => parts,
        None => (number, ""),
    };
    let is_number = |text: &str| text.bytes().all(|it| it.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return Err(PriceError::NoAmount);
    }
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > DECIMALS {
        return Err(PriceError::TooFine);
    }
    let whole: u64 = whole.parse().map_err(|_| PriceError::TooLarge)?;
    let nanos = format!("{fraction:0<DECIMALS$}").parse().expect("nine digits are a number");
    let all = whole.checked_mul(NANOS).and_then(|all| all.checked_add(nanos));
    all.map(Money).ok_or(PriceError::TooLarge)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn prices_are_read_as_users_write_them() {
        let hour = Nanoseconds(3600 * 1_000_000_000);
        assert_eq!(Hourly::parse("0.95 $/h").unwrap().charge(hour), Money::cents(95));
        assert_eq!(Hourly::parse("1$/min").unwrap().charge(hour), Money::cents(6000));
        let terabyte = Bytes(1_000_000_000_000);
        for text in ["0.04 $/GB/month", "40 $/TB/month", " 0.00004 $ / MB/month "] {
            assert_eq!(Stored::parse(text).unwrap().monthly(terabyte), Money::cents(4000));
        }
        let gib = Stored::parse("0.04 $/GiB/month").unwrap();
        assert_eq!(gib.monthly(Bytes(1 << 30)), Money::cents(4));
        for text in ["0.05 $/10k", "0.005 $/1000", "5 $/1M", "0.000005 $/1"] {
            let price = Requested::parse(text).unwrap();
            assert_eq!(price.charge(10_000), Money::cents(5), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_price_is_refused() {
        let hourly = |text: &str| Hourly::parse(text).unwrap_err();
        for text in ["", "$/h", "-1 $/h", "1. $/h", "1.2.3 $/h", ".5 $/h", "much $/h", "1e3 $/h"] {
            assert_eq!(hourly(text), PriceError::NoAmount, "{text}");
        }
        assert_eq!(hourly("0.0000000001 $/h"), PriceError::TooFine);
        assert_eq!(hourly("20000000000 $/h"), PriceError::TooLarge);
        assert_eq!(hourly("99999999999999999999 $/h"), PriceError::TooLarge);
        for text in ["0.95", "0.95 $", "0.95 $/", "0.95 $ h", "0.95 $/day", "0.95 €/h"] {
            let problem = hourly(text);
            let refused = matches!(problem, PriceError::UnknownUnit { .. } | PriceError::NoAmount);
            assert!(refused, "{text}: {problem}");
        }
        for text in ["1 $/GB", "1 $/month", "1 $/GB/h", "1 $/GB/month/month"] {
            assert!(Stored::parse(text).is_err(), "{text}");
        }
        for text in ["1 $/0", "1 $/k", "1 $/", "1 $/10K", "1 $/+5", "1 $/99999999999999999M"] {
            assert!(Requested::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_a_price_panic(text in ".{0,40}", number in "[0-9.]{0,30}") {
            for text in [text.clone(), format!("{number} $/{text}"), format!("{number} $/h")] {
                _ = Hourly::parse(&text);
                _ = Stored::parse(&text);
                _ = Requested::parse(&text);
            }
        }
    }
}
