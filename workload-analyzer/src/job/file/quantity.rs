//! Sizes, times, rates and shares of a job file.

use std::{ops::RangeInclusive, str::FromStr};

use tierfeed_core::{
    budget::Percent,
    units::{self, Bytes, BytesPerSecond, Nanoseconds},
};
use tierfeed_dataset::keys::{Reason, parse_size};

use crate::yaml::scalar::Scalar;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error(transparent)]
    NotAQuantity(#[from] units::ParseError),
    #[error("it must be above 0")]
    Zero,
}

fn above_zero<Q>(typed: &str) -> Result<Q, QuantityError>
where
    Q: FromStr<Err = units::ParseError> + Default + PartialEq,
{
    let quantity: Q = typed.parse()?;
    if quantity == Q::default() { Err(QuantityError::Zero) } else { Ok(quantity) }
}

impl Scalar for Nanoseconds {
    type Reason = QuantityError;

    const EXAMPLE: Option<&str> = Some("120 ms");

    fn parse(typed: &str) -> Result<Self, QuantityError> {
        above_zero(typed)
    }
}

impl Scalar for BytesPerSecond {
    type Reason = QuantityError;

    const EXAMPLE: Option<&str> = Some("20 GB/s");

    fn parse(typed: &str) -> Result<Self, QuantityError> {
        above_zero(typed)
    }
}

/// A latency of memory or storage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency(pub(crate) Nanoseconds);

impl Scalar for Latency {
    type Reason = QuantityError;

    const EXAMPLE: Option<&str> = Some("350 ns");

    fn parse(typed: &str) -> Result<Self, QuantityError> {
        above_zero(typed).map(Self)
    }
}

/// The size of a place. It has a unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room(pub(crate) Bytes);

impl Scalar for Room {
    type Reason = QuantityError;

    const EXAMPLE: Option<&str> = Some("16 GiB");

    fn parse(typed: &str) -> Result<Self, QuantityError> {
        above_zero(typed).map(Self)
    }
}

/// With or without a unit: the name of the key says bytes.
impl Scalar for Bytes {
    type Reason = Reason;

    fn parse(typed: &str) -> Result<Self, Reason> {
        parse_size(typed).filter(|bytes| bytes.0 > 0).ok_or(Reason::NotARecordSize)
    }
}

/// The allowed shares of a tier in percent: at least 10 % is left to other processes.
const SHARES: RangeInclusive<u8> = 1..=90;

impl Scalar for Percent {
    type Reason = &'static str;

    const EXAMPLE: Option<&str> = Some("20 %");

    fn parse(typed: &str) -> Result<Self, &'static str> {
        let number = typed.strip_suffix('%').map(str::trim_end);
        let percent = number.and_then(|number| number.parse().ok());
        let share = percent.filter(|it| SHARES.contains(it)).and_then(Self::new);
        share.ok_or("expected a whole percentage from 1 % to 90 %")
    }
}
