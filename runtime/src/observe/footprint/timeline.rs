//! A time series of held and free memory, with every change and its reason.
//!
//! Its length has a bound: when it is full, every second point without a change is dropped, and new ones are
//! recorded half as often.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use tierfeed_core::{
    budget::{Change, Percent, Reading, Reason, Step},
    units::{Bytes, Nanoseconds, seconds},
};
use tierfeed_prefetcher::plane::Usage;

const POINTS_MAX: usize = 400;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct TimelinePoint {
    /// Since the agent started.
    #[serde(rename = "time_s", serialize_with = "as_seconds")]
    pub time: Nanoseconds,
    /// Memory that could be taken: the least of all pools of memory that the job draws on.
    pub free_bytes: u64,
    /// The share of the time for which tasks waited for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_percent: Option<u8>,
    pub tier_bytes: BTreeMap<&'static str, u64>,
    pub staging_bytes: u64,
    /// Batches that each rank may have staged.
    pub staging_batches: u32,
    pub lent_bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryState {
    /// Batches that each rank may have staged.
    pub batches: u32,
    /// The share of the time for which tasks waited for memory.
    pub waiting: Option<Percent>,
    pub lent: Bytes,
}

/// The points of a run, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Timeline {
    points: Vec<TimelinePoint>,
    /// Readings since the last moment without a change.
    #[serde(skip)]
    skipped: u32,
    /// The number of readings that are left out between two points without a change.
    #[serde(skip)]
    skip: u32,
}

impl Timeline {
    /// Notes a reading: always if something changed, else as often as there is room.
    pub fn note(
        &mut self,
        reading: &Reading,
        usage: &Usage,
        state: MemoryState,
        changes: &[Change],
    ) {
        if changes.is_empty() && self.skipped < self.skip {
            self.skipped += 1;
            return;
        }
        if changes.is_empty() {
            self.skipped = 0;
        }
        let mut tier_bytes = BTreeMap::new();
        for tier in &usage.tiers {
            *tier_bytes.entry(tier.kind.name()).or_default() += tier.bytes.0;
        }
        let names: Vec<&str> = usage.tiers.iter().map(|tier| tier.kind.name()).collect();
        self.push(TimelinePoint {
            time: reading.now,
            free_bytes: reading.free.values().map(|free| free.bytes.0).min().unwrap_or(0),
            waiting_percent: state.waiting.map(Percent::get),
            tier_bytes,
            staging_bytes: usage.arenas.0,
            staging_batches: state.batches,
            lent_bytes: state.lent.0,
            changes: changes
                .iter()
                .map(|change| ChangeText { change, names: &names }.to_string())
                .collect(),
        });
    }

    #[must_use]
    pub fn points(&self) -> &[TimelinePoint] {
        &self.points
    }

    fn push(&mut self, point: TimelinePoint) {
        if self.points.len() >= POINTS_MAX {
            self.downsample();
        }
        self.points.push(point);
    }

    /// Drops every second point without a change; if too many remain, every second of all points.
    fn downsample(&mut self) {
        self.skip = self.skip.saturating_mul(2).saturating_add(1);
        let mut is_odd = false;
        self.points.retain(|point| {
            is_odd ^= point.changes.is_empty();
            !point.changes.is_empty() || is_odd
        });
        if self.points.len() > POINTS_MAX / 4 * 3 {
            let mut at = 0;
            self.points.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
    }
}

struct ChangeText<'a> {
    change: &'a Change,
    names: &'a [&'a str],
}

impl fmt::Display for ChangeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.change.step {
            Step::Cache { tier, from, to } => {
                let name = self.names.get(usize::from(tier.0)).unwrap_or(&"tier");
                write!(f, "{name}: {from} to {to} chunks, ")?;
            }
            Step::Staging { from, to } => write!(f, "staging: {from} to {to} batches, ")?,
        }
        match self.change.reason {
            Reason::Short(missing) => write!(f, "{missing} short of what must stay free"),
            Reason::Waiting(share) => {
                write!(f, "tasks waited for memory {} % of the time", share.get())
            }
            Reason::Share => f.write_str("the share of what is free changed"),
            Reason::Refused => f.write_str("a chunk was refused"),
            Reason::Calm => f.write_str("memory is free again"),
            Reason::Lent => f.write_str("workloads borrow"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
fn as_seconds<S: serde::Serializer>(time: &Nanoseconds, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(seconds(*time))
}

#[cfg(test)]
mod tests {
    use tierfeed_core::{
        budget::{Free, Pool},
        id::TierId,
        tier::Kind,
    };
    use tierfeed_prefetcher::{plane::TierUsage, tier::Medium};

    use super::*;

    fn note(timeline: &mut Timeline, second: u64, changes: &[Change]) {
        let free = Free { bytes: Bytes::mib(5), kept: Bytes::mib(1) };
        let reading = Reading {
            now: Nanoseconds(second * 1_000_000_000),
            waited: None,
            free: [(Pool(0), free)].into(),
            tiers: Vec::new(),
            staging: Bytes(0),
        };
        let bytes = Bytes::mib(7);
        let (kind, medium) = (Kind::Scratch, Medium::Tmpfs);
        let tiers = vec![TierUsage { kind, medium, bytes }];
        let usage = Usage { arenas: Bytes::mib(3), tiers };
        let state = MemoryState { batches: 4, waiting: Percent::new(12), lent: Bytes(0) };
        timeline.note(&reading, &usage, state, changes);
    }

    fn cut() -> Change {
        let step = Step::Cache { tier: TierId(0), from: 3, to: 1 };
        Change { step, reason: Reason::Short(Bytes::mib(2)) }
    }

    #[test]
    fn a_moment_says_what_was_held_and_why_it_changed() {
        let mut timeline = Timeline::default();
        note(&mut timeline, 2, &[cut()]);
        let points = serde_json::to_value(&timeline).unwrap();
        let expected = serde_json::json!([{
            "time_s": 2.0,
            "free_bytes": 5 << 20,
            "waiting_percent": 12,
            "tier_bytes": { "scratch": 7 << 20 },
            "staging_bytes": 3 << 20,
            "staging_batches": 4,
            "lent_bytes": 0,
            "changes": ["scratch: 3 to 1 chunks, 2 MiB short of what must stay free"],
        }]);
        assert_eq!(points, expected);
    }

    #[test]
    fn a_long_run_keeps_its_changes_and_a_bounded_line() {
        let mut timeline = Timeline::default();
        for second in 0..100_000 {
            let changes = if second % 2_000 == 0 { vec![cut()] } else { Vec::new() };
            note(&mut timeline, second, &changes);
            assert!(timeline.points().len() <= POINTS_MAX);
        }
        let changed = timeline.points().iter().filter(|it| !it.changes.is_empty()).count();
        assert_eq!(changed, 50);
        assert!(timeline.points().len() > POINTS_MAX / 4);
        assert!(timeline.points().is_sorted_by_key(|point| point.time));
    }

    #[test]
    fn even_nothing_but_changes_stays_within_the_bound() {
        let mut timeline = Timeline::default();
        (0..5_000).for_each(|second| note(&mut timeline, second, &[cut()]));
        assert!(timeline.points().len() <= POINTS_MAX);
    }
}
