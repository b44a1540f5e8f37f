//! When each rank is expected to ask for a batch: the deadline of everything that brings it.
//!
//! A batch that lies `n` batches behind the one that a rank took last is needed `n` steps after that was
//! taken; the first one that it asks for is needed at once. The duration of a step, without waiting, is
//! observed as a moving average. A rank for which there is none yet is assumed to be as fast as the others.
//! Before there is any, a step takes longer than ranks start apart, so that batches which are equally many
//! steps away are equally urgent: what is fetched ahead for a rank that started does not delay the first
//! batches of those that start after it. A rank that never asked for a batch comes after all that did.
//!
//! In a job with a transform, what brings a sample is due as many whole steps before its batch as a thread is expected
//! to transform it, by what samples of its form and length took ([`super::TransformTimes`]). So one that takes longer
//! than a step arrives before quicker ones of batches in between; batches keep their order. The transform itself is
//! due with its batch, or as early as what brings the sample where a tier waits for the prepared form that it makes.

use alloc::{vec, vec::Vec};

use super::staging_depth::DEPTH_MAX;
use crate::{
    id::{BatchId, Rank},
    order::Spec,
    units::Nanoseconds,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchNumber {
    pub(super) rank: Rank,
    /// Batches of the rank's run up to this one, counted from 1.
    pub(super) number: u64,
}

impl BatchNumber {
    pub(super) fn of(batch: BatchId, spec: &Spec) -> Self {
        let number = spec.batches_between(spec.first(batch.rank), Some(batch)) + 1;
        Self { rank: batch.rank, number }
    }

    /// The number of the batch that is needed this many steps before.
    pub(super) fn earlier_by(self, steps: u64) -> Self {
        Self { number: self.number.saturating_sub(steps), ..self }
    }
}

/// The distance from the expected batch beyond which a request counts as a jump. Workers of a loader ask
/// and take a little out of order.
const OUT_OF_ORDER: u64 = 16;

/// The deadline of a rank that has not asked for a batch: after all others.
const UNREQUESTED: Nanoseconds = Nanoseconds(u64::MAX / 2);

/// The step time before one was observed.
const STEP_ASSUMED: Nanoseconds = Nanoseconds(60_000_000_000);

/// The weight of a new step time in the moving average is one part in this many.
const SMOOTHED_OVER: u64 = 4;

#[derive(Debug, Clone, Copy, Default)]
struct RankPace {
    /// The number of the batch that the rank took last, or is assumed to have taken.
    taken: u64,
    /// The number of a batch and the time at which it was needed. It is the batch that was taken last, or
    /// to which the rank jumped.
    needed: Option<(u64, Nanoseconds)>,
    /// The batch whose delivery was observed last, and the time.
    observed: Option<(u64, Nanoseconds)>,
    asked: u64,
    step_time: Option<Nanoseconds>,
}

#[derive(Debug)]
pub(super) struct Deadlines {
    first: Rank,
    ranks: Vec<RankPace>,
    /// The average over all ranks, for ranks without a time of their own.
    step_time: Option<Nanoseconds>,
}

impl Deadlines {
    pub(super) fn new(first: Rank, ranks: u32) -> Self {
        Self { first, ranks: vec![RankPace::default(); ranks as usize], step_time: None }
    }

    /// The time at which a batch is expected to be asked for.
    pub(super) fn of(&self, batch: BatchNumber) -> Nanoseconds {
        let pace = &self.ranks[self.index(batch.rank)];
        let Nanoseconds(step_time) = pace.step_time.or(self.step_time).unwrap_or(STEP_ASSUMED);
        let (number, Nanoseconds(at)) = pace.needed.unwrap_or((pace.taken, UNREQUESTED));
        let ahead = batch.number.saturating_sub(number).saturating_mul(step_time);
        let behind = number.saturating_sub(batch.number).saturating_mul(step_time);
        Nanoseconds(at.saturating_add(ahead).saturating_sub(behind))
    }

    /// The mean over all ranks; `None` before one was observed.
    pub(super) fn step_time(&self) -> Option<Nanoseconds> {
        self.step_time
    }

    /// The number of whole steps within a time; 0 before a step was observed. At most [`DEPTH_MAX`],
    /// because nothing is staged farther ahead.
    pub(super) fn steps_within(&self, time: Nanoseconds) -> u64 {
        let steps = self.step_time.and_then(|step| time.0.checked_div(step.0));
        steps.unwrap_or(0).min(DEPTH_MAX.into())
    }

    /// A first request, and one far off the expected batch, is a jump: the batch is needed now.
    pub(super) fn requested(&mut self, batch: BatchNumber, now: Nanoseconds) {
        let index = self.index(batch.rank);
        let pace = &mut self.ranks[index];
        let farthest = pace.asked.max(pace.taken);
        let is_near =
            batch.number <= farthest + OUT_OF_ORDER && batch.number + OUT_OF_ORDER >= pace.taken;
        if !is_near || pace.needed.is_none() {
            pace.taken = batch.number.saturating_sub(1);
            pace.needed = Some((batch.number, now));
            pace.asked = batch.number;
        }
        pace.asked = pace.asked.max(batch.number);
    }

    /// `waited` is the time for which the rank had waited for the batch.
    pub(super) fn delivered(&mut self, batch: BatchNumber, now: Nanoseconds, waited: Nanoseconds) {
        let index = self.index(batch.rank);
        let pace = &mut self.ranks[index];
        if batch.number <= pace.taken && batch.number + OUT_OF_ORDER >= pace.taken {
            return;
        }
        if let Some((before, then)) = pace.observed
            && (1..=OUT_OF_ORDER).contains(&batch.number.saturating_sub(before))
        {
            let passed = now.0.saturating_sub(then.0).saturating_sub(waited.0);
            let step_time = passed / (batch.number - before);
            smooth(&mut pace.step_time, step_time);
            smooth(&mut self.step_time, step_time);
        }
        pace.observed = Some((batch.number, now));
        pace.taken = batch.number;
        pace.needed = Some((batch.number, now));
    }

    pub(super) fn detached(&mut self, rank: Rank) {
        let index = self.index(rank);
        self.ranks[index] = RankPace::default();
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

    fn batch(number: u64) -> BatchNumber {
        BatchNumber { rank: Rank(4), number }
    }

    fn observed(step_time: u64) -> Deadlines {
        let mut deadlines = Deadlines::new(Rank(4), 2);
        for number in 1..=20 {
            deadlines.requested(batch(number), Nanoseconds(number));
            deadlines.delivered(batch(number), Nanoseconds(number * step_time), Nanoseconds(0));
        }
        deadlines
    }

    #[test]
    fn before_anything_was_observed_deadlines_follow_the_order() {
        let deadlines = Deadlines::new(Rank(4), 2);
        let deadlines: Vec<u64> = (1..4).map(|number| deadlines.of(batch(number)).0).collect();
        assert!(deadlines.is_sorted_by(|one, next| one < next), "{deadlines:?}");
    }

    #[test]
    fn who_never_asked_or_left_comes_after_all_others() {
        let mut deadlines = observed(1000);
        let other = BatchNumber { rank: Rank(5), number: 1 };
        assert!(deadlines.of(other) > deadlines.of(batch(1_000_000)));
        deadlines.requested(other, Nanoseconds(30_000));
        assert_eq!(deadlines.of(other), Nanoseconds(30_000));
        deadlines.detached(Rank(4));
        assert!(deadlines.of(batch(1)) > deadlines.of(other));
    }

    #[test]
    fn who_asks_first_does_not_delay_the_first_batches_of_who_asks_later() {
        let mut deadlines = Deadlines::new(Rank(4), 2);
        deadlines.requested(batch(1), Nanoseconds(30_000));
        deadlines.delivered(batch(1), Nanoseconds(70_000), Nanoseconds(40_000));
        let other = |number| BatchNumber { rank: Rank(5), number };
        deadlines.requested(other(1), Nanoseconds(80_000));
        assert_eq!(deadlines.of(other(1)), Nanoseconds(80_000));
        assert!(deadlines.of(other(1)) < deadlines.of(batch(2)));
        assert!(deadlines.of(other(2)) < deadlines.of(batch(3)));
    }

    #[test]
    fn a_batch_is_needed_as_many_steps_later_as_it_lies_behind_the_last_one() {
        let deadlines = observed(1000);
        assert_eq!(deadlines.of(batch(21)), Nanoseconds(21_000));
        assert_eq!(deadlines.of(batch(25)), Nanoseconds(25_000));
        let mut deadlines = deadlines;
        let other = |number| BatchNumber { rank: Rank(5), number };
        deadlines.requested(other(1), Nanoseconds(5000));
        assert_eq!(deadlines.of(other(3)), Nanoseconds(7000), "as fast as the others");
    }

    #[test]
    fn waiting_is_no_part_of_a_step() {
        let mut deadlines = observed(1000);
        for number in 21..60 {
            let now = Nanoseconds(20_000 + (number - 20) * 5000);
            deadlines.delivered(batch(number), now, Nanoseconds(4000));
        }
        let last = 20_000 + 39 * 5000;
        assert_eq!(deadlines.of(batch(60)), Nanoseconds(last + 1000));
    }

    #[test]
    fn who_jumps_needs_the_batch_now_and_who_asks_out_of_turn_does_not() {
        let mut deadlines = observed(1000);
        deadlines.requested(batch(28), Nanoseconds(20_500));
        assert_eq!(deadlines.of(batch(28)), Nanoseconds(28_000));
        deadlines.requested(batch(500), Nanoseconds(20_600));
        assert_eq!(deadlines.of(batch(500)), Nanoseconds(20_600));
        assert_eq!(deadlines.of(batch(502)), Nanoseconds(22_600));
        deadlines.requested(batch(3), Nanoseconds(20_700));
        assert_eq!(deadlines.of(batch(3)), Nanoseconds(20_700));
    }
}
