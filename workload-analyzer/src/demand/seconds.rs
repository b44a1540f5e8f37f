//! Times in seconds: as plain numbers, whose key has the unit, and as text.

use serde::{Serialize as _, Serializer};
use tierfeed_core::units::{self, Nanoseconds};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference to the field")]
pub(crate) fn plain<S: Serializer>(value: &Nanoseconds, serializer: S) -> Result<S::Ok, S::Error> {
    units::seconds(*value).serialize(serializer)
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(crate) fn optional<S: Serializer>(
    value: &Option<Nanoseconds>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(units::seconds).serialize(serializer)
}

/// A time in seconds, as text.
pub(crate) fn in_words(time: Nanoseconds) -> String {
    format!("{:.3} s", units::seconds(time))
}
