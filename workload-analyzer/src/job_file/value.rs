//! The scalar types of a job file: a text, a number, a version.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer},
};

/// A scalar as it is typed. A bare number is accepted as text: the missing unit is reported with the key.
#[derive(Debug)]
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyScalar;

        impl Visitor<'_> for AnyScalar {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a single value")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Text, E> {
                Ok(Text(value.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Text, E> {
                Ok(Text(value.to_string()))
            }
        }

        deserializer.deserialize_any(AnyScalar)
    }
}

/// The reaction to a sample that cannot be read: a word, or a mapping with the share that may be left out.
#[derive(Debug)]
pub(crate) enum OnErrorFile {
    Word(Text),
    Skip(Text),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SkipFile {
    skip: Text,
}

impl<'de> Deserialize<'de> for OnErrorFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrShare;

        impl<'de> Visitor<'de> for WordOrShare {
            type Value = OnErrorFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`fail`, `skip`, or a mapping such as `{ skip: 1 % }`")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<OnErrorFile, E> {
                Ok(OnErrorFile::Word(Text(value.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OnErrorFile, A::Error> {
                let SkipFile { skip } = Deserialize::deserialize(MapAccessDeserializer::new(map))?;
                Ok(OnErrorFile::Skip(skip))
            }
        }

        deserializer.deserialize_any(WordOrShare)
    }
}

/// A name. A number with a fraction must be a text: `1.0` would be read as `1`.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Named;

        impl Visitor<'_> for Named {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a name; one that looks like a number stands in quotes, for example `\"1.0\"`",
                )
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Name, E> {
                Ok(Name(value.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Name, E> {
                Ok(Name(value.to_string()))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Name, E> {
                Ok(Name(value.to_string()))
            }
        }

        deserializer.deserialize_any(Named)
    }
}

/// A version, which must be a text: as a number, 2.10 would be read as 2.1.
#[derive(Debug)]
pub(crate) struct Release(pub(crate) String);

impl<'de> Deserialize<'de> for Release {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Version;

        impl Visitor<'_> for Version {
            type Value = Release;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a version of three numbers or in quotes, for example `2.6.0`")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Release, E> {
                Ok(Release(value.to_owned()))
            }
        }

        deserializer.deserialize_any(Version)
    }
}

/// A number without a unit. Its range depends on the key and is checked later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeNumber;

        impl Visitor<'_> for WholeNumber {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, not negative, without a unit")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Whole, E> {
                Ok(Whole(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Whole, E> {
                let unexpected = || E::invalid_value(Unexpected::Signed(value), &self);
                u64::try_from(value).map(Whole).map_err(|_| unexpected())
            }
        }

        deserializer.deserialize_any(WholeNumber)
    }
}
