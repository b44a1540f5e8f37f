//! The pauses of the agent's loop: how long it did not take events.
//!
//! A pause lasts from taking an event to waiting for the next one. All ranks of the node wait meanwhile, so
//! the longest pause is part of every bound of their waits. On a busy node the scheduler causes most of a
//! long pause, so the CPU time of the loop is reported beside it.

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
    /// The maxima of wall-clock and CPU time, which may be of different pauses.
    longest: Elapsed,
}

/// The pauses in the report.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PauseEntry {
    /// Events that the loop took.
    pub events: u64,
    /// The 99th percentile of pauses, at most 1/16 too high.
    pub p99_s: f64,
    /// The longest pause, in seconds.
    pub longest_s: f64,
    /// The event that the longest pause followed.
    pub longest_after: &'static str,
    /// The most CPU time that the loop took for one event, in seconds.
    pub ran_max_s: f64,
    /// The event that took the most CPU time.
    pub ran_max_after: &'static str,
    /// The same for each kind of event.
    pub by_event: BTreeMap<&'static str, EventEntry>,
}

/// The pauses after one kind of event.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventEntry {
    /// The number of events.
    pub events: u64,
    /// The longest pause after such an event, in seconds.
    pub longest_s: f64,
    /// The most CPU time in one pause, in seconds.
    pub ran_max_s: f64,
}

impl Pauses {
    /// Records a pause after an event of this name.
    pub fn note(&mut self, event: &'static str, pause: Elapsed) {
        self.durations.record(pause.wall);
        let ByEvent { events, longest } = self.by_event.entry(event).or_default();
        *events += 1;
        longest.wall = longest.wall.max(pause.wall);
        longest.cpu = longest.cpu.max(pause.cpu);
    }

    /// The distribution of pauses.
    #[must_use]
    pub fn durations(&self) -> &Waits {
        &self.durations
    }

    /// The event that took the most CPU time at once, and how much.
    #[must_use]
    pub fn cpu_max(&self) -> (&'static str, Nanoseconds) {
        self.highest(|longest| longest.cpu)
    }

    fn highest(&self, figure: impl Fn(Elapsed) -> Nanoseconds) -> (&'static str, Nanoseconds) {
        let figures = self.by_event.iter().map(|(event, it)| (*event, figure(it.longest)));
        figures.max_by_key(|(_, time)| *time).unwrap_or_default()
    }
}

impl From<&Pauses> for PauseEntry {
    fn from(pauses: &Pauses) -> Self {
        let (longest_after, _) = pauses.highest(|longest| longest.wall);
        let (ran_max_after, ran_max) = pauses.cpu_max();
        let entry = |of_event: &ByEvent| EventEntry {
            events: of_event.events,
            longest_s: seconds(of_event.longest.wall),
            ran_max_s: seconds(of_event.longest.cpu),
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
        for (event, wall, cpu) in noted {
            let [wall, cpu] = [wall, cpu].map(|micros| Nanoseconds(micros * 1_000));
            pauses.note(event, Elapsed { wall, cpu });
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
