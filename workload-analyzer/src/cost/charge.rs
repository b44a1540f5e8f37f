//! The cost of a run in one scenario.

use serde::{Serialize, Serializer, ser::SerializeStruct};

use super::Money;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Scenario {
    /// On the disk of every node; equation 1.
    Disk,
    /// In a bucket; equations 3 and 4.
    Direct,
    /// In a bucket, with a cache and prefetching; equations 3 and 5.
    Prefetched,
    /// The same with the requests that DELI's prototype makes, counted instead of equation 5.
    Prototype,
    /// In a bucket, with the reads that tierfeed plans; equation 3.
    Planned,
}

impl Scenario {
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Requests of a whole run, all nodes together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requests {
    /// Class A: pages of listings.
    pub listings: u64,
    /// Class B: reads of objects.
    pub reads: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    pub scenario: Scenario,
    pub compute: Money,
    pub disk: Money,
    /// The cost of the stored bytes in the bucket.
    pub store: Money,
    pub requests: Requests,
    /// The cost of these requests.
    pub api: Money,
}

impl Charge {
    /// The cost of disks and bucket together.
    #[must_use]
    pub fn storage(&self) -> Money {
        self.disk + self.store
    }

    #[must_use]
    pub fn total(&self) -> Money {
        self.compute + self.storage() + self.api
    }
}

/// Includes the sum, and has the units in the keys.
impl Serialize for Charge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Charge", 8)?;
        map.serialize_field("way", &self.scenario)?;
        map.serialize_field("compute_usd", &self.compute)?;
        map.serialize_field("disk_usd", &self.disk)?;
        map.serialize_field("store_usd", &self.store)?;
        map.serialize_field("class_a_requests", &self.requests.listings)?;
        map.serialize_field("class_b_requests", &self.requests.reads)?;
        map.serialize_field("api_usd", &self.api)?;
        map.serialize_field("total_usd", &self.total())?;
        map.end()
    }
}
