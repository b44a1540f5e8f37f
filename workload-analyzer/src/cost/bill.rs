//! What a run costs in each way to hold its data.

use serde::Serialize;
use tierfeed_core::units::Bytes;

use super::{Charge, Planned, Prefetched, Prices, Usage, Way, equations};

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
