//! Busy and idle phases of a training, and the room of the tiers that fetching ahead of them is worth.
//!
//! A training computes steps, and now and then it does something else: it evaluates, writes a checkpoint,
//! compiles. Meanwhile the cold store could be read. What trainers do between a batch and the request for
//! the next is observed; a gap that is much longer than most is an idle phase, once it came again. Ranks of a
//! training wait for each other in each step, so the time in which another rank waited for a batch is no part
//! of a gap. Ranks tell of their waits in any order, so a gap is looked at one batch later, when the others
//! have told of theirs.
//!
//! Only the last epochs count: a training changes, and a pause that comes no more needs no room. Three of them are
//! enough to see a pause again that comes twice in each.
//!
//! In each cycle the node consumes `S` bytes in the time `b`, and then nothing in the time `i`. Of an epoch
//! of `D` bytes the tiers retain `x = C - y` and so hit `x / D` of all reads; the cold store gives `B` bytes
//! a second. In the busy phase `S (1 - x / D) - B b` bytes are missing. Room for look-ahead covers up to `y`
//! of them, if the idle phase is long enough to read them, so
//!
//! ```text
//! y = min(B i, (S (1 - C / D) - B b) / (1 - S / D))
//! ```
//!
//! less what staging holds in any case, is where a byte of room changes its worth: below, it saves a byte
//! of waiting in each cycle, above only `S / D` of one, as what is retained does. While the tiers are still
//! being filled, less is hit than they will retain, and the room that is worth it is larger: what is not
//! retained yet pays in the next epoch.

mod waiting_times;

use alloc::{
    boxed::Box,
    collections::{BTreeMap, VecDeque},
};

use serde::{Deserialize, Serialize};

use self::waiting_times::WaitingTimes;
use super::Wait;
use crate::{
    id::Rank,
    units::{Bytes, BytesPerSecond, Nanoseconds},
};

/// A gap between steps that is this many times as long as the median is an idle phase.
const IDLE_FACTOR: u64 = 5;

/// The shortest of the long gaps, which together make up this part of their time, are no phases: a
/// processor was busy elsewhere.
const NEGLIGIBLE_PERCENT: u64 = 10;

/// The number of pauses of each rank from which on they are phases of the training: a pause that came once
/// need not come again.
const PAUSES_MIN: u64 = 2;

/// The number of cycles in an epoch from which on room is taken from retained samples. With fewer,
/// look-ahead saves hardly more waiting than retention does, and costs cold reads.
const CYCLES_MIN: u128 = 2;

/// The room in percent of what the mean cycle needs: cycles are not all equal.
const MARGIN_PERCENT: u128 = 120;

/// All reads, in the unit of [`Supply::hits`].
pub(super) const WHOLE: u32 = 1_000_000;

/// Classes of gaps, by the bits of their length.
const CLASSES: usize = 65;

/// Epochs that count, the current one included.
pub(super) const SPANS: usize = 3;

/// The number of gaps from which on their mean is the time of a step.
const STEPS_MIN: u64 = 32;

/// The gaps between batches of the trainers, by length.
#[derive(Debug, Clone)]
pub(super) struct Phases {
    /// The last epochs, the current one at the end.
    spans: VecDeque<Span>,
    last: BTreeMap<Rank, Delivery>,
    /// The times when at least one rank waited.
    waited: WaitingTimes,
}

#[derive(Debug, Clone)]
struct Span {
    gaps: Box<[Gaps; CLASSES]>,
    /// Bytes of the batches before these gaps.
    consumed: Bytes,
}

impl Default for Span {
    fn default() -> Self {
        Self { gaps: Box::new([Gaps::default(); CLASSES]), consumed: Bytes(0) }
    }
}

impl Span {
    fn add(&mut self, other: &Self) {
        self.consumed.0 = self.consumed.0.saturating_add(other.consumed.0);
        for (gaps, other) in self.gaps.iter_mut().zip(&*other.gaps) {
            gaps.count += other.count;
            gaps.time = gaps.time.saturating_add(other.time);
        }
    }

    fn count(&self) -> u64 {
        self.gaps.iter().map(|class| class.count).sum()
    }

    /// The first class of gaps that are idle phases, or delays that came once; `None` without any.
    fn first_idle(&self) -> Option<usize> {
        let all = self.count();
        let mut below = 0;
        let median = self.gaps.iter().find(|class| {
            below += class.count;
            below * 2 >= all && class.count > 0
        })?;
        let longest_busy = (median.time / median.count).saturating_mul(IDLE_FACTOR);
        let is_long = |gaps: &Gaps| gaps.count > 0 && gaps.time / gaps.count > longest_busy;
        let long = self.gaps.iter().position(is_long)?;
        let idle_time =
            self.gaps[long..].iter().map(|class| class.time).fold(0, u64::saturating_add);
        let mut shorter: u64 = 0;
        (long..CLASSES).find(|class| {
            shorter = shorter.saturating_add(self.gaps[*class].time);
            shorter > idle_time / 100 * NEGLIGIBLE_PERCENT
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Delivery {
    at: Nanoseconds,
    len: Bytes,
    /// The gap before it, if it was not observed yet.
    gap: Option<Gap>,
}

#[derive(Debug, Clone, Copy)]
struct Gap {
    from: Nanoseconds,
    until: Nanoseconds,
    /// Of the batch before.
    len: Bytes,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gaps {
    count: u64,
    time: u64,
}

/// The mean cycle of a node: a busy phase and the idle phase after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    #[serde(rename = "consumed_bytes")]
    pub consumed: Bytes,
    /// Without waiting.
    #[serde(rename = "busy_ns")]
    pub busy: Nanoseconds,
    #[serde(rename = "idle_ns")]
    pub idle: Nanoseconds,
}

/// The means of a node to feed its trainers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supply {
    /// Bytes that the node reads in an epoch.
    #[serde(rename = "epoch_bytes")]
    pub epoch: Bytes,
    /// Bytes that all tiers of the node hold.
    #[serde(rename = "capacity_bytes")]
    pub capacity: Bytes,
    /// Bytes that are staged ahead in any case.
    #[serde(rename = "staged_bytes")]
    pub staged: Bytes,
    /// The part of the present reads that are hits in the tiers, in millionths.
    #[serde(rename = "hits_per_million")]
    pub hits: u32,
    #[serde(rename = "cold_bytes_per_s")]
    pub cold: BytesPerSecond,
}

impl Default for Phases {
    fn default() -> Self {
        Self {
            spans: VecDeque::from([Span::default()]),
            last: BTreeMap::new(),
            waited: WaitingTimes::default(),
        }
    }
}

impl Phases {
    pub(super) fn delivered(&mut self, rank: Rank, wait: Wait, len: Bytes) {
        self.waited.add(wait);
        let last = self.last.get(&rank).copied();
        if let Some(Gap { from, until, len }) = last.and_then(|last| last.gap) {
            let waited = self.waited.between(from, until);
            let gap = until.0.saturating_sub(from.0).saturating_sub(waited.0);
            self.observe(Nanoseconds(gap), len);
        }
        let gap = last.map(|last| Gap { from: last.at, until: wait.since, len: last.len });
        self.last.insert(rank, Delivery { at: wait.until, len, gap });
    }

    /// Notes that the trainers of a rank are gone: the time until others come is no phase of the training.
    pub(super) fn detached(&mut self, rank: Rank) {
        self.last.remove(&rank);
    }

    pub(super) fn begin_epoch(&mut self) {
        if self.spans.len() == SPANS {
            self.spans.pop_front();
        }
        self.spans.push_back(Span::default());
    }

    fn observe(&mut self, gap: Nanoseconds, len: Bytes) {
        let Some(span) = self.spans.back_mut() else { return };
        let class = &mut span.gaps[class(gap.0)];
        class.count += 1;
        class.time = class.time.saturating_add(gap.0);
        span.consumed.0 = span.consumed.0.saturating_add(len.0);
    }

    fn all(&self) -> Span {
        let mut all = Span::default();
        self.spans.iter().for_each(|span| all.add(span));
        all
    }

    /// The mean time of a step, idle phases and waiting excluded; `None` before there were enough.
    pub(super) fn step_time(&self) -> Option<Nanoseconds> {
        let all = self.all();
        let busy = &all.gaps[..all.first_idle().unwrap_or(CLASSES)];
        let count: u64 = busy.iter().map(|class| class.count).sum();
        let time = busy.iter().map(|class| class.time).fold(0, u64::saturating_add);
        (count >= STEPS_MIN).then(|| Nanoseconds(time / count))
    }

    /// `None` if no idle phases were observed.
    pub(super) fn cycle(&self, ranks: u32) -> Option<Cycle> {
        let all = self.all();
        let (busy, idle) = all.gaps.split_at(all.first_idle()?);
        let idles: u64 = idle.iter().map(|class| class.count).sum();
        if idles < PAUSES_MIN * u64::from(ranks) {
            return None;
        }
        let mean = |classes: &[Gaps]| {
            let time = classes.iter().map(|class| class.time).fold(0, u64::saturating_add);
            time.checked_div(idles).map(Nanoseconds)
        };
        let consumed = u128::from(all.consumed.0) * u128::from(ranks);
        let consumed = consumed.checked_div(u128::from(idles))?;
        Some(Cycle {
            consumed: Bytes(u64::try_from(consumed).unwrap_or(u64::MAX)),
            busy: mean(busy)?,
            idle: mean(idle)?,
        })
    }
}

fn class(gap: u64) -> usize {
    (u64::BITS - gap.leading_zeros()) as usize
}

impl Cycle {
    /// The room of all tiers that is worth more for look-ahead than for what is retained.
    #[must_use]
    pub fn room(&self, supply: &Supply) -> Bytes {
        let (epoch, capacity) = (u128::from(supply.epoch.0), u128::from(supply.capacity.0));
        let consumed = u128::from(self.consumed.0);
        if consumed * CYCLES_MIN > epoch || capacity >= epoch {
            return Bytes(0);
        }
        let in_time = u128::from(supply.cold.bytes_in(self.busy).0);
        let missing_later = (consumed * (epoch - capacity) / epoch).saturating_sub(in_time);
        let later = missing_later * epoch / (epoch - consumed);
        let cold_now = consumed * u128::from(WHOLE.saturating_sub(supply.hits)) / u128::from(WHOLE);
        let now = cold_now.saturating_sub(in_time);
        let deficit = later.max(now) * MARGIN_PERCENT / 100;
        let read_when_idle = u128::from(supply.cold.bytes_in(self.idle).0);
        let ahead = deficit.min(read_when_idle);
        let room = ahead.saturating_sub(supply.staged.0.into()).min(capacity);
        Bytes(u64::try_from(room).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// `cycles` cycles of 25 steps of 10 ms and a pause.
    fn phases(cycles: u64, pause: u64, ranks: u32) -> Phases {
        let mut phases = Phases::default();
        for rank in (0..ranks).map(Rank) {
            let mut now = 0;
            for step in 0..=cycles * 25 + 1 {
                let wait = Wait { since: Nanoseconds(now), until: Nanoseconds(now + MS) };
                phases.delivered(rank, wait, Bytes(400_000));
                now += MS + 10 * MS + if step % 25 == 24 { pause } else { 0 };
            }
        }
        phases
    }

    #[test]
    fn a_gap_much_longer_than_most_ends_a_cycle_and_waiting_is_no_gap() {
        for ranks in [1, 3] {
            let cycle = phases(4, 300 * MS, ranks).cycle(ranks).unwrap();
            assert_eq!(cycle.consumed, Bytes(25 * 400_000 * u64::from(ranks)));
            assert_eq!((cycle.busy.0, cycle.idle.0), (240 * MS, 310 * MS));
        }
    }

    #[test]
    fn a_pause_is_a_phase_when_it_came_again() {
        assert_eq!(phases(1, 300 * MS, 2).cycle(2), None);
        let cycle = phases(2, 300 * MS, 2).cycle(2).unwrap();
        assert_eq!((cycle.consumed, cycle.idle.0), (Bytes(50 * 400_000), 310 * MS));
    }

    #[test]
    fn a_pause_that_comes_no_more_is_forgotten_after_some_epochs_and_one_that_comes_is_not() {
        let mut phases = phases(4, 300 * MS, 1);
        assert_eq!(phases.step_time(), Some(Nanoseconds(10 * MS)), "pauses are no steps");
        phases.detached(Rank(0));
        let mut now = 10_000 * MS;
        let mut train = |phases: &mut Phases, pause: u64| {
            phases.begin_epoch();
            for step in 0..50 {
                let wait = Wait { since: Nanoseconds(now), until: Nanoseconds(now + MS) };
                phases.delivered(Rank(0), wait, Bytes(400_000));
                now += MS + 20 * MS + if step % 25 == 24 { pause } else { 0 };
            }
        };
        for _ in 0..3 {
            train(&mut phases, 500 * MS);
            assert!(phases.cycle(1).is_some());
        }
        assert_eq!(phases.cycle(1).unwrap().idle, Nanoseconds(520 * MS));
        (0..2).for_each(|_| train(&mut phases, 0));
        assert!(phases.cycle(1).is_some(), "one epoch with pauses counts still");
        train(&mut phases, 0);
        assert_eq!(phases.cycle(1), None);
        assert_eq!(phases.step_time(), Some(Nanoseconds(20 * MS)));
    }

    #[test]
    fn an_even_training_has_no_idle_phase_nor_has_one_that_came_back() {
        assert_eq!(phases(4, 0, 2).cycle(2), None);
        assert_eq!(Phases::default().cycle(1), None);
        let mut phases = phases(1, 0, 1);
        phases.detached(Rank(0));
        let later = Nanoseconds(3_600_000 * MS);
        phases.delivered(Rank(0), Wait { since: later, until: later }, Bytes(1));
        assert_eq!(phases.cycle(1), None);
    }

    #[test]
    fn a_rank_that_waits_for_another_one_is_not_idle() {
        let mut phases = Phases::default();
        for step in 0..100 {
            let start = step * 60 * MS;
            let late = if step % 10 == 9 { 50 * MS } else { 0 };
            let [at_once, later] = [0, late].map(|wait| Wait {
                since: Nanoseconds(start + late - wait),
                until: Nanoseconds(start + late),
            });
            let waited = Wait { since: Nanoseconds(start), ..later };
            // In the order of ranks, or the other way round.
            let mut told = [(Rank(0), waited), (Rank(1), at_once)];
            told.rotate_left(usize::from(step % 6 >= 3));
            told.into_iter().for_each(|(rank, wait)| phases.delivered(rank, wait, Bytes(1_000)));
        }
        let even = |gap| gap == 10 * MS || gap == 60 * MS;
        assert!(phases.all().gaps.iter().all(|it| it.count == 0 || even(it.time / it.count)));
        assert_eq!(phases.cycle(2), None);
    }

    #[test]
    fn short_delays_beside_long_pauses_are_no_phases() {
        let mut phases = phases(4, 2_000 * MS, 1);
        for delay in 0..4 {
            let (since, len) = (Nanoseconds(20_000 * MS + 55 * MS * delay), Bytes(400_000));
            phases.delivered(Rank(1), Wait { since, until: since }, len);
        }
        let cycle = phases.cycle(1).unwrap();
        assert_eq!(cycle.idle.0, 2_010 * MS, "the gaps of 55 ms are busy");
    }

    /// Where more and less room than that is tried one by one, none has a shorter cycle.
    #[test]
    fn no_other_division_of_the_room_waits_less() {
        let cycle = |consumed, busy, idle| Cycle {
            consumed: Bytes(consumed),
            busy: Nanoseconds(busy),
            idle: Nanoseconds(idle),
        };
        let cycles = [
            cycle(2_500, 1_000_000_000, 1_000_000_000),
            cycle(1_080, 250_000_000, 300_000_000),
            cycle(5_000, 1_000_000_000, 100_000_000),
        ];
        for cycle in cycles {
            for capacity in [500, 2_000, 40_000] {
                let cold = BytesPerSecond(1_300);
                let (epoch, capacity, staged) = (Bytes(100_000), Bytes(capacity), Bytes(0));
                let missed = |room: u64| {
                    let retained = u128::from(capacity.0 - room);
                    let cold_bytes = u128::from(cycle.consumed.0) * (100_000 - retained) / 100_000;
                    let in_time = u128::from(cold.bytes_in(cycle.busy).0);
                    let ahead = u128::from(room.min(cold.bytes_in(cycle.idle).0));
                    cold_bytes.saturating_sub(in_time).saturating_sub(ahead)
                };
                let best = (0..=capacity.0).map(missed).min().unwrap();
                let hits = u32::try_from(capacity.0 * u64::from(WHOLE) / epoch.0).unwrap();
                let room = cycle.room(&Supply { epoch, capacity, staged, hits, cold });
                assert!(missed(room.0) <= best + 1, "{cycle:?}: {room:?} of {capacity:?}");
                assert!(room <= capacity);
            }
        }
    }

    #[test]
    fn what_is_staged_and_what_is_all_retained_needs_no_room() {
        let cycle = Cycle {
            consumed: Bytes(2_500),
            busy: Nanoseconds(1_000_000_000),
            idle: Nanoseconds(1_000_000_000),
        };
        let supply = Supply {
            epoch: Bytes(100_000),
            capacity: Bytes(2_000),
            staged: Bytes(0),
            hits: 20_000,
            cold: BytesPerSecond(1_300),
        };
        assert!(cycle.room(&supply) > Bytes(1_000));
        assert_eq!(cycle.room(&Supply { staged: Bytes(10_000), ..supply }), Bytes(0));
        assert_eq!(cycle.room(&Supply { capacity: Bytes(100_000), ..supply }), Bytes(0));
        assert_eq!(cycle.room(&Supply { cold: BytesPerSecond(0), ..supply }), Bytes(0));
        let slow = Supply { capacity: Bytes(60_000), hits: 600_000, ..supply };
        assert_eq!(cycle.room(&slow), Bytes(0), "what is retained leaves little to read");
        assert!(cycle.room(&Supply { hits: 0, ..slow }) > Bytes(1_000), "nothing is hit yet");
        let long = Cycle { consumed: Bytes(100_000), ..cycle };
        assert_eq!(long.room(&supply), Bytes(0), "a cycle an epoch: both are worth the same");
    }
}
