//! Keeps what a hog did, within bounds: extremes, steps, why memory was given back, a timeline.

use std::collections::BTreeMap;

use serde::Serialize;
use tierfeed_core::units::{Bytes, Nanoseconds};

use super::decision::{Look, Reason};

/// The most points of a timeline; when there are more, every second one is dropped.
const POINTS_MAX: usize = 512;

/// The time between points at first.
const POINT_EVERY: Nanoseconds = Nanoseconds(200_000_000);

/// What was held at some moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Point {
    /// Seconds since the hog started to take memory.
    pub at_s: f64,
    /// What it held.
    pub held_bytes: u64,
    /// What others could take.
    pub available_bytes: u64,
}

/// Memory that was given back for one reason, all times together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GivenBack {
    /// Why.
    pub reason: Reason,
    /// How often.
    pub times: u64,
    /// How much in all.
    pub bytes: u64,
    /// When first, in seconds since the start.
    pub first_at_s: f64,
    /// When last.
    pub last_at_s: f64,
}

/// What a hog did so far.
#[derive(Debug)]
pub struct Record {
    held_max: Bytes,
    first_held: Option<Nanoseconds>,
    available_while_held: Option<(Bytes, Bytes)>,
    steps_reached: Vec<Option<Nanoseconds>>,
    given_back: BTreeMap<Reason, GivenBack>,
    refusal: Option<String>,
    points: Vec<Point>,
    every: Nanoseconds,
    next_point: Nanoseconds,
}

impl Record {
    pub(crate) fn new(steps: usize) -> Self {
        Self {
            held_max: Bytes(0),
            first_held: None,
            available_while_held: None,
            steps_reached: vec![None; steps],
            given_back: BTreeMap::new(),
            refusal: None,
            points: Vec::new(),
            every: POINT_EVERY,
            next_point: Nanoseconds(0),
        }
    }

    /// The most that was held.
    #[must_use]
    pub fn held_max(&self) -> Bytes {
        self.held_max
    }

    /// When the first amount was held.
    #[must_use]
    pub fn first_held(&self) -> Option<Nanoseconds> {
        self.first_held
    }

    /// The least and the most that others could take since the first amount was held.
    #[must_use]
    pub fn available_while_held(&self) -> Option<(Bytes, Bytes)> {
        self.available_while_held
    }

    /// When each step was reached first.
    #[must_use]
    pub fn steps_reached(&self) -> &[Option<Nanoseconds>] {
        &self.steps_reached
    }

    /// What was given back, by reason.
    #[must_use]
    pub fn given_back(&self) -> Vec<GivenBack> {
        self.given_back.values().copied().collect()
    }

    /// What the kernel said when it refused memory last.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// What was held over time.
    #[must_use]
    pub fn timeline(&self) -> &[Point] {
        &self.points
    }

    pub(crate) fn note_look(&mut self, now: Nanoseconds, look: &Look, held: Bytes) {
        self.held_max = self.held_max.max(held);
        if self.first_held.is_some() {
            let available = look.available;
            let (least, most) = self.available_while_held.unwrap_or((available, available));
            self.available_while_held = Some((least.min(available), most.max(available)));
        }
        if now >= self.next_point {
            self.add_point(now, look, held);
            if self.points.len() > POINTS_MAX {
                let mut index = 0;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.every.0 *= 2;
            }
            self.next_point = Nanoseconds(now.0 + self.every.0);
        }
    }

    /// The last look, which is part of the timeline in any case.
    pub(crate) fn note_last_look(&mut self, now: Nanoseconds, look: &Look, held: Bytes) {
        self.next_point = Nanoseconds(u64::MAX);
        self.note_look(now, look, held);
        self.add_point(now, look, held);
    }

    fn add_point(&mut self, now: Nanoseconds, look: &Look, held: Bytes) {
        self.points.push(Point {
            at_s: seconds(now),
            held_bytes: held.0,
            available_bytes: look.available.0,
        });
    }

    pub(crate) fn note_reached(&mut self, step: usize, now: Nanoseconds) {
        self.first_held.get_or_insert(now);
        if let Some(reached) = self.steps_reached.get_mut(step) {
            reached.get_or_insert(now);
        }
    }

    pub(crate) fn note_given_back(&mut self, now: Nanoseconds, bytes: Bytes, reason: Reason) {
        let at_s = seconds(now);
        let given = GivenBack { reason, times: 0, bytes: 0, first_at_s: at_s, last_at_s: at_s };
        let given = self.given_back.entry(reason).or_insert(given);
        given.times += 1;
        given.bytes += bytes.0;
        given.last_at_s = at_s;
    }

    pub(crate) fn note_refusal(&mut self, said: String) {
        self.refusal = Some(said);
    }
}

/// Seconds as they stand in reports.
#[expect(clippy::cast_precision_loss, reason = "a report needs no more than 53 bits")]
pub(crate) fn seconds(time: Nanoseconds) -> f64 {
    time.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hog::decision::Strain;

    fn look(available: u64) -> Look {
        Look { available: Bytes(available), total: Bytes(100), strain: Strain::None }
    }

    #[test]
    fn a_timeline_has_a_bound_and_spans_all_time() {
        let mut record = Record::new(1);
        let looks = 100_000;
        for tenth in 0..looks {
            record.note_look(Nanoseconds(tenth * 100_000_000), &look(tenth), Bytes(tenth));
        }
        let points = record.timeline();
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()), "{}", points.len());
        assert!(points.is_sorted_by(|one, next| one.at_s < next.at_s));
        assert!(points[0].at_s < 1e-9 && points[points.len() - 1].at_s > 9_900.0);
        assert_eq!(record.held_max(), Bytes(looks - 1));
        let end = Nanoseconds(looks * 100_000_000);
        record.note_last_look(end, &look(7), Bytes(8));
        let last = Point { at_s: 10_000.0, held_bytes: 8, available_bytes: 7 };
        assert_eq!(record.timeline().last(), Some(&last));
    }

    #[test]
    fn extremes_count_from_the_first_holding() {
        let mut record = Record::new(1);
        record.note_look(Nanoseconds(0), &look(90), Bytes(0));
        assert_eq!(record.available_while_held(), None);
        record.note_reached(0, Nanoseconds(1));
        for available in [12, 10, 11] {
            record.note_look(Nanoseconds(2), &look(available), Bytes(80));
        }
        assert_eq!(record.available_while_held(), Some((Bytes(10), Bytes(12))));
    }

    #[test]
    fn what_was_given_back_is_summed_by_reason() {
        let mut record = Record::new(1);
        let second = |s: u64| Nanoseconds(s * 1_000_000_000);
        record.note_given_back(second(1), Bytes(5), Reason::OthersGrew);
        record.note_given_back(second(3), Bytes(6), Reason::OthersGrew);
        record.note_given_back(second(4), Bytes(7), Reason::End);
        let given = record.given_back();
        assert_eq!((given[0].times, given[0].bytes), (2, 11));
        assert_eq!((given[0].first_at_s, given[0].last_at_s), (1.0, 3.0));
        assert_eq!((given[1].reason, given[1].bytes), (Reason::End, 7));
    }
}
