//! A job file as it is typed: every key that exists, and nothing checked but its type.
//!
//! [`crate::job`] turns this into a [`crate::Job`]. Quantities stay text here, so that an error can
//! show the value as it stands in the file.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, Unexpected, Visitor},
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with the keys of a job")]
pub(crate) struct JobFile {
    pub(crate) name: Text,
    pub(crate) dataset: DatasetFile,
    pub(crate) order: OrderFile,
    pub(crate) batch_size: Whole,
    pub(crate) world: Option<WorldFile>,
    pub(crate) step_time: Option<Text>,
    pub(crate) policy: Option<Text>,
    pub(crate) chunk: Option<Text>,
    pub(crate) prefetch: Option<PrefetchFile>,
    pub(crate) on_error: Option<Text>,
    pub(crate) tiers: Option<TiersFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with `source` and `format`")]
pub(crate) struct DatasetFile {
    pub(crate) source: Text,
    pub(crate) format: Text,
    pub(crate) record_bytes: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
    pub(crate) index: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with `shuffle` and `epochs`")]
pub(crate) struct OrderFile {
    pub(crate) shuffle: Text,
    pub(crate) seed: Option<Whole>,
    pub(crate) epochs: Whole,
    pub(crate) drop_last: Option<bool>,
    pub(crate) start: Option<StartFile>,
    pub(crate) version: Option<Release>,
    pub(crate) generator: Option<Text>,
    pub(crate) persistent_workers: Option<bool>,
    pub(crate) buffer: Option<Whole>,
    pub(crate) global_seed: Option<Whole>,
    pub(crate) reshuffle: Option<bool>,
    pub(crate) second_seed: Option<Whole>,
    pub(crate) algorithm: Option<Text>,
    pub(crate) shard_samples: Option<Whole>,
    pub(crate) canonical_nodes: Option<Whole>,
    pub(crate) shuffle_block: Option<Whole>,
    pub(crate) window: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ epoch: 3, samples: 40960 }`")]
pub(crate) struct StartFile {
    pub(crate) epoch: Whole,
    pub(crate) samples: Whole,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ nodes: 1, ranks_per_node: 8 }`")]
pub(crate) struct WorldFile {
    pub(crate) nodes: Option<Whole>,
    pub(crate) ranks_per_node: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ batches: 4 }`")]
pub(crate) struct PrefetchFile {
    pub(crate) batches: Option<Whole>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ latency: 350 ns, bandwidth: 20 GB/s }`")]
pub(crate) struct SpeedFile {
    pub(crate) latency: Option<Text>,
    pub(crate) bandwidth: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[serde(expecting = "a mapping of main-memory, cxl-memory, scratch and storage")]
pub(crate) struct TiersFile {
    pub(crate) main_memory: Option<MainMemoryFile>,
    pub(crate) cxl_memory: Option<CxlMemoryFile>,
    pub(crate) scratch: Option<DirectoryFile>,
    pub(crate) storage: Option<DirectoryFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ size: 16 GiB }`")]
pub(crate) struct MainMemoryFile {
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ numa_nodes: [2], size: 16 GiB }`")]
pub(crate) struct CxlMemoryFile {
    pub(crate) numa_nodes: Option<Vec<Whole>>,
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping such as `{ path: /mnt/scratch, size: 16 GiB }`")]
pub(crate) struct DirectoryFile {
    pub(crate) path: Text,
    pub(crate) size: Option<Text>,
    pub(crate) reserve: Option<Text>,
    pub(crate) emulate: Option<SpeedFile>,
}

/// The keys that every tier has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TierKeys<'a> {
    pub(crate) size: Option<&'a Text>,
    pub(crate) reserve: Option<&'a Text>,
    pub(crate) emulate: Option<&'a SpeedFile>,
}

impl MainMemoryFile {
    pub(crate) fn keys(&self) -> TierKeys<'_> {
        let Self { size, reserve, emulate, .. } = self;
        TierKeys { size: size.as_ref(), reserve: reserve.as_ref(), emulate: emulate.as_ref() }
    }
}

impl CxlMemoryFile {
    pub(crate) fn keys(&self) -> TierKeys<'_> {
        let Self { size, reserve, emulate, .. } = self;
        TierKeys { size: size.as_ref(), reserve: reserve.as_ref(), emulate: emulate.as_ref() }
    }
}

impl DirectoryFile {
    pub(crate) fn keys(&self) -> TierKeys<'_> {
        let Self { size, reserve, emulate, .. } = self;
        TierKeys { size: size.as_ref(), reserve: reserve.as_ref(), emulate: emulate.as_ref() }
    }
}

/// A scalar as it was typed. A bare number is text too: the missing unit is reported with the key.
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

/// A version, which must be a text: as a number 2.10 would be read as 2.1.
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

/// A number without a unit. Which range it must be in depends on the key and is checked later.
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
