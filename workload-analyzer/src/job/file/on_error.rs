//! The reaction to a sample that cannot be read: a word, or a mapping with the share that may be left out.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use tierfeed_core::session::{OnError, SkipShare};

use crate::yaml::{
    invalid,
    scalar::{Checked, Scalar},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipFile {
    skip: Checked<SkipShare>,
}

#[derive(Debug)]
pub(crate) struct OnErrorFile(pub(crate) OnError);

impl<'de> Deserialize<'de> for OnErrorFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrShare).map(Self)
    }
}

struct WordOrShare;

impl<'de> Visitor<'de> for WordOrShare {
    type Value = OnError;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`fail`, `skip`, or a mapping such as `{ skip: 1 % }`")
    }

    fn visit_str<E: de::Error>(self, typed: &str) -> Result<OnError, E> {
        match typed {
            "fail" => Ok(OnError::Fail),
            "skip" => Ok(OnError::Skip(SkipShare::DEFAULT)),
            _ => Err(E::custom(invalid(typed, "expected one of fail, skip"))),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OnError, A::Error> {
        let typed = SkipFile::deserialize(MapAccessDeserializer::new(map))?;
        Ok(OnError::Skip(typed.skip.0))
    }
}

/// A share such as `1 %`, `0.5 %` or `0.005`, from one part per million to all.
impl Scalar for SkipShare {
    type Reason = &'static str;

    const EXAMPLE: Option<&str> = Some("1 %");

    fn parse(typed: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected a percentage above 0 % up to 100 %";
        const ALL: f64 = 1e6;
        let (number, whole) = match typed.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (typed, 1.0),
        };
        let share: f64 = number.parse().map_err(|_| EXPECTED)?;
        let parts = (share / whole * ALL).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is in the range"
        )]
        let share = (1.0..=ALL).contains(&parts).then_some(Self(parts as u32));
        share.ok_or(EXPECTED)
    }
}
