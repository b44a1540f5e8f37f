//! Scalars of a YAML file: each is checked where it is read, so that an error has its line.

use std::{convert::Infallible, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

use super::invalid;

/// A value that is typed as one word, or as a quantity with its unit.
pub(crate) trait Scalar: Sized {
    type Reason: fmt::Display;

    const EXPECTED: &str = "a single value";
    /// Whether a fraction or a truth value stands in quotes: YAML reads `2.10` as 2.1.
    const IS_WORD: bool = false;
    /// A valid value, which ends the reason why another one is invalid.
    const EXAMPLE: Option<&str> = None;

    /// The error says what would be right.
    fn parse(typed: &str) -> Result<Self, Self::Reason>;
}

impl Scalar for String {
    type Reason = Infallible;

    fn parse(typed: &str) -> Result<Self, Infallible> {
        Ok(typed.to_owned())
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Checked<T>(pub(crate) T);

/// A scalar as it is typed. A bare number is accepted as text: the missing unit is reported with the key.
pub(crate) type Text = Checked<String>;

impl<'de, T: Scalar> Deserialize<'de> for Checked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyScalar(PhantomData)).map(Self)
    }
}

/// For `deserialize_with`, where the type of a field is that of a checked job.
pub(crate) fn required<'de, D: Deserializer<'de>, T: Scalar>(from: D) -> Result<T, D::Error> {
    Checked::deserialize(from).map(|it| it.0)
}

pub(crate) fn optional<'de, D: Deserializer<'de>, T: Scalar>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Checked<T>>::deserialize(from)?.map(|it| it.0))
}

/// A key without a value has its default, as one that is left out.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

struct AnyScalar<T>(PhantomData<T>);

impl<T: Scalar> AnyScalar<T> {
    fn exact<E: de::Error>(self, typed: &str, kind: Unexpected<'_>) -> Result<T, E> {
        if T::IS_WORD { Err(E::invalid_type(kind, &self)) } else { self.visit_str(typed) }
    }
}

impl<T: Scalar> Visitor<'_> for AnyScalar<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, typed: &str) -> Result<T, E> {
        T::parse(typed).map_err(|reason| match T::EXAMPLE {
            Some(it) => E::custom(invalid(typed, format_args!("{reason}, for example `{it}`"))),
            None => E::custom(invalid(typed, reason)),
        })
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        self.visit_str(&value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        self.exact(&value.to_string(), Unexpected::Float(value))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<T, E> {
        self.exact(&value.to_string(), Unexpected::Bool(value))
    }
}

/// A number without a unit, whose range is checked later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeNumber { min: 0, max: u64::MAX }).map(Self)
    }
}

/// A number without a unit, from `MIN` to `MAX`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count<const MIN: u32, const MAX: u32>(pub(crate) u32);

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Count<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let allowed = WholeNumber { min: MIN.into(), max: MAX.into() };
        let count = deserializer.deserialize_any(allowed)?;
        Ok(Self(u32::try_from(count).expect("it is at most MAX")))
    }
}

/// For `deserialize_with`, where the type of a field is that of a checked job.
pub(crate) fn count<'de, D: Deserializer<'de>, const MIN: u32, const MAX: u32>(
    from: D,
) -> Result<u32, D::Error> {
    Count::<MIN, MAX>::deserialize(from).map(|it| it.0)
}

pub(crate) fn optional_count<'de, D: Deserializer<'de>, const MIN: u32, const MAX: u32>(
    from: D,
) -> Result<Option<u32>, D::Error> {
    Ok(Option::<Count<MIN, MAX>>::deserialize(from)?.map(|it| it.0))
}

pub(crate) fn count_or<
    'de,
    D: Deserializer<'de>,
    const MIN: u32,
    const MAX: u32,
    const DEFAULT: u32,
>(
    from: D,
) -> Result<u32, D::Error> {
    Ok(optional_count::<D, MIN, MAX>(from)?.unwrap_or(DEFAULT))
}

struct WholeNumber {
    min: u64,
    max: u64,
}

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, not negative, without a unit")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        let Self { min, max } = self;
        if (min..=max).contains(&value) {
            return Ok(value);
        }
        let reason = format_args!("it must be between {min} and {max}");
        Err(E::custom(invalid(&value.to_string(), reason)))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(value), &self)),
        }
    }
}
