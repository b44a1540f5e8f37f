//! Leads a hog through its schedule: what to do at each look, when it is over, what happened.
//!
//! Pure: the clock and what is seen are arguments. The schedule starts when its first amount is held;
//! until then the course waits, but not for ever.

use tierfeed_core::units::{Bytes, Nanoseconds};

use super::{
    decision::{self, Action, Look, Reason},
    goal::{Goal, Schedule},
    record::Record,
};

/// What a hog does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// What was decided for the goal of this moment.
    Do(Action),
    /// Give everything back and end.
    End(Ending),
}

/// Why a hog ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// Its time was over.
    Time,
    /// It was told to.
    Stopped,
    /// The command beside it ended.
    Command,
    /// It could not take what it was told within the time to wait for that.
    Unreached,
}

/// A hog on its way.
#[derive(Debug)]
pub struct Course {
    schedule: Schedule,
    wait: Nanoseconds,
    /// When the first amount was held.
    started: Option<Nanoseconds>,
    /// Nothing is taken before, because the kernel refused.
    refused_until: Nanoseconds,
    record: Record,
}

/// After the kernel refused memory that was free, the hog asks again after this long.
const RETRY_AFTER: Nanoseconds = Nanoseconds(1_000_000_000);

impl Course {
    /// Follows `schedule` if its first amount is held within `wait`.
    #[must_use]
    pub fn new(schedule: Schedule, wait: Nanoseconds) -> Self {
        let record = Record::new(schedule.profile().steps().len());
        Self { schedule, wait, started: None, refused_until: Nanoseconds(0), record }
    }

    /// Whether the first amount is or was held, so that the schedule runs.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.started.is_some()
    }

    /// What happened so far.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// What it follows.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What shall be held at `now`; `None` when all is over.
    #[must_use]
    pub fn goal(&self, now: Nanoseconds) -> Option<(usize, Goal)> {
        let elapsed = self.started.map_or(0, |started| now.0.saturating_sub(started.0));
        self.schedule.at(Nanoseconds(elapsed))
    }

    /// What to do at `now` with what is seen.
    pub fn next(&mut self, now: Nanoseconds, look: &Look, held: Bytes) -> Order {
        let Some((step, goal)) = self.goal(now) else { return Order::End(Ending::Time) };
        self.record.note_look(now, look, held);
        if decision::is_reached(look, held, goal) {
            self.record.note_reached(step, now);
            self.started.get_or_insert(now);
        } else if self.started.is_none() && now >= self.wait {
            return Order::End(Ending::Unreached);
        }
        Order::Do(match decision::next_action(look, held, goal) {
            Action::Take(_) if now < self.refused_until => Action::Rest,
            action => action,
        })
    }

    /// Notes that memory was given back.
    pub fn note_given_back(&mut self, now: Nanoseconds, bytes: Bytes, reason: Reason) {
        self.record.note_given_back(now, bytes, reason);
    }

    /// Notes what was held when all was over.
    pub fn note_last_look(&mut self, now: Nanoseconds, look: &Look, held: Bytes) {
        self.record.note_last_look(now, look, held);
    }

    /// Notes that the kernel refused memory, with what it said; the hog tries again a second later.
    pub fn note_refusal(&mut self, now: Nanoseconds, said: String) {
        self.refused_until = Nanoseconds(now.0 + RETRY_AFTER.0);
        self.record.note_refusal(said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hog::decision::Strain;

    const GIB: u64 = 1 << 30;
    const SECOND: u64 = 1_000_000_000;

    /// A machine of 8 GiB under a scripted clock of ten looks a second.
    struct Play {
        course: Course,
        others: u64,
        held: u64,
        now: u64,
    }

    impl Play {
        fn new(profile: &str, limit_s: Option<u64>) -> Self {
            let limit = limit_s.map(|limit| Nanoseconds(limit * SECOND));
            let schedule = Schedule::new(profile.parse().unwrap(), limit);
            let course = Course::new(schedule, Nanoseconds(60 * SECOND));
            Self { course, others: GIB, held: 0, now: 0 }
        }

        fn look(&self) -> Look {
            let available = Bytes(8 * GIB - self.others - self.held);
            Look { available, total: Bytes(8 * GIB), strain: Strain::None }
        }

        fn step(&mut self) -> Order {
            let now = Nanoseconds(self.now);
            let order = self.course.next(now, &self.look(), Bytes(self.held));
            match order {
                Order::Do(Action::Take(bytes)) => self.held += bytes.0,
                Order::Do(Action::GiveBack(bytes, reason)) => {
                    self.held -= bytes.0;
                    self.course.note_given_back(now, bytes, reason);
                }
                Order::Do(Action::Rest) | Order::End(_) => (),
            }
            self.now += SECOND / 10;
            order
        }

        /// Plays until `seconds` after the start of the schedule, or until the end.
        fn until(&mut self, seconds: u64) -> Order {
            loop {
                let order = self.step();
                let started = self.course.started.map(|started| started.0 + seconds * SECOND);
                if matches!(order, Order::End(_)) || started.is_some_and(|end| self.now >= end) {
                    return order;
                }
            }
        }
    }

    #[test]
    fn the_clock_of_a_schedule_starts_when_the_first_amount_is_held() {
        let mut play = Play::new("10s:4GiB", None);
        while !play.course.has_started() {
            play.step();
        }
        let held_at = 4 * GIB / decision::STEP.0 * SECOND / 10;
        assert_eq!(play.now, held_at + SECOND / 10);
        play.now = held_at + 10 * SECOND - 1;
        assert_eq!(play.step(), Order::Do(Action::Rest));
        play.now = held_at + 10 * SECOND;
        assert_eq!(play.step(), Order::End(Ending::Time));
    }

    #[test]
    fn each_step_of_a_profile_is_held_in_its_time() {
        let mut play = Play::new("20s:1GiB,20s:leave:2GiB,20s:512MiB", None);
        play.until(15);
        assert_eq!(play.held, GIB);
        play.until(35);
        assert!(play.look().available.0.abs_diff(2 * GIB) <= 8 << 20);
        play.until(55);
        assert_eq!(play.held, GIB / 2);
        assert_eq!(play.until(70), Order::End(Ending::Time));
        let reached = play.course.record().steps_reached();
        assert!(reached.iter().all(Option::is_some), "{reached:?}");
    }

    #[test]
    fn a_profile_with_a_limit_starts_again() {
        let mut play = Play::new("10s:1GiB,10s:2GiB", Some(25));
        play.until(19);
        assert_eq!(play.held, 2 * GIB);
        play.until(24);
        assert_eq!(play.held, GIB);
        assert_eq!(play.until(26), Order::End(Ending::Time));
    }

    #[test]
    fn what_others_need_is_given_back_and_taken_again() {
        let mut play = Play::new("100s:leave:1GiB", None);
        play.until(1);
        assert!(play.held > 5 * GIB);
        play.others += 3 * GIB;
        // What they took exceeds what was left: they took it from the hog's reserve of free memory.
        play.held -= 2 * GIB + GIB / 2;
        play.until(10);
        assert!(play.look().available.0.abs_diff(GIB) <= 8 << 20);
        play.others -= 3 * GIB;
        play.until(30);
        assert!(play.look().available.0.abs_diff(GIB) <= 8 << 20);
        assert!(play.held > 5 * GIB);
    }

    #[test]
    fn an_amount_that_is_not_there_ends_the_wait() {
        let mut play = Play::new("100s:7GiB", None);
        assert_eq!(play.until(0), Order::End(Ending::Unreached));
        assert_eq!(play.now, 60 * SECOND + SECOND / 10);
        assert!(play.look().available >= decision::floor(Goal::Take(Bytes(0)), Bytes(8 * GIB)));
    }

    #[test]
    fn a_refusal_of_the_kernel_pauses_the_taking() {
        let mut play = Play::new("10s:4GiB", None);
        assert!(matches!(play.step(), Order::Do(Action::Take(_))));
        play.course.note_refusal(Nanoseconds(0), "no".to_owned());
        for _ in 1..10 {
            assert_eq!(play.step(), Order::Do(Action::Rest));
        }
        assert!(matches!(play.step(), Order::Do(Action::Take(_))));
    }
}
