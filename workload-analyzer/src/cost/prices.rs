//! The prices of the parts of a run, from a checked file.

use std::path::Path;

use serde::{Deserialize, Deserializer};
use tierfeed_core::units::{self, Bytes, Nanoseconds};

use super::{Hourly, Money, Requested, Stored, price::MONTH};
use crate::yaml::{
    self, YamlError,
    scalar::{Scalar, count_or, optional, or_default, required},
};

pub(super) const FILE_BYTES_MAX: Bytes = Bytes(64 << 10);

/// The most objects that one listing of a Google or Amazon bucket returns.
const LIST_PAGE: u32 = 1_000;
const LIST_PAGE_MAX: u32 = 1_000_000;

/// The prices of one provider, region and kind of machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "a mapping with the keys of a file of prices")]
pub struct Prices {
    /// The price of a node with its accelerators; DELI's `c_c`.
    #[serde(deserialize_with = "required")]
    pub vm: Hourly,
    /// The price of disk space of a node; `c_d`.
    #[serde(deserialize_with = "required")]
    pub disk: Stored,
    /// The price of bytes in the bucket; `c_b`.
    #[serde(deserialize_with = "required")]
    pub store: Stored,
    /// The price of requests that list the bucket; `c_A`.
    #[serde(deserialize_with = "required")]
    pub class_a: Requested,
    /// The price of requests that read an object; `c_B`.
    #[serde(deserialize_with = "required")]
    pub class_b: Requested,
    /// Objects that one listing returns; `p`. The default is 1,000.
    #[serde(
        default = "list_page",
        deserialize_with = "count_or::<_, 1, LIST_PAGE_MAX, LIST_PAGE>"
    )]
    pub list_page: u32,
    /// Bytes on the disk of a node besides data; `s_r`. The default is zero.
    #[serde(default, deserialize_with = "disk_size")]
    pub system_disk: Bytes,
    /// The time for which stored bytes are charged. The default is started months.
    #[serde(default, deserialize_with = "or_default")]
    pub storage_charged: StorageCharged,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageCharged {
    /// Every month that the run begins, as in DELI's equations for runs of up to a month.
    #[default]
    StartedMonths,
    /// The duration of the run.
    Time,
}

impl StorageCharged {
    /// The charge for bytes that cost `monthly` and are stored for `time`.
    #[must_use]
    pub fn charge(self, monthly: Money, time: Nanoseconds) -> Money {
        match self {
            Self::StartedMonths => monthly.times(time.0.div_ceil(MONTH.0).max(1)),
            Self::Time => monthly.share(time.0, MONTH.0),
        }
    }
}

impl Prices {
    pub fn load(path: &Path) -> Result<Self, YamlError> {
        Self::parse(&yaml::text_of(path, FILE_BYTES_MAX, "file of prices")?, path)
    }

    /// Reads the text of a file of prices. Errors name `file_name`.
    pub fn parse(text: &str, file_name: &Path) -> Result<Self, YamlError> {
        yaml::parse(text, file_name)
    }
}

const fn list_page() -> u32 {
    LIST_PAGE
}

/// Zero is a size too.
struct DiskSize(Bytes);

impl Scalar for DiskSize {
    type Reason = units::ParseError;

    const EXAMPLE: Option<&str> = Some("16 GB");

    fn parse(typed: &str) -> Result<Self, units::ParseError> {
        typed.parse().map(Self)
    }
}

fn disk_size<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    Ok(optional::<D, DiskSize>(from)?.map_or(Bytes(0), |size| size.0))
}
