//! How long a read waits for a store that cannot be read, and when that is said.
//!
//! Every process that reads a cold store follows this rule: the agent, and a trainer that reads by itself. A fault
//! of the store ([`Concern::Store`]) says nothing about the sample, so its read is made again, after pauses that
//! double up to [`PAUSE_MAX`], until the patience of the job is used up. Any other fault ends the read.
//!
//! 1. A read is given up only when its store could not be read for as long as the patience: from the first failure
//!    of any read since one succeeded. So reads of one sample that follow each other do not wait twice.
//! 2. The exception is an object that is denied again and again while others can be read, which began after it
//!    failed: it is the object that is closed, not the store. A store that has just come back may still deny some.
//! 3. An outage of which no read told for a while is over: those of later reads are others.
//! 4. What a store says is told at once, and then once in each [`SAID_EVERY`].
//!
//! Deliberately absent: clocks, waits and messages, which are the caller's.

use crate::{
    session::{Concern, Fault},
    units::Nanoseconds,
};

/// The patience of a job that does not set it: a server is restarted within half an hour.
pub const PATIENCE: Nanoseconds = Nanoseconds(30 * 60 * SECOND);

/// The pause before the first repetition; each later one is twice as long.
pub const PAUSE_MIN: Nanoseconds = Nanoseconds(SECOND / 10);

/// The longest pause.
pub const PAUSE_MAX: Nanoseconds = Nanoseconds(5 * SECOND);

/// The interval after which an ongoing outage is reported again.
pub const SAID_EVERY: Nanoseconds = Nanoseconds(60 * SECOND);

/// A read is given up after this many denials while other reads succeed. Keys were read again by then.
const DENIED_MAX: u32 = 6;

/// The time for which a successful read proves that the store can be read. [`DENIED_MAX`] attempts of a new
/// read take 6.3 s, those of one that waits 25 s.
const READABLE_FOR: Nanoseconds = Nanoseconds(15 * SECOND);

/// An outage is over if no read failed for this long, or for the patience if that is longer: then no read
/// was made.
const FORGOTTEN_AFTER: Nanoseconds = Nanoseconds(5 * 60 * SECOND);

const SECOND: u64 = 1_000_000_000;

/// The consequence of a read that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Again {
        pause: Nanoseconds,
        /// Whether the failure is reported to the user now.
        is_said: bool,
    },
    GiveUp,
}

/// The failures of one read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// The start of the patience.
    since: Option<Nanoseconds>,
    count: u32,
    denied_since_success: u32,
}

/// A store, as its readers know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    patience: Nanoseconds,
    /// The latest begin of a read that succeeded.
    readable_at: Option<Nanoseconds>,
    /// The first failure since something was readable.
    since: Option<Nanoseconds>,
    /// The last failure, whether or not the store could be read since.
    failed_at: Option<Nanoseconds>,
    said_at: Option<Nanoseconds>,
    /// Whether the end of the outage is to be reported.
    is_told: bool,
}

impl Outage {
    #[must_use]
    pub const fn new(patience: Nanoseconds) -> Self {
        Self {
            patience,
            readable_at: None,
            since: None,
            failed_at: None,
            said_at: None,
            is_told: false,
        }
    }

    #[must_use]
    pub const fn patience(&self) -> Nanoseconds {
        self.patience
    }

    /// Whether a read failed, and no read succeeded that began after that.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the time for which the store could not be read, if that was reported.
    pub fn succeeded(&mut self, begun: Nanoseconds, now: Nanoseconds) -> Option<Nanoseconds> {
        self.readable_at = self.readable_at.max(Some(begun));
        let since = self.since.filter(|since| begun > *since)?;
        self.since = None;
        let is_told = core::mem::take(&mut self.is_told);
        is_told.then(|| Nanoseconds(now.0.saturating_sub(since.0)))
    }

    /// `read` holds the earlier failures of the read.
    pub fn failed(&mut self, read: &mut Failures, fault: Fault, now: Nanoseconds) -> Next {
        if fault.concern() != Concern::Store {
            return Next::GiveUp;
        }
        let forgotten = FORGOTTEN_AFTER.max(self.patience);
        let is_over = self.failed_at.is_some_and(|at| now.0.saturating_sub(at.0) > forgotten.0);
        self.since = self.since.filter(|_| !is_over);
        self.failed_at = Some(now);
        let since = *read.since.get_or_insert(self.since.unwrap_or(now));
        read.count = read.count.saturating_add(1);
        if !self.is_readable(since, now) {
            read.denied_since_success = 0;
        } else if fault == Fault::Denied {
            read.denied_since_success += 1;
        }
        let is_closed = read.denied_since_success >= DENIED_MAX;
        if is_closed || now.0.saturating_sub(since.0) >= self.patience.0 {
            return Next::GiveUp;
        }
        self.since.get_or_insert(now);
        let is_said = self.said_at.is_none_or(|at| now.0.saturating_sub(at.0) >= SAID_EVERY.0);
        if is_said {
            self.said_at = Some(now);
            self.is_told = true;
        }
        Next::Again { pause: self.pause(read.count, since, now), is_said }
    }

    /// Whether a read succeeded lately that began after `since`.
    fn is_readable(&self, since: Nanoseconds, now: Nanoseconds) -> bool {
        let is_recent = |begun: Nanoseconds| now.0.saturating_sub(begun.0) <= READABLE_FOR.0;
        self.readable_at.is_some_and(|begun| begun > since && is_recent(begun))
    }

    /// At most up to the end of the patience, where the last attempt is made.
    fn pause(&self, failures: u32, since: Nanoseconds, now: Nanoseconds) -> Nanoseconds {
        let doublings = failures.saturating_sub(1).min(u64::BITS - 1);
        let pause = PAUSE_MIN.0.saturating_mul(1 << doublings).min(PAUSE_MAX.0);
        let left = since.0.saturating_add(self.patience.0).saturating_sub(now.0);
        Nanoseconds(pause.min(left))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const MINUTE: u64 = 60 * SECOND;

    fn again(next: Next) -> (u64, bool) {
        match next {
            Next::Again { pause, is_said } => (pause.0, is_said),
            Next::GiveUp => panic!("it is given up"),
        }
    }

    /// The times at which a read that always fails is tried, and those at which that is reported.
    fn tried(patience: Nanoseconds, fault: Fault) -> (Vec<u64>, Vec<u64>) {
        let (mut outage, mut read) = (Outage::new(patience), Failures::default());
        let (mut tries, mut said, mut now) = (Vec::new(), Vec::new(), 0);
        loop {
            tries.push(now);
            match outage.failed(&mut read, fault, Nanoseconds(now)) {
                Next::GiveUp => return (tries, said),
                Next::Again { pause, is_said } => {
                    said.extend(is_said.then_some(now));
                    now += pause.0;
                }
            }
        }
    }

    #[test]
    fn a_store_that_is_away_is_asked_for_as_long_as_the_job_says_and_told_of_each_minute() {
        let (tries, said) = tried(Nanoseconds(10 * MINUTE), Fault::Io);
        assert_eq!(tries[..4], [0, SECOND / 10, 3 * SECOND / 10, 7 * SECOND / 10]);
        assert_eq!(tries.last(), Some(&(10 * MINUTE)));
        assert!(tries.windows(2).all(|it| it[1] - it[0] <= PAUSE_MAX.0));
        assert_eq!(said.len(), 10);
        assert!(
            said.windows(2).all(|it| (MINUTE..MINUTE + PAUSE_MAX.0).contains(&(it[1] - it[0])))
        );
    }

    #[test]
    fn without_patience_and_for_faults_of_no_store_a_read_fails_at_once() {
        assert_eq!(tried(Nanoseconds(0), Fault::Io).0, [0]);
        for fault in [Fault::Vanished, Fault::Changed, Fault::NoSpace, Fault::Untransformable] {
            assert_eq!(tried(PATIENCE, fault).0, [0], "{fault:?}");
        }
    }

    #[test]
    fn an_object_that_is_denied_while_others_are_read_is_not_waited_for() {
        let (mut outage, mut read) = (Outage::new(PATIENCE), Failures::default());
        let mut fail = |outage: &mut Outage, fault, second: u64| {
            outage.failed(&mut read, fault, Nanoseconds(second * SECOND))
        };
        again(fail(&mut outage, Fault::Denied, 1));
        // It was on its way when the first read failed, so it says nothing.
        outage.succeeded(Nanoseconds(SECOND), Nanoseconds(2 * SECOND));
        for second in 2..20 {
            again(fail(&mut outage, Fault::Denied, second));
        }
        outage.succeeded(Nanoseconds(19 * SECOND), Nanoseconds(20 * SECOND));
        again(fail(&mut outage, Fault::Io, 20));
        for second in 21..26 {
            again(fail(&mut outage, Fault::Denied, second));
        }
        assert_eq!(fail(&mut outage, Fault::Denied, 26), Next::GiveUp);
    }

    /// The time at which a read is given up that is denied each 5 s, beside one that succeeds at
    /// `readable`.
    fn closed_after(readable: impl Fn(u64) -> bool) -> u64 {
        let (mut outage, mut read) = (Outage::new(PATIENCE), Failures::default());
        let at = |second: u64| Nanoseconds(second * SECOND);
        for second in (0..).step_by(5) {
            if readable(second) {
                outage.succeeded(at(second - 1), at(second));
            }
            if outage.failed(&mut read, Fault::Denied, at(second)) == Next::GiveUp {
                return second;
            }
        }
        unreachable!("the patience ends")
    }

    #[test]
    fn a_straggling_denial_after_an_outage_ends_no_read_and_neither_does_a_moment_without_one() {
        assert_eq!(closed_after(|second| second >= 600), 625, "six denials beside others");
        assert_eq!(closed_after(|second| second == 600), PATIENCE.0 / SECOND);
        let comes_and_goes = closed_after(|second| second % 60 == 5);
        assert_eq!(comes_and_goes, PATIENCE.0 / SECOND);
    }

    #[test]
    fn the_read_that_follows_one_that_was_given_up_does_not_wait_anew() {
        let at = |second: u64| Nanoseconds(second * SECOND);
        let mut outage = Outage::new(at(3));
        let mut ahead = Failures::default();
        again(outage.failed(&mut ahead, Fault::Io, at(0)));
        assert_eq!(outage.failed(&mut ahead, Fault::Io, at(3)), Next::GiveUp);
        let fail = |outage: &mut Outage, second| {
            outage.failed(&mut Failures::default(), Fault::Io, at(second))
        };
        assert_eq!(fail(&mut outage, 4), Next::GiveUp);
        assert!(outage.is_out());
        outage.succeeded(at(5), at(6));
        assert!(!outage.is_out());
        again(fail(&mut outage, 7));
        assert_eq!(fail(&mut outage, 10), Next::GiveUp);
        again(fail(&mut outage, 10 + FORGOTTEN_AFTER.0 / SECOND + 1));
    }

    #[test]
    fn the_end_of_an_outage_is_told_once_with_its_length_and_the_next_one_anew() {
        let (mut outage, mut read) = (Outage::new(PATIENCE), Failures::default());
        let at = |second: u64| Nanoseconds(second * SECOND);
        assert_eq!(outage.succeeded(at(0), at(1)), None, "nothing was said");
        assert!(again(outage.failed(&mut read, Fault::Io, at(2))).1);
        assert_eq!(outage.succeeded(at(1), at(3)), None, "it began before");
        assert_eq!(outage.succeeded(at(9), at(10)), Some(at(8)));
        assert_eq!(outage.succeeded(at(11), at(12)), None);
        assert!(!again(outage.failed(&mut Failures::default(), Fault::Io, at(13))).1, "too soon");
        assert_eq!(outage.succeeded(at(14), at(15)), None);
        assert!(again(outage.failed(&mut Failures::default(), Fault::Io, at(62))).1);
    }

    proptest! {
        #[test]
        fn of_all_reads_of_an_outage_none_waits_longer_than_the_patience_from_its_first_failure(
            patience in 0..100 * MINUTE,
            reads in prop::collection::vec((0..200 * MINUTE, 0..SECOND), 1..20),
        ) {
            let mut outage = Outage::new(Nanoseconds(patience));
            let reads = reads.into_iter().map(|(at, late)| ((at, late), Failures::default()));
            let mut waiting: Vec<_> = reads.collect();
            let first = waiting.iter().map(|((at, _), _)| *at).min().unwrap_or_default();
            let mut last = first;
            while let Some(next) = (0..waiting.len()).min_by_key(|it| waiting[*it].0.0) {
                let ((at, late), read) = &mut waiting[next];
                let is_new = at.saturating_sub(last) > patience.max(FORGOTTEN_AFTER.0);
                prop_assume!(!is_new);
                last = *at;
                match outage.failed(read, Fault::Io, Nanoseconds(*at)) {
                    Next::Again { pause, .. } => {
                        prop_assert!(*at - first < patience);
                        *at += pause.0 + *late;
                    }
                    Next::GiveUp => {
                        prop_assert!(*at - first >= patience);
                        waiting.swap_remove(next);
                    }
                }
            }
        }

        #[test]
        fn no_read_is_given_up_before_the_patience_ends_nor_goes_on_after_it(
            patience in 0..100 * MINUTE,
            begun in 0..1_000 * MINUTE,
            late in prop::collection::vec(0..SECOND, 1..8),
        ) {
            let (mut outage, mut read) = (Outage::new(Nanoseconds(patience)), Failures::default());
            let mut now = begun;
            for late in late.iter().cycle() {
                match outage.failed(&mut read, Fault::Io, Nanoseconds(now)) {
                    Next::GiveUp => break,
                    Next::Again { pause, .. } => {
                        prop_assert!(now - begun < patience);
                        prop_assert!(pause.0 > 0 && now + pause.0 <= begun + patience);
                        now += pause.0 + late;
                    }
                }
            }
            prop_assert!(now - begun >= patience && now - begun < patience + SECOND);
        }
    }
}
