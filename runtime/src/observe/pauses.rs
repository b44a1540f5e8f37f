//! The pauses of the agent's loop: how long it did not take events, and how busy it was.
//!
//! A pause lasts from taking an event to waiting for the next one. All ranks of the node wait meanwhile, so
//! the longest pause is part of every bound of their waits. On a busy node the scheduler causes most of a
//! long pause, so the CPU time of the loop is reported beside it.
//!
//! The loop is busy except while it waits for an event. If it is busy all the time, batches wait for it: it
//! is one thread, and each sample costs it a little.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::{
    session::{LoopLoad, Waits},
    units::{Nanoseconds, seconds},
};

use crate::clock::Elapsed;

/// The load of a loop is judged over at least this long.
const WINDOW: Nanoseconds = Nanoseconds(50_000_000);

/// A loop that is busy for this share of a window, in per cent, counts as busy all the time: the rest is the
/// cost of its own waiting for events.
const FULL_PERCENT: u64 = 90;

#[derive(Debug, Clone, Default)]
pub struct Pauses {
    durations: Waits,
    by_event: BTreeMap<&'static str, ByEvent>,
    /// Since [`Pauses::begin`].
    busy: Spent,
    window: Spent,
    /// The event that was taken last.
    name: &'static str,
    /// The end of the last pause; while an event is handled, when it was taken.
    last: Nanoseconds,
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    wall: u64,
    idle: u64,
    /// The time in which it had a processor and handled events.
    ran: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct TakenEvent {
    pub name: &'static str,
    pub at: Nanoseconds,
    pub arrival: Arrival,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The event was there already.
    Waiting,
    /// The loop waited for the event.
    Awaited,
}

#[derive(Debug, Clone, Copy, Default)]
struct ByEvent {
    events: u64,
    /// The maxima of wall-clock and CPU time, which may be of different pauses.
    longest: Elapsed,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PauseEntry {
    pub events: u64,
    /// The 99th percentile of pauses, at most 1/16 too high.
    pub p99_s: f64,
    pub longest_s: f64,
    pub longest_after: &'static str,
    /// The most CPU time that the loop took for one event, in seconds.
    pub ran_max_s: f64,
    pub ran_max_after: &'static str,
    /// The share of the training in which the loop did not wait for events; from 0.9 on, batches wait for it.
    pub busy_share: f64,
    /// The share of the training in which the loop ran on a processor: that of one core.
    pub ran_share: f64,
    pub by_event: BTreeMap<&'static str, EventEntry>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct EventEntry {
    pub events: u64,
    pub longest_s: f64,
    /// The most CPU time in one pause, in seconds.
    pub ran_max_s: f64,
}

impl Pauses {
    /// Takes note of an event before it is handled. Returns the load of the loop until then, where enough time has
    /// passed to judge it.
    pub fn take(&mut self, event: TakenEvent) -> Option<LoopLoad> {
        let TakenEvent { name, at, arrival } = event;
        let before = at.0.saturating_sub(self.last.0);
        let idle = if arrival == Arrival::Awaited { before } else { 0 };
        (self.name, self.last) = (name, at);
        for spent in [&mut self.busy, &mut self.window] {
            spent.wall += before;
            spent.idle += idle;
        }
        (self.window.wall >= WINDOW.0).then(|| std::mem::take(&mut self.window).load())
    }

    /// Records the pause after the event that was taken last.
    pub fn note(&mut self, pause: Elapsed) {
        self.durations.record(pause.wall);
        let ByEvent { events, longest } = self.by_event.entry(self.name).or_default();
        *events += 1;
        longest.wall = longest.wall.max(pause.wall);
        longest.cpu = longest.cpu.max(pause.cpu);
        self.last = Nanoseconds(self.last.0.saturating_add(pause.wall.0));
        for spent in [&mut self.busy, &mut self.window] {
            spent.wall += pause.wall.0;
            spent.ran += pause.cpu.0;
        }
    }

    /// The training begins: from now on the loop's time counts. Returns the load with which it begins, so that no
    /// batch is said to have waited for the work of the start.
    pub fn begin(&mut self) -> LoopLoad {
        (self.busy, self.window) = Default::default();
        LoopLoad::Light
    }

    #[must_use]
    pub fn durations(&self) -> &Waits {
        &self.durations
    }

    #[must_use]
    pub fn cpu_max(&self) -> (&'static str, Nanoseconds) {
        self.highest(|longest| longest.cpu)
    }

    fn highest(&self, figure: impl Fn(Elapsed) -> Nanoseconds) -> (&'static str, Nanoseconds) {
        let figures = self.by_event.iter().map(|(event, it)| (*event, figure(it.longest)));
        figures.max_by_key(|(_, time)| *time).unwrap_or_default()
    }
}

impl Spent {
    fn load(self) -> LoopLoad {
        let busy = self.wall.saturating_sub(self.idle);
        let is_full = busy.saturating_mul(100) >= self.wall.saturating_mul(FULL_PERCENT);
        if is_full { LoopLoad::Full } else { LoopLoad::Light }
    }

    fn share(self, time: u64) -> f64 {
        if self.wall == 0 {
            0.0
        } else {
            seconds(Nanoseconds(time)) / seconds(Nanoseconds(self.wall))
        }
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
            busy_share: pauses.busy.share(pauses.busy.wall.saturating_sub(pauses.busy.idle)),
            ran_share: pauses.busy.share(pauses.busy.ran).min(1.0),
            by_event: pauses.by_event.iter().map(|(event, it)| (*event, entry(it))).collect(),
        }
    }
}

impl PauseEntry {
    #[must_use]
    pub fn line(&self) -> String {
        let ms = |seconds: f64| seconds * 1e3;
        format!(
            "agent: its loop was busy for {:.0} % of the training ({:.0} % of a core), paused for at most \
             {:.1} ms (after {}) and ran for at most {:.1} ms of a pause (after {}); 99 of 100 pauses were \
             under {:.2} ms",
            self.busy_share * 100.0,
            self.ran_share * 100.0,
            ms(self.longest_s),
            self.longest_after,
            ms(self.ran_max_s),
            self.ran_max_after,
            ms(self.p99_s)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pause_and_the_longest_work_name_their_events() {
        let mut pauses = Pauses::default();
        let noted =
            [("tick", 30, 20), ("request", 4_200, 15), ("tick", 20, 20), ("a loan", 50, 45)];
        for (name, wall, cpu) in noted {
            let [wall, cpu] = [wall, cpu].map(|micros| Nanoseconds(micros * 1_000));
            pauses.take(TakenEvent { name, at: pauses.last, arrival: Arrival::Waiting });
            pauses.note(Elapsed { wall, cpu });
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

    /// An event of 8 us, `gap` us after the one before; the load as it is taken.
    fn next_event(gap: u64, arrival: Arrival, pauses: &mut Pauses) -> Option<LoopLoad> {
        let at = Nanoseconds(pauses.last.0 + gap * 1_000);
        let load = pauses.take(TakenEvent { name: "completions", at, arrival });
        pauses.note(Elapsed { wall: Nanoseconds(8_000), cpu: Nanoseconds(6_000) });
        load
    }

    /// Such events for 60 ms.
    fn load_after(gap: u64, arrival: Arrival, pauses: &mut Pauses) -> Vec<LoopLoad> {
        let turns = 60_000 / (8 + gap);
        (0..turns).filter_map(|_| next_event(gap, arrival, pauses)).collect()
    }

    #[test]
    fn a_delivery_after_an_idle_time_has_the_load_of_that_time() {
        let mut pauses = Pauses::default();
        assert_eq!(load_after(2, Arrival::Waiting, &mut pauses), [LoopLoad::Full]);
        let judged = next_event(500_000, Arrival::Awaited, &mut pauses);
        assert_eq!(judged, Some(LoopLoad::Light), "before the event is handled");
    }

    #[test]
    fn a_training_begins_without_the_load_of_the_start() {
        let mut pauses = Pauses::default();
        let event = TakenEvent { name: "x", at: Nanoseconds(0), arrival: Arrival::Waiting };
        assert_eq!(pauses.take(event), None);
        pauses.note(Elapsed { wall: WINDOW, cpu: WINDOW });
        assert_eq!(pauses.begin(), LoopLoad::Light);
        assert_eq!(next_event(2, Arrival::Waiting, &mut pauses), None, "the start is in no window");
    }

    #[test]
    fn a_loop_that_never_waits_for_an_event_is_full() {
        let mut pauses = Pauses::default();
        assert_eq!(load_after(2, Arrival::Waiting, &mut pauses), [LoopLoad::Full]);
        let entry = PauseEntry::from(&pauses);
        assert!(
            (entry.busy_share - 1.0).abs() < 1e-9,
            "what selecting an event costs is no idle time"
        );
        assert!((entry.ran_share - 0.6).abs() < 1e-6, "{entry:?}");
        let mut pauses = Pauses::default();
        assert_eq!(load_after(2, Arrival::Awaited, &mut pauses), [LoopLoad::Light]);
        pauses.begin();
        assert_eq!(load_after(12, Arrival::Awaited, &mut pauses).len(), 1);
        let entry = PauseEntry::from(&pauses);
        assert!(
            (entry.busy_share - 0.4).abs() < 1e-6,
            "before the training nothing counts: {entry:?}"
        );
    }
}
