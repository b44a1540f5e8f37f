//! For how long the loop of the agent did not look at its events.
//!
//! A pause lasts from the moment at which the loop takes an event to the moment at which it waits for the
//! next one. All ranks of the node wait for that long, so the longest pause is part of every promise
//! about their waits. On a busy node most of a long pause is that of the kernel, which gave the processor
//! to another thread: what the loop ran itself is told beside it.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{session::Waits, units::Nanoseconds};

use crate::clock::Elapsed;

/// The pauses of one loop.
#[derive(Debug, Clone, Default)]
pub struct Pauses {
    durations: Waits,
    by_event: BTreeMap<&'static str, ByEvent>,
}

#[derive(Debug, Clone, Copy, Default)]
struct ByEvent {
    events: u64,
    /// The longest of each, not of one pause.
    longest: Elapsed,
}

/// The pauses as the report tells them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PauseEntry {
    /// Events that the loop took.
    pub events: u64,
    /// 99 of 100 pauses were no longer, at most 1/16 too high.
    pub p99_s: f64,
    /// The longest.
    pub longest_s: f64,
    /// The event after which it came.
    pub longest_after: &'static str,
    /// The most processor time that the loop took for one event.
    pub ran_max_s: f64,
    /// The event that took it.
    pub ran_max_after: &'static str,
    /// The same for each kind of event.
    pub by_event: BTreeMap<&'static str, EventEntry>,
}

/// The pauses after one kind of event.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventEntry {
    /// How many there were.
    pub events: u64,
    /// The longest pause.
    pub longest_s: f64,
    /// The most processor time in one pause.
    pub ran_max_s: f64,
}

impl Pauses {
    /// Takes note of a pause after an event of this name.
    pub fn note(&mut self, event: &'static str, pause: Elapsed) {
        self.durations.record(pause.lasted);
        let ByEvent { events, longest } = self.by_event.entry(event).or_default();
        *events += 1;
        longest.lasted = longest.lasted.max(pause.lasted);
        longest.ran = longest.ran.max(pause.ran);
    }

    /// How often the loop paused for how long.
    #[must_use]
    pub fn durations(&self) -> &Waits {
        &self.durations
    }

    /// The event that took most processor time at once, and how much.
    #[must_use]
    pub fn ran_max(&self) -> (&'static str, Nanoseconds) {
        self.highest(|longest| longest.ran)
    }

    fn highest(&self, figure: impl Fn(Elapsed) -> Nanoseconds) -> (&'static str, Nanoseconds) {
        let figures = self.by_event.iter().map(|(event, it)| (*event, figure(it.longest)));
        figures.max_by_key(|(_, time)| *time).unwrap_or_default()
    }
}

impl From<&Pauses> for PauseEntry {
    fn from(pauses: &Pauses) -> Self {
        let (longest_after, _) = pauses.highest(|longest| longest.lasted);
        let (ran_max_after, ran_max) = pauses.ran_max();
        let entry = |of_event: &ByEvent| EventEntry {
            events: of_event.events,
            longest_s: seconds(of_event.longest.lasted),
            ran_max_s: seconds(of_event.longest.ran),
        };
        Self {
            events: pauses.durations.count(),
            p99_s: seconds(pauses.durations.percentile(99)),
            longest_s: seconds(pauses.durations.max()),
            longest_after,
            ran_max_s: seconds(ran_max),
            ran_max_after,
            by_event: pauses.by_event.iter().map(|(event, it)| (*event, entry(it))).collect(),
        }
    }
}

impl PauseEntry {
    /// The line of the report for people.
    #[must_use]
    pub fn line(&self) -> String {
        let ms = |seconds: f64| seconds * 1e3;
        format!(
            "agent: its loop paused for at most {:.1} ms (after {}) and ran for at most {:.1} ms of a pause \
             (after {}); 99 of 100 pauses were under {:.2} ms",
            ms(self.longest_s),
            self.longest_after,
            ms(self.ran_max_s),
            self.ran_max_after,
            ms(self.p99_s)
        )
    }
}

fn seconds(time: Nanoseconds) -> f64 {
    std::time::Duration::from_nanos(time.0).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_and_the_longest_work_name_their_events() {
        let mut pauses = Pauses::default();
        let noted =
            [("tick", 30, 20), ("request", 4_200, 15), ("tick", 20, 20), ("a loan", 50, 45)];
        for (event, lasted, ran) in noted {
            let [lasted, ran] = [lasted, ran].map(|micros| Nanoseconds(micros * 1_000));
            pauses.note(event, Elapsed { lasted, ran });
        }
        let entry = PauseEntry::from(&pauses);
        assert_eq!(
            (entry.events, entry.longest_after, entry.ran_max_after),
            (4, "request", "a loan")
        );
        assert!((entry.longest_s - 0.0042).abs() < 1e-9, "{entry:?}");
        assert!((entry.ran_max_s - 45e-6).abs() < 1e-9, "{entry:?}");
        assert_eq!(entry.by_event["tick"].events, 2);
        assert!(entry.line().contains("4.2 ms (after request)"), "{}", entry.line());
    }
}
