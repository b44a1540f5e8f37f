//! Judges a peer: whether it is asked for the samples that it holds, and when a read of it is late.
//!
//! A peer that fails several times in a row, or that gives less in a second than the cold store, is not asked for
//! a while, each time for longer. Then it is tried again: one more failure is enough, and its rate is measured
//! anew. A peer that is as fast as the cold store and fails in nothing begins with a short pause again.
//!
//! Pure: time, measurements and failures are arguments.

use super::members::Standing;
use crate::units::{Bytes, BytesPerSecond, Nanoseconds};

/// Reads of a peer that fail one after the other before it is not asked any more.
const FAILURES_MAX: u32 = 4;

/// The failures that a peer begins with when it is asked again.
pub const FAILURES_AT_RETRY: u32 = FAILURES_MAX - 1;

/// The rate of a peer is compared with that of the cold store after so many measurements since it is asked.
const JUDGED_AFTER: u32 = 4;

/// A peer counts as slower than the cold store below this share of its rate, in percent: measurements
/// fluctuate, and the cold store need not send what a peer sends.
const SLOW_BELOW_PERCENT: u64 = 75;

/// For how long a peer is not asked after it failed or was slow: at first, and at most.
const PAUSE_MIN: Nanoseconds = Nanoseconds(1_000_000_000);
const PAUSE_MAX: Nanoseconds = Nanoseconds(30_000_000_000);

/// A read that takes longer is late, also where what was measured would allow more.
const LATE_MAX: Nanoseconds = Nanoseconds(2_000_000_000);

/// No read is late before this time.
const LATE_MIN: Nanoseconds = Nanoseconds(100_000_000);

/// A read is late after this multiple of the time that it should take by round trip and rate.
const PATIENCE: u64 = 8;

/// The measurements of the link to a peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// The recent rate of arriving bytes while some were expected; `None` before the first.
    pub rate: Option<BytesPerSecond>,
    /// The number of measurements of the rate since it is measured anew.
    pub measurements: u32,
    /// The shortest recent time from a request to the first byte of its answer; `None` before the first.
    pub round_trip: Option<Nanoseconds>,
}

impl Link {
    /// The time after which a read that waits behind `awaited` bytes is late.
    #[must_use]
    pub fn late_after(&self, awaited: Bytes) -> Nanoseconds {
        let (Some(rate), Some(round_trip)) = (self.rate, self.round_trip) else { return LATE_MAX };
        let expected = round_trip.0.saturating_add(rate.time_for(awaited).0);
        Nanoseconds(expected.saturating_mul(PATIENCE)).clamp(LATE_MIN, LATE_MAX)
    }

    fn is_slow(&self, cold: Option<BytesPerSecond>) -> bool {
        self.rate.zip(cold).is_some_and(|(rate, cold)| {
            u128::from(rate.0) * 100 < u128::from(cold.0) * u128::from(SLOW_BELOW_PERCENT)
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is asked again, its rate is measured anew, and it has failed [`FAILURES_AT_RETRY`] times at most.
    Found,
    /// It is not asked from now on.
    Lost,
}

/// The judgement of a process that works as a peer.
#[derive(Debug, Clone, Copy)]
pub struct Judgement {
    standing: Standing,
    /// For a paused peer.
    retry_at: Nanoseconds,
    pause: Nanoseconds,
    pauses: u64,
}

impl Default for Judgement {
    fn default() -> Self {
        let (standing, retry_at) = (Standing::Asked, Nanoseconds(0));
        Self { standing, retry_at, pause: PAUSE_MIN, pauses: 0 }
    }
}

impl Judgement {
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The number of times that the peer was not asked for a while.
    #[must_use]
    pub fn pauses(&self) -> u64 {
        self.pauses
    }

    /// Another process works as the peer; what was counted of it goes on.
    pub fn restart(&mut self) {
        *self = Self { pauses: self.pauses, ..Self::default() };
    }

    pub fn leave(&mut self) {
        self.standing = Standing::Gone;
    }

    /// Judges by the reads that failed since the last one that did not.
    pub fn fail(&mut self, failures: u32, now: Nanoseconds) -> Option<Change> {
        let is_failing = self.standing == Standing::Asked && failures >= FAILURES_MAX;
        is_failing.then(|| self.pause(Standing::Failing, now))
    }

    /// Judges by its link and the rate of the cold store.
    pub fn measure(
        &mut self,
        link: &Link,
        cold: Option<BytesPerSecond>,
        failures: u32,
        now: Nanoseconds,
    ) -> Option<Change> {
        match self.standing {
            Standing::Asked if link.measurements < JUDGED_AFTER => {}
            Standing::Asked if link.is_slow(cold) => return Some(self.pause(Standing::Slow, now)),
            Standing::Asked if failures == 0 => self.pause = PAUSE_MIN,
            Standing::Slow | Standing::Failing if self.retry_at <= now => {
                self.standing = Standing::Asked;
                return Some(Change::Found);
            }
            _ => {}
        }
        None
    }

    fn pause(&mut self, why: Standing, now: Nanoseconds) -> Change {
        self.standing = why;
        self.retry_at = Nanoseconds(now.0.saturating_add(self.pause.0));
        self.pauses += 1;
        self.pause = Nanoseconds(self.pause.0.saturating_mul(2)).min(PAUSE_MAX);
        Change::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLD: Option<BytesPerSecond> = Some(BytesPerSecond(100));
    const SECOND: u64 = 1_000_000_000;

    fn link(rate: Option<u64>, round_trip: u64) -> Link {
        Link {
            rate: rate.map(BytesPerSecond),
            measurements: JUDGED_AFTER,
            round_trip: Some(Nanoseconds(round_trip)),
        }
    }

    #[test]
    fn a_read_is_late_by_what_is_measured_within_bounds() {
        let late = |rate, round_trip, awaited| link(rate, round_trip).late_after(Bytes(awaited));
        assert_eq!(late(None, 1000, 1000), LATE_MAX);
        assert_eq!(late(Some(1_000_000_000), 100_000, 1_000_000), LATE_MIN);
        assert_eq!(late(Some(1_000_000_000), 0, 100_000_000), Nanoseconds(800_000_000));
        assert_eq!(late(Some(1), 0, 100), LATE_MAX);
        assert_eq!(late(Some(1), u64::MAX, 100), LATE_MAX);
        assert_eq!(Link::default().late_after(Bytes(1)), LATE_MAX, "nothing is measured");
    }

    #[test]
    fn a_peer_is_slow_when_it_was_measured_often_enough_and_clearly_below_the_cold_store() {
        let is_lost = |link: Link, cold| {
            let change = Judgement::default().measure(&link, cold, 0, Nanoseconds(0));
            change == Some(Change::Lost)
        };
        assert!(is_lost(link(Some(74), 1000), COLD));
        assert!(!is_lost(link(Some(75), 1000), COLD));
        assert!(!is_lost(link(Some(1), 1000), None));
        let few = Link { measurements: JUDGED_AFTER - 1, ..link(Some(1), 1000) };
        assert!(!is_lost(few, COLD));
    }

    #[test]
    fn a_peer_that_fails_is_not_asked_for_longer_and_longer() {
        let mut peer = Judgement::default();
        let pauses = [0; 8].map(|_| {
            peer.pause(Standing::Failing, Nanoseconds(0));
            peer.retry_at.0 / SECOND
        });
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30, 30]);
        peer.restart();
        assert_eq!((peer.standing(), peer.pause, peer.pauses()), (Standing::Asked, PAUSE_MIN, 8));
    }

    #[test]
    fn a_peer_that_is_tried_again_is_lost_by_one_more_failure() {
        let mut peer = Judgement::default();
        assert_eq!(peer.fail(FAILURES_AT_RETRY, Nanoseconds(0)), None);
        assert_eq!(peer.fail(FAILURES_MAX, Nanoseconds(0)), Some(Change::Lost));
        let open = Link::default();
        assert_eq!(peer.measure(&open, COLD, FAILURES_MAX, Nanoseconds(SECOND - 1)), None);
        let again = peer.measure(&open, COLD, FAILURES_MAX, Nanoseconds(SECOND));
        assert_eq!(again, Some(Change::Found));
        assert_eq!(peer.fail(FAILURES_AT_RETRY + 1, Nanoseconds(SECOND)), Some(Change::Lost));
    }

    /// All ways in which a peer can behave in seven seconds.
    #[test]
    fn losses_and_finds_alternate_and_no_pause_is_longer_than_the_longest() {
        let behaviours = [(None, 0), (Some(100), 0), (Some(50), 0), (None, FAILURES_MAX)];
        for way in 0..behaviours.len().pow(7) {
            let (mut peer, mut left, mut is_asked) = (Judgement::default(), way, true);
            for second in 0..7 {
                let now = Nanoseconds(second * SECOND);
                let (rate, failures) = behaviours[left % behaviours.len()];
                left /= behaviours.len();
                let link = rate.map_or(Link::default(), |rate| link(Some(rate), 1000));
                let changes = [
                    peer.fail(failures, now),
                    peer.measure(&link, COLD, failures.min(FAILURES_AT_RETRY), now),
                ];
                for change in changes.into_iter().flatten() {
                    assert_eq!(change, if is_asked { Change::Lost } else { Change::Found });
                    is_asked = !is_asked;
                }
                assert_eq!(is_asked, peer.standing() == Standing::Asked);
                assert!(is_asked || peer.retry_at.0 <= now.0 + PAUSE_MAX.0);
            }
        }
    }
}
