//! Serialises quantities as plain numbers; the unit is in the key.

#![expect(
    clippy::trivially_copy_pass_by_ref,
    clippy::ref_option,
    reason = "serde calls these functions with references to fields"
)]

use serde::Serializer;
use tierfeed_core::{
    tier,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

pub(crate) fn bytes<S: Serializer>(value: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(value.0)
}

pub(crate) fn rate<S: Serializer>(
    value: &BytesPerSecond,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(value.0)
}

pub(crate) fn nanoseconds<S: Serializer>(
    value: &Option<Nanoseconds>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(value) => serializer.serialize_u64(value.0),
    }
}

pub(crate) fn seconds<S: Serializer>(
    value: &Nanoseconds,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_seconds(*value))
}

pub(crate) fn optional_seconds<S: Serializer>(
    value: &Option<Nanoseconds>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(value) => serializer.serialize_f64(in_seconds(*value)),
    }
}

pub(crate) fn optional_bytes<S: Serializer>(
    value: &Option<Bytes>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(value) => serializer.serialize_u64(value.0),
    }
}

pub(crate) fn optional_rate<S: Serializer>(
    value: &Option<BytesPerSecond>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        None => serializer.serialize_none(),
        Some(value) => serializer.serialize_u64(value.0),
    }
}

pub(crate) fn kind<S: Serializer>(value: &tier::Kind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.name())
}

/// A time in seconds, as text.
pub(crate) fn in_words(time: Nanoseconds) -> String {
    format!("{:.3} s", in_seconds(time))
}

#[expect(clippy::cast_precision_loss, reason = "a nanosecond in 104 days does not show")]
pub(crate) fn in_seconds(value: Nanoseconds) -> f64 {
    value.0 as f64 / 1e9
}
