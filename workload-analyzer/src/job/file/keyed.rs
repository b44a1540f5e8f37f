//! The mapping of a dataset: its own keys, which the formats declare, and beside them those of the job.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IntoDeserializer as _, MapAccess, Visitor},
    forward_to_deserialize_any,
};
use tierfeed_dataset::keys::{self, DatasetKeys};

use crate::yaml::scalar::Text;

/// serde's `flatten` would lose the check for unknown keys, and the lines of errors.
#[derive(Debug)]
pub(crate) struct Keyed<T> {
    pub(crate) keys: DatasetKeys,
    pub(crate) beside: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Keyed<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Mapping(PhantomData))
    }
}

struct Mapping<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Mapping<T> {
    type Value = Keyed<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping with `source` and `format`")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Keyed<T>, A::Error> {
        let mut keys = DatasetKeys::default();
        let beside = T::deserialize(Others { map, keys: &mut keys, known: &[] })?;
        match ["source", "format"].into_iter().find(|key| !keys.has(key)) {
            Some(missing) => Err(A::Error::missing_field(missing)),
            None => Ok(Keyed { keys, beside }),
        }
    }
}

/// The keys of a mapping that are not those of a dataset, which go to `keys`.
struct Others<'a, A> {
    map: A,
    keys: &'a mut DatasetKeys,
    known: &'static [&'static str],
}

impl<'de, A: MapAccess<'de>> Deserializer<'de> for Others<'_, A> {
    type Error = A::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        visitor.visit_map(Others { known, ..self })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, A::Error> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Others<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        while let Some(name) = self.map.next_key_seed(Known(self.known))? {
            let Some(key) = keys::named(&name) else {
                return seed.deserialize(name.into_deserializer()).map(Some);
            };
            let values: Option<Vec<Text>> = if key.is_list {
                self.map.next_value()?
            } else {
                self.map.next_value::<Option<Text>>()?.map(|value| vec![value])
            };
            if let Some(values) = values {
                self.keys.set(key.name, values.into_iter().map(|value| value.0).collect());
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// A key of a dataset, or one of these. It fails inside the key, so that the error has its line.
struct Known(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Known {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Known {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<String, E> {
        if self.0.contains(&name) || keys::named(name).is_some() {
            return Ok(name.to_owned());
        }
        let known = keys::all().map(|key| key.name).chain(self.0.iter().copied());
        let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
        let known = known.join(", ");
        Err(E::custom(format_args!("unknown field `{name}`, expected one of {known}")))
    }
}
