//! The change between two answers of an agent.

use std::collections::BTreeMap;

use tierfeed_core::units::Nanoseconds;

use crate::observe::metrics::Scrape;

#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    pub(super) before: Option<&'a Scrape>,
    pub(super) now: &'a Scrape,
    pub(super) passed: Option<Nanoseconds>,
}

impl<'a> Change<'a> {
    pub(super) fn label(&self, name: &str, label: &str) -> Option<&'a str> {
        self.now.label(name, label)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.now.sum(name).is_some()
    }

    /// The sum now; 0 if the agent has no such metric.
    pub(super) fn value(&self, name: &str) -> f64 {
        self.now.sum(name).unwrap_or(0.0)
    }

    pub(super) fn by(&self, name: &str, label: &str) -> BTreeMap<&'a str, f64> {
        self.now.by(name, label)
    }

    /// How much each counter grew; `None` without an earlier answer, or if one fell: then the agent has
    /// restarted.
    pub(super) fn differences_by(&self, name: &str, label: &str) -> Option<BTreeMap<&'a str, f64>> {
        let (before, now) = (self.before?.by(name, label), self.now.by(name, label));
        let grew = |(key, now): (&&'a str, &f64)| {
            let grew = now - before.get(key).copied().unwrap_or(0.0);
            (grew >= 0.0).then_some((*key, grew))
        };
        now.iter().map(grew).collect()
    }

    /// The growth of each counter per second; empty if it is not known.
    pub(super) fn rates_by(&self, name: &str, label: &str) -> BTreeMap<&'a str, f64> {
        let Some(seconds) = self.passed.and_then(seconds) else { return BTreeMap::new() };
        let grown = self.differences_by(name, label).unwrap_or_default();
        grown.into_iter().map(|(key, grew)| (key, grew / seconds)).collect()
    }
}

/// How fast a counter grew; `None` if it fell or no time passed.
pub(super) fn per_second(before: u64, now: u64, passed: Nanoseconds) -> Option<f64> {
    Some(super::float(now.checked_sub(before)?) / seconds(passed)?)
}

/// A share in percent; 0 if `whole` is 0.
pub(super) fn percent(part: f64, whole: f64) -> String {
    let share = if whole > 0.0 { part / whole } else { 0.0 };
    format!("{:.1} %", share * 100.0)
}

fn seconds(time: Nanoseconds) -> Option<f64> {
    (time.0 > 0).then(|| super::float(time.0) / 1e9)
}
