//! When each rank is expected to ask for a batch: the deadline of everything that brings it.
//!
//! A batch that lies `n` batches behind the one that a rank took last is needed `n` steps after that
//! was taken, and the first one that it asks for at once. What a step takes is observed, waiting left
//! out, and smoothed; a rank that has not shown it yet is taken to be as fast as the others, and before
//! anyone has, a step takes a nanosecond, which puts batches in the order of the job. A rank that never
//! asked for anything comes after all that did.

use alloc::{vec, vec::Vec};

use crate::{id::Rank, units::Nanoseconds};

/// What an operation is for: the batch of a rank that cannot be handed over before it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) rank: Rank,
    /// Batches of the rank's run up to this one, counted from 1.
    pub(super) number: u64,
}

/// What a batch may lie off the one that is expected before it counts as a jump: workers of a loader
/// ask and take a little out of turn.
const OUT_OF_TURN: u64 = 16;

/// When a rank needs its batches that has not asked for any.
const SOME_DAY: Nanoseconds = Nanoseconds(u64::MAX / 2);

/// A new step time counts as one part of so many.
const SMOOTHED_OVER: u64 = 4;

/// How fast one rank goes.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    /// The batch that the rank took last, or is taken to have.
    taken: u64,
    taken_at: Option<Nanoseconds>,
    /// The batch that it really took last, and when.
    seen: Option<(u64, Nanoseconds)>,
    /// The farthest batch that it asked for.
    asked: u64,
    step_time: Option<Nanoseconds>,
}

/// The pace of every rank of the node.
#[derive(Debug)]
pub(super) struct Paces {
    first: Rank,
    ranks: Vec<Pace>,
    /// Of all ranks together.
    step_time: Option<Nanoseconds>,
}

impl Paces {
    pub(super) fn new(first: Rank, ranks: u32) -> Self {
        Self { first, ranks: vec![Pace::default(); ranks as usize], step_time: None }
    }

    /// When the batch of `need` is expected to be asked for.
    pub(super) fn expected(&self, need: Need) -> Nanoseconds {
        let pace = &self.ranks[self.index(need.rank)];
        let step_time = pace.step_time.or(self.step_time).map_or(1, |time| time.0);
        let ahead = need.number.saturating_sub(pace.taken).saturating_mul(step_time);
        let behind = pace.taken.saturating_sub(need.number).saturating_mul(step_time);
        let taken_at = pace.taken_at.unwrap_or(SOME_DAY);
        Nanoseconds(taken_at.0.saturating_add(ahead).saturating_sub(behind))
    }

    /// Takes note that a rank asks for a batch. If it is the first, or far off what was expected, the
    /// rank jumped there, and the batch is needed now.
    pub(super) fn asked(&mut self, need: Need, now: Nanoseconds) {
        let index = self.index(need.rank);
        let pace = &mut self.ranks[index];
        let farthest = pace.asked.max(pace.taken);
        let is_near =
            need.number <= farthest + OUT_OF_TURN && need.number + OUT_OF_TURN >= pace.taken;
        if !is_near || pace.taken_at.is_none() {
            let step_time = pace.step_time.or(self.step_time).map_or(1, |time| time.0);
            pace.taken = need.number.saturating_sub(1);
            pace.taken_at = Some(Nanoseconds(now.0.saturating_sub(step_time)));
            pace.asked = need.number;
        }
        pace.asked = pace.asked.max(need.number);
    }

    /// Takes note that a rank took a batch for which it had to wait so long.
    pub(super) fn took(&mut self, need: Need, now: Nanoseconds, waited: Nanoseconds) {
        let index = self.index(need.rank);
        let pace = &mut self.ranks[index];
        if need.number <= pace.taken && need.number + OUT_OF_TURN >= pace.taken {
            return;
        }
        if let Some((before, then)) = pace.seen
            && (1..=OUT_OF_TURN).contains(&need.number.saturating_sub(before))
        {
            let passed = now.0.saturating_sub(then.0).saturating_sub(waited.0);
            let step_time = passed / (need.number - before);
            smooth(&mut pace.step_time, step_time);
            smooth(&mut self.step_time, step_time);
        }
        pace.seen = Some((need.number, now));
        pace.taken = need.number;
        pace.taken_at = Some(now);
    }

    /// Takes note that nobody reads for a rank any more.
    pub(super) fn left(&mut self, rank: Rank) {
        let index = self.index(rank);
        self.ranks[index] = Pace::default();
    }

    fn index(&self, rank: Rank) -> usize {
        (rank.0 - self.first.0) as usize
    }
}

fn smooth(mean: &mut Option<Nanoseconds>, value: u64) {
    *mean = Some(Nanoseconds(match mean {
        None => value,
        Some(Nanoseconds(mean)) => *mean - *mean / SMOOTHED_OVER + value / SMOOTHED_OVER,
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(number: u64) -> Need {
        Need { rank: Rank(4), number }
    }

    fn observed(step_time: u64) -> Paces {
        let mut paces = Paces::new(Rank(4), 2);
        for number in 1..=20 {
            paces.asked(need(number), Nanoseconds(number));
            paces.took(need(number), Nanoseconds(number * step_time), Nanoseconds(0));
        }
        paces
    }

    #[test]
    fn before_anything_was_observed_deadlines_follow_the_order() {
        let paces = Paces::new(Rank(4), 2);
        let deadlines: Vec<u64> = (1..4).map(|number| paces.expected(need(number)).0).collect();
        assert!(deadlines.is_sorted_by(|one, next| one < next), "{deadlines:?}");
    }

    #[test]
    fn who_never_asked_or_left_comes_after_all_others() {
        let mut paces = observed(1000);
        let other = Need { rank: Rank(5), number: 1 };
        assert!(paces.expected(other) > paces.expected(need(1_000_000)));
        paces.asked(other, Nanoseconds(30_000));
        assert_eq!(paces.expected(other), Nanoseconds(30_000));
        paces.left(Rank(4));
        assert!(paces.expected(need(1)) > paces.expected(other));
    }

    #[test]
    fn a_batch_is_needed_as_many_steps_later_as_it_lies_behind_the_last_one() {
        let paces = observed(1000);
        assert_eq!(paces.expected(need(21)), Nanoseconds(21_000));
        assert_eq!(paces.expected(need(25)), Nanoseconds(25_000));
        let mut paces = paces;
        let other = |number| Need { rank: Rank(5), number };
        paces.asked(other(1), Nanoseconds(5000));
        assert_eq!(paces.expected(other(3)), Nanoseconds(7000), "as fast as the others");
    }

    #[test]
    fn waiting_is_no_part_of_a_step() {
        let mut paces = observed(1000);
        for number in 21..60 {
            let now = Nanoseconds(20_000 + (number - 20) * 5000);
            paces.took(need(number), now, Nanoseconds(4000));
        }
        let last = 20_000 + 39 * 5000;
        assert_eq!(paces.expected(need(60)), Nanoseconds(last + 1000));
    }

    #[test]
    fn who_jumps_needs_the_batch_now_and_who_asks_out_of_turn_does_not() {
        let mut paces = observed(1000);
        paces.asked(need(28), Nanoseconds(20_500));
        assert_eq!(paces.expected(need(28)), Nanoseconds(28_000));
        paces.asked(need(500), Nanoseconds(20_600));
        assert_eq!(paces.expected(need(500)), Nanoseconds(20_600));
        assert_eq!(paces.expected(need(502)), Nanoseconds(22_600));
        paces.asked(need(3), Nanoseconds(20_700));
        assert_eq!(paces.expected(need(3)), Nanoseconds(20_700));
    }
}
