//! The cost of a run in each scenario.

use serde::Serialize;
use tierfeed_core::units::Bytes;

use super::{Charge, Planned, Prefetched, Prices, Scenario, Usage, equations};

/// The cost of a run in each scenario whose duration is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bill {
    /// The charges in the order of [`Scenario`], each at most once.
    pub charges: Vec<Charge>,
}

impl Bill {
    #[must_use]
    pub fn of(&self, scenario: Scenario) -> Option<&Charge> {
        self.charges.iter().find(|charge| charge.scenario == scenario)
    }

    /// The lowest charge; of equal ones the first.
    #[must_use]
    pub fn cheapest(&self) -> Option<&Charge> {
        self.charges.iter().min_by_key(|charge| charge.total())
    }
}

#[must_use]
pub fn bill(prices: &Prices, usage: &Usage) -> Bill {
    let mut charges = Vec::new();
    charges.extend(usage.disk.map(|time| equations::disk(prices, usage, time)));
    charges.extend(usage.direct.map(|time| {
        let requests = equations::direct_requests(prices, usage);
        equations::bucket(prices, usage, Scenario::Direct, time, Bytes(0), requests)
    }));
    if let Some(Prefetched { time, cache, fetch, misses }) = usage.prefetched {
        let charge =
            |scenario, requests| equations::bucket(prices, usage, scenario, time, cache, requests);
        let printed = equations::prefetch_requests(prices, usage, fetch);
        charges.push(charge(Scenario::Prefetched, printed));
        charges.extend(misses.map(|misses| {
            charge(Scenario::Prototype, equations::prototype_requests(prices, usage, fetch, misses))
        }));
    }
    charges.extend(usage.planned.map(|Planned { time, cache, cold_reads }| {
        let requests = equations::planned_requests(prices, usage, cold_reads);
        equations::bucket(prices, usage, Scenario::Planned, time, cache, requests)
    }));
    Bill { charges }
}
