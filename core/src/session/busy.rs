//! How busy a channel was: for how long an operation ran there.
//!
//! A channel that was busy all the time and yet not fast enough needs more bandwidth; one that was idle
//! while a trainer waited for it was asked too late.

use serde::{Deserialize, Serialize};

use crate::units::Nanoseconds;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Busy {
    running: u32,
    changed_at: Nanoseconds,
    time: Nanoseconds,
    in_flight: Nanoseconds,
    operations: u64,
    /// The time at which the channel began to work; `None` after its first operation since then ended.
    woke_at: Option<Nanoseconds>,
    responses: u64,
    response_time: Nanoseconds,
}

impl Busy {
    /// Time that goes back counts as standing still.
    pub fn begun(&mut self, now: Nanoseconds) {
        self.pass(now);
        if self.running == 0 {
            self.woke_at = Some(self.changed_at);
        }
        self.running += 1;
        self.operations += 1;
    }

    pub fn ended(&mut self, now: Nanoseconds) {
        self.pass(now);
        self.running = self.running.saturating_sub(1);
        if let Some(woke_at) = self.woke_at.take() {
            self.responses += 1;
            let response = self.changed_at.0.saturating_sub(woke_at.0);
            self.response_time.0 = self.response_time.0.saturating_add(response);
        }
    }

    #[must_use]
    pub const fn running(&self) -> u32 {
        self.running
    }

    #[must_use]
    pub const fn operations(&self) -> u64 {
        self.operations
    }

    /// The time for which at least one operation ran, up to the last begin or end.
    #[must_use]
    pub const fn time(&self) -> Nanoseconds {
        self.time
    }

    /// The sum of the times of all operations, up to the last begin or end.
    #[must_use]
    pub const fn in_flight(&self) -> Nanoseconds {
        self.in_flight
    }

    /// The number of times that the channel began to work, and the sum of the times from then to the first
    /// end of an operation. Operations that wait for others have no part in it.
    #[must_use]
    pub const fn responses(&self) -> (u64, Nanoseconds) {
        (self.responses, self.response_time)
    }

    fn pass(&mut self, now: Nanoseconds) {
        let passed = now.0.saturating_sub(self.changed_at.0);
        if self.running > 0 {
            self.time.0 = self.time.0.saturating_add(passed);
            let together = passed.saturating_mul(u64::from(self.running));
            self.in_flight.0 = self.in_flight.0.saturating_add(together);
        }
        self.changed_at = self.changed_at.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_busy_while_anything_runs_there() {
        let mut busy = Busy::default();
        // One from 10 to 40, another from 20 to 30, a third from 90 to 100.
        busy.begun(Nanoseconds(10));
        busy.begun(Nanoseconds(20));
        assert_eq!(busy.running(), 2);
        busy.ended(Nanoseconds(30));
        busy.ended(Nanoseconds(40));
        busy.begun(Nanoseconds(90));
        busy.ended(Nanoseconds(100));
        assert_eq!((busy.time(), busy.operations(), busy.running()), (Nanoseconds(40), 3, 0));
        assert_eq!(busy.in_flight(), Nanoseconds(30 + 10 + 10));
        assert_eq!(busy.responses(), (2, Nanoseconds(20 + 10)), "the first of two, and the third");
    }
}
