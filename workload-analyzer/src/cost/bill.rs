//! What a run costs in each way to hold its data.

use serde::{Serialize, Serializer, ser::SerializeStruct};
use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{Money, Prices, Requests, equations};

/// What a run uses. A way whose time is not known is not on the bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Machines.
    pub nodes: u32,
    /// Passes over the dataset.
    pub epochs: u32,
    /// Samples that all nodes together read in an epoch; `m`.
    pub samples: u64,
    /// Objects in the bucket, which a listing returns; DELI takes `m`.
    pub objects: u64,
    /// The dataset; `s_t`.
    pub dataset: Bytes,
    /// How long the run takes with all data on the disk of every node.
    pub disk: Option<Nanoseconds>,
    /// How long it takes if every sample is read from the bucket when it is needed.
    pub direct: Option<Nanoseconds>,
    /// What DELI's prefetching does to it.
    pub prefetched: Option<Prefetched>,
    /// What the plan does to it.
    pub planned: Option<Planned>,
}

/// A run with DELI's cache and prefetching.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetched {
    /// How long the run takes.
    pub time: Nanoseconds,
    /// What each node's cache takes on its disk: a sample's mean size times `m_c`.
    pub cache: Bytes,
    /// Samples of a fetch; `f`. Zero counts as one.
    pub fetch: u64,
    /// Samples that the trainers of all nodes read from the bucket in an epoch, if that is known.
    pub misses: Option<u64>,
}

/// A run with the plan of tierfeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// How long the run takes.
    pub time: Nanoseconds,
    /// What each node rents on disk for it; nothing where the tiers are memory or local scratch.
    pub cache: Bytes,
    /// Reads of the cold store in the whole run, all nodes together.
    pub cold_reads: u64,
}

/// Where the data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// On the disk of every node; equation 1.
    Disk,
    /// In a bucket; equations 3 and 4.
    Direct,
    /// In a bucket, with a cache and prefetching; equations 3 and 5.
    Prefetched,
    /// The same with the requests that DELI's prototype makes, counted instead of equation 5.
    Prototype,
    /// In a bucket, with the plan of tierfeed; equation 3.
    Planned,
}

impl Way {
    /// The name in tables and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Direct => "direct",
            Self::Prefetched => "prefetched",
            Self::Prototype => "prototype",
            Self::Planned => "planned",
        }
    }
}

/// What a run costs in one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
    /// Where the data is.
    pub way: Way,
    /// The machines.
    pub compute: Money,
    /// Their disks.
    pub disk: Money,
    /// The bucket.
    pub store: Money,
    /// Requests to the bucket.
    pub requests: Requests,
    /// What these cost.
    pub api: Money,
}

impl Charge {
    /// Disks and bucket.
    #[must_use]
    pub fn storage(&self) -> Money {
        self.disk + self.store
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Money {
        self.compute + self.storage() + self.api
    }
}

/// With the sums, and with units in the keys.
impl Serialize for Charge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("Charge", 8)?;
        map.serialize_field("way", &self.way)?;
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

/// What a run costs in each way that its usage tells of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bill {
    /// In the order of [`Way`], each at most once.
    pub charges: Vec<Charge>,
}

impl Bill {
    /// The charge for `way`, if it is on the bill.
    #[must_use]
    pub fn of(&self, way: Way) -> Option<&Charge> {
        self.charges.iter().find(|charge| charge.way == way)
    }

    /// The least; of equals the first.
    #[must_use]
    pub fn cheapest(&self) -> Option<&Charge> {
        self.charges.iter().min_by_key(|charge| charge.total())
    }
}

/// Puts the ways side by side.
#[must_use]
pub fn bill(prices: &Prices, usage: &Usage) -> Bill {
    let mut charges = Vec::new();
    charges.extend(usage.disk.map(|time| equations::disk(prices, usage, time)));
    charges.extend(usage.direct.map(|time| {
        let requests = equations::direct_requests(prices, usage);
        equations::bucket(prices, usage, Way::Direct, time, Bytes(0), requests)
    }));
    if let Some(Prefetched { time, cache, fetch, misses }) = usage.prefetched {
        let charge = |way, requests| equations::bucket(prices, usage, way, time, cache, requests);
        let printed = equations::prefetch_requests(prices, usage, fetch);
        charges.push(charge(Way::Prefetched, printed));
        charges.extend(misses.map(|misses| {
            charge(Way::Prototype, equations::prototype_requests(prices, usage, fetch, misses))
        }));
    }
    charges.extend(usage.planned.map(|Planned { time, cache, cold_reads }| {
        let requests = equations::planned_requests(prices, usage, cold_reads);
        equations::bucket(prices, usage, Way::Planned, time, cache, requests)
    }));
    Bill { charges }
}
