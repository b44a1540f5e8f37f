//! How many reads of the cold store are given out at a time: as many as raise throughput, found by trial.
//!
//! A disk, a file server and a bucket each have a depth from which on more reads only wait for each other,
//! and it changes with the size of samples and with the load of others. So the window is changed now and
//! then, and the bytes moved per second decide. A longer window must raise them ([`GAIN`]); a shorter one
//! that costs almost nothing ([`LOSS`]) is better, because the read that is needed first then waits less.
//! Between the two nothing changes, so that the window does not oscillate.
//!
//! Only the time counts in which the window was what limited reads. The two windows of a trial alternate,
//! three turns each, so that a store that gets slower meanwhile does not count against one of them.
//!
//! Invariants, checked by `mod tests`:
//!
//! 1. The window stays within its bounds.
//! 2. Equal completions at equal times give equal windows.
//! 3. Against a store that stays as it is, the window settles, where it reaches most of what the store
//!    can do.

use core::{mem, num::NonZeroU32};

use crate::units::{Bytes, Nanoseconds};

/// A trial changes the window by one part of this many, at least by one.
const STEP: u32 = 2;
/// The gain that a longer window must have, in thousandths. It is more than [`LOSS`], or the window would
/// oscillate.
const GAIN: u64 = 40;
/// The loss that a shorter window may have, in thousandths.
const LOSS: u64 = 25;
/// The gain that doubling the window must have at the start, in thousandths.
const GAIN_AT_START: u64 = 200;
/// Turns that each window has in a trial.
const TURNS: u32 = 3;
/// A difference that decides without further turns, in thousandths.
const CLEAR: u64 = 200;
/// The least number of reads in a turn, or as many as fill the window [`FILLS`] times, because reads end in
/// waves.
const READS_MIN: u32 = 32;
const FILLS: u32 = 2;
/// The least duration of a turn: shorter ones measure the bursts of a disk, not its rate.
const TURN_MIN: Nanoseconds = Nanoseconds(20_000_000);
/// Turns without a trial after a trial that changed nothing; doubled each time.
const REST_MIN: u32 = 4;
const REST_MAX: u32 = 128;

/// Bytes and the time that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moved {
    bytes: u64,
    time: u64,
}

impl Moved {
    fn add(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time = self.time.saturating_add(other.time);
    }

    /// Whether the rate is at least `thousandths` of another.
    fn reaches(self, thousandths: u64, other: Self) -> bool {
        let product = |one: u64, two: u64| u128::from(one) * u128::from(two.max(1));
        let (ours, theirs) = (product(self.bytes, other.time), product(other.bytes, self.time));
        ours.saturating_mul(1000) >= theirs.saturating_mul(u128::from(thousandths))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    /// The window doubles as long as throughput grows. Holds what the last window moved.
    Start(Option<Moved>),
    /// No trial, for this many turns.
    Rest(u32),
    Trial(Trial),
}

/// Two windows that alternate, the new one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Trial {
    window: u32,
    turns_left: u32,
    /// In all turns of the trial.
    old: Moved,
    new: Moved,
    /// Of the new window, in its last turn.
    last: Moved,
    /// Whether each pair of turns favoured a longer window: one of three may do so by chance.
    is_unanimous: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Turn {
    /// Reads that were given out under another window and have not ended.
    foreign: u32,
    started: Option<Nanoseconds>,
    ended: u32,
    bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColdWindow {
    max: u32,
    /// The best window that is known, in reads.
    base: u32,
    /// Of the base, in the last turn without a trial.
    usual: Option<Moved>,
    search: Search,
    rest: u32,
    is_upwards: bool,
    turn: Turn,
}

impl ColdWindow {
    pub(super) fn new(first: NonZeroU32, max: NonZeroU32) -> Self {
        Self {
            max: max.get(),
            base: first.min(max).get(),
            usual: None,
            search: Search::Start(None),
            rest: REST_MIN,
            is_upwards: true,
            turn: Turn::default(),
        }
    }

    pub(super) fn window(&self) -> u32 {
        match self.search {
            Search::Trial(trial) if trial.turns_left % 2 == 0 => trial.window,
            _ => self.base,
        }
    }

    /// `running` counts the reads that ran, this one included.
    pub(super) fn ended(&mut self, len: Bytes, running: u32, now: Nanoseconds) {
        if self.turn.foreign > 0 {
            self.turn.foreign -= 1;
            return;
        }
        let Some(started) = self.turn.started else {
            self.turn.started = Some(now);
            return;
        };
        self.turn.ended += 1;
        self.turn.bytes = self.turn.bytes.saturating_add(len.0);
        let time = now.0.saturating_sub(started.0);
        let reads = READS_MIN.max(self.window().saturating_mul(FILLS));
        if self.turn.ended >= reads && time >= TURN_MIN.0 {
            let before = self.window();
            self.turn_ended(Moved { bytes: self.turn.bytes, time });
            let foreign = if self.window() == before { 0 } else { running.saturating_sub(1) };
            self.turn = Turn { foreign, ..Turn::default() };
        }
    }

    /// Notes that the window did not limit reads: the measurement of this turn is void.
    pub(super) fn was_idle(&mut self) {
        self.turn = Turn { foreign: self.turn.foreign, ..Turn::default() };
    }

    #[cfg(test)]
    pub(super) fn is_void(&self) -> bool {
        self.turn.started.is_none()
    }

    fn turn_ended(&mut self, moved: Moved) {
        match self.search {
            Search::Start(None) => self.double(moved),
            Search::Start(Some(before)) if moved.reaches(1000 + GAIN_AT_START, before) => {
                self.double(moved);
            }
            Search::Start(Some(_)) => {
                self.base = (self.base / 2).max(1);
                self.settle();
            }
            Search::Rest(turns) => {
                let is_other =
                    |usual: Moved| !moved.reaches(500, usual) || !usual.reaches(500, moved);
                let is_other = self.usual.replace(moved).is_some_and(is_other);
                if is_other {
                    self.rest = REST_MIN;
                }
                match turns {
                    1.. if !is_other => self.search = Search::Rest(turns - 1),
                    _ => self.start_trial(),
                }
            }
            Search::Trial(trial) => self.go_on(trial, moved),
        }
    }

    /// Decides after the last turn, or when the difference is clear.
    fn go_on(&mut self, mut trial: Trial, moved: Moved) {
        trial.turns_left -= 1;
        if trial.turns_left % 2 == 1 {
            trial.new.add(moved);
            trial.last = moved;
            self.search = Search::Trial(trial);
            return;
        }
        trial.old.add(moved);
        trial.is_unanimous &= !self.is_upwards || self.is_better(trial.last, moved);
        let is_clear = trial.new.reaches(1000 + CLEAR, trial.old)
            || !trial.new.reaches(1000 - CLEAR, trial.old)
            || !trial.is_unanimous;
        if trial.turns_left > 0 && !is_clear {
            self.search = Search::Trial(trial);
        } else {
            self.decide(&trial);
        }
    }

    fn is_better(&self, new: Moved, old: Moved) -> bool {
        new.reaches(if self.is_upwards { 1000 + GAIN } else { 1000 - LOSS }, old)
    }

    fn double(&mut self, moved: Moved) {
        if self.base >= self.max {
            return self.settle();
        }
        self.base = self.base.saturating_mul(2).min(self.max);
        self.search = Search::Start(Some(moved));
    }

    fn settle(&mut self) {
        self.usual = None;
        self.search = Search::Rest(mem::replace(&mut self.rest, REST_MIN));
    }

    fn start_trial(&mut self) {
        let window = self.neighbour(self.is_upwards);
        let window = if window == self.base { self.neighbour(!self.is_upwards) } else { window };
        self.is_upwards = window > self.base;
        let (old, new, last) = Default::default();
        let turns_left = 2 * TURNS;
        self.search = if window == self.base {
            Search::Rest(REST_MAX)
        } else {
            Search::Trial(Trial { window, turns_left, old, new, last, is_unanimous: true })
        };
    }

    /// The window to try in a direction; the base itself at the end of its bounds.
    fn neighbour(&self, is_upwards: bool) -> u32 {
        if is_upwards {
            self.base.saturating_add((self.base / STEP).max(1)).min(self.max)
        } else {
            // So that up and down lead to the same windows.
            let down = u64::from(self.base) * u64::from(STEP) / u64::from(STEP + 1);
            u32::try_from(down).unwrap_or(self.base).min(self.base - 1).max(1)
        }
    }

    fn decide(&mut self, trial: &Trial) {
        if trial.is_unanimous && self.is_better(trial.new, trial.old) {
            self.base = trial.window;
            self.rest = REST_MIN;
            self.usual = None;
            return self.start_trial();
        }
        self.is_upwards = !self.is_upwards;
        self.search = Search::Rest(self.rest);
        self.rest = self.rest.saturating_mul(2).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use alloc::{collections::BTreeSet, vec::Vec};

    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;
    const LEN: u64 = 100_000;

    fn count(value: u32) -> NonZeroU32 {
        NonZeroU32::new(value).unwrap()
    }

    /// A store that needs `latency_ms` for a single read, and moves `bytes_per_ms`.
    #[derive(Debug, Clone, Copy)]
    struct Store {
        latency_ms: u64,
        bytes_per_ms: u64,
        /// The number of reads from which on it gets slower.
        crowd: u32,
        /// The percentage by which a read may take longer or shorter.
        noise: u64,
    }

    impl Store {
        fn rate(&self, window: u32) -> u64 {
            let crowded = window.saturating_sub(self.crowd);
            self.bytes_per_ms * 100 / (100 + u64::from(crowded))
        }

        fn moves(&self, window: u32) -> u64 {
            (u64::from(window) * LEN / self.latency_ms).min(self.rate(window))
        }

        fn best(&self) -> u64 {
            (1..=MAX).map(|window| self.moves(window)).max().unwrap()
        }
    }

    const MAX: u32 = 256;

    /// Reads `reads` samples with as many in flight as the window says. Returns the base after each.
    fn play(store: Store, first: u32, reads: u32) -> Vec<u32> {
        let mut window = ColdWindow::new(count(first), count(MAX));
        let (mut now, mut wire_free) = (0, 0);
        let mut ends = BTreeSet::new();
        let mut bases = Vec::new();
        let mut random = 1_u64;
        for number in 0..u64::from(reads) {
            while ends.len() < window.window() as usize {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let swing = (random >> 33) % (2 * store.noise + 1) + 100 - store.noise;
                let running = u32::try_from(ends.len()).unwrap() + 1;
                wire_free = now.max(wire_free) + LEN * MS / store.rate(running) * swing / 100;
                let end = (now + store.latency_ms * MS * swing / 100).max(wire_free);
                ends.insert((end, number, ends.len()));
            }
            let running = u32::try_from(ends.len()).unwrap();
            now = ends.pop_first().unwrap().0;
            window.ended(Bytes(LEN), running, Nanoseconds(now));
            assert!((1..=MAX).contains(&window.window()), "invariant 1");
            bases.push(window.base);
        }
        bases
    }

    fn check(store: Store, first: u32) {
        let bases = play(store, first, 60_000);
        assert_eq!(bases, play(store, first, 60_000), "invariant 2");
        let last = bases[bases.len() - 1];
        let (reached, best) = (store.moves(last), store.best());
        assert!(reached * 100 >= best * 85, "{store:?}: window {last}, {reached} of {best}");
        let enough = (1..=MAX).find(|it| store.moves(*it) * 100 >= best * 97).unwrap();
        assert!(last <= enough * 2, "{store:?}: window {last}, {enough} would do");
        let late = &bases[bases.len() / 2..];
        let changes = late.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes <= 2, "{store:?}: {changes} changes after it settled");
    }

    fn store(latency_ms: u64, bytes_per_ms: u64) -> Store {
        Store { latency_ms, bytes_per_ms, crowd: MAX, noise: 0 }
    }

    #[test]
    fn the_window_settles_where_the_store_is_full() {
        for first in [1, 16, 256] {
            // A disk, a file server and a far bucket: 2, 20 and 160 reads fill them.
            check(store(1, 200_000), first);
            check(store(10, 200_000), first);
            check(store(80, 200_000), first);
        }
    }

    #[test]
    fn a_store_that_gets_slower_in_a_crowd_is_not_crowded() {
        for first in [4, 256] {
            check(Store { crowd: 24, ..store(10, 200_000) }, first);
        }
    }

    #[test]
    fn times_that_swing_do_not_make_the_window_swing() {
        for first in [1, 64] {
            check(Store { noise: 60, ..store(10, 200_000) }, first);
        }
    }

    #[test]
    fn a_store_that_became_another_is_measured_anew() {
        let mut window = ColdWindow::new(count(16), count(MAX));
        let mut now = 0;
        let mut run = |window: &mut ColdWindow, ns_of: &dyn Fn(u32) -> u64, reads: u32| {
            for _ in 0..reads {
                now += ns_of(window.window());
                window.ended(Bytes(LEN), window.window(), Nanoseconds(now));
            }
        };
        // Latency alone: each read more is a gain, to the bound.
        run(&mut window, &|window| 10 * MS / u64::from(window), 100_000);
        assert!(window.base > 150, "{}", window.base);
        // A wire alone: one read fills it. That is noticed before the rest is over.
        run(&mut window, &|_| 4 * MS, 8_000);
        assert!(window.base < 200, "{}", window.base);
        run(&mut window, &|_| 4 * MS, 100_000);
        assert_eq!(window.base, 1);
    }

    #[test]
    fn what_was_measured_while_nothing_waited_is_void() {
        let mut window = ColdWindow::new(count(16), count(MAX));
        for number in 0..100_000 {
            window.ended(Bytes(LEN), 16, Nanoseconds(number * MS));
            if number % 20 == 0 {
                window.was_idle();
            }
        }
        assert_eq!((window.window(), window.search), (16, Search::Start(None)));
    }

    proptest! {
        #[test]
        fn any_completions_keep_the_window_within_its_bounds(
            first in 1_u32..300,
            max in 1_u32..300,
            steps in prop::collection::vec((0_u64..40, 0_u64..u64::MAX, any::<bool>()), 1..2_000),
        ) {
            let mut window = ColdWindow::new(count(first), count(max));
            let mut now = 0;
            for (ms, len, is_idle) in steps {
                now += ms * MS;
                if is_idle && len % 50 == 0 {
                    window.was_idle();
                }
                window.ended(Bytes(len), window.window(), Nanoseconds(now));
                prop_assert!((1..=max).contains(&window.window()), "invariant 1");
            }
        }
    }
}
