//! How many bytes of the reads of an epoch are worth keeping, by the distance of their next use.
//!
//! A sample that stays from its use in epoch `p` to its next use in epoch `j` takes room over `j -
//! p` boundaries between epochs, and saves one cold read. No boundary holds more than the capacity,
//! and the optimum is the largest number of such intervals that the boundaries hold: a sample in no
//! tier at some boundary between two uses is read again.
//!
//! Choosing them is colouring intervals with `capacity` colours, for which the greedy rule is
//! exact: go through the boundaries, and where too much is kept, drop the interval that ends last.
//! But of the optimal choices it finds one that keeps much in one epoch and little in the next. In
//! a long run there is a steady one that is as good: keep everything whose next use is less than K
//! epochs away, and the fraction f of what is K away. So long runs keep that first, and the greedy
//! rule fills the remaining room at the start and towards the end; short runs use the greedy rule
//! alone.
//!
//! # Source
//!
//! Faigle and Nawijn, "Note on scheduling intervals on-line", Discrete Applied Mathematics 58 (1995),
//! for the greedy rule.

use alloc::{vec, vec::Vec};

use crate::units::float;

/// The boundaries after an epoch, as far as the policy looks.
///
/// Slices are indexed by gap: entry 0 ends in the next epoch.
#[derive(Debug)]
pub(super) struct Boundaries<'a> {
    /// Bytes that fit over each boundary.
    pub(super) capacity: u64,
    /// Bytes that the epoch reads, by the gap to their next use.
    pub(super) supply: &'a [u64],
    /// Bytes that earlier epochs keep over each boundary.
    pub(super) kept: &'a [u64],
    /// Bytes that a later epoch is expected to read, by gap.
    pub(super) expected: &'a [u64],
    /// The part of `expected` that each epoch keeps first.
    pub(super) steady: &'a [u64],
    pub(super) left: usize,
}

/// The part of `expected` that each epoch of a long run keeps, by gap.
pub(super) fn steady(capacity: u64, expected: &[u64]) -> Vec<u64> {
    let mut room = capacity;
    let kept = (1..).zip(expected).map(|(gap, expected)| {
        let kept = (room / gap).min(*expected);
        room -= kept * gap;
        kept
    });
    kept.collect()
}

/// The part of `supply` that should stay, by gap.
pub(super) fn quota(boundaries: &Boundaries<'_>) -> Vec<u64> {
    let Boundaries { capacity, supply, kept, expected, steady, left } = *boundaries;
    // An interval that ends after the job has no use.
    let ends = supply.len().min(left);
    let shares = steady.iter().zip(expected);
    let first = supply.iter().zip(shares).map(|(supply, (kept, of))| scaled(*supply, *kept, *of));
    let mut fresh = Pool::new(first.take(ends).collect(), supply);
    let mut later = Pool { first: vec![0; ends], rest: vec![0; ends] };
    let mut old = kept.to_vec();
    for boundary in 0..ends {
        if boundary > 0 {
            later.add(boundary, steady, expected);
        }
        let total = fresh.from(boundary) + later.from(boundary);
        let mut excess = (total + old[boundary..ends].iter().sum::<u64>()).saturating_sub(capacity);
        for priority in [Priority::Rest, Priority::First] {
            for end in (boundary..ends).rev() {
                // Of intervals with the same end the youngest stays: it spans the fewest
                // boundaries.
                fresh.reduce(priority, end, &mut excess);
                later.reduce(priority, end, &mut excess);
            }
        }
        // Samples that lie in a tier already are dropped last: they have spanned their boundaries.
        for end in (boundary..ends).rev() {
            let removed = excess.min(old[end]);
            old[end] -= removed;
            excess -= removed;
        }
    }
    let mut all = fresh.all();
    all.resize(supply.len(), 0);
    all
}

/// Bytes that would be kept, by their next use.
struct Pool {
    first: Vec<u64>,
    rest: Vec<u64>,
}

#[derive(Clone, Copy)]
enum Priority {
    First,
    Rest,
}

impl Pool {
    /// `first` is the part of `supply` that is kept with priority.
    fn new(first: Vec<u64>, supply: &[u64]) -> Self {
        let rest = first.iter().zip(supply).map(|(first, supply)| supply - first).collect();
        Self { first, rest }
    }

    /// `boundary` is the first boundary of the epoch whose reads are added.
    fn add(&mut self, boundary: usize, steady: &[u64], expected: &[u64]) {
        for (end, (steady, expected)) in
            (boundary..self.first.len()).zip(steady.iter().zip(expected))
        {
            self.first[end] += steady;
            self.rest[end] += expected - steady;
        }
    }

    fn from(&self, boundary: usize) -> u64 {
        self.first[boundary..].iter().chain(&self.rest[boundary..]).sum()
    }

    fn reduce(&mut self, priority: Priority, end: usize, excess: &mut u64) {
        let pool = match priority {
            Priority::First => &mut self.first[end],
            Priority::Rest => &mut self.rest[end],
        };
        let removed = (*excess).min(*pool);
        *pool -= removed;
        *excess -= removed;
    }

    fn all(&self) -> Vec<u64> {
        self.first.iter().zip(&self.rest).map(|(first, rest)| first + rest).collect()
    }
}

fn scaled(value: u64, part: u64, whole: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(part.min(whole)) / u128::from(whole.max(1));
    u64::try_from(scaled).expect("at most the value")
}

/// The share of the bytes of an epoch that one of `nodes` reads and reads next `gap` epochs later, for
/// gaps from 1 on: `q² (1-q)^(gap-1)` with `q = 1 / nodes`.
pub(super) fn shares(nodes: u32) -> impl Iterator<Item = f64> {
    let q = 1.0 / f64::from(nodes);
    core::iter::successors(Some(q * q), move |share| Some(share * (1.0 - q)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1, and an expected count needs no more than 53 bits"
)]
pub(super) fn part(whole: u64, share: f64) -> u64 {
    (float(whole) * share) as u64
}

/// The gap K beyond which nothing stays in a long run, if the tiers of each node hold `cached` of the
/// dataset; at most `most`.
pub(super) fn last_gap(cached: f64, nodes: u32, most: u32) -> u32 {
    let mut taken = 0.0;
    for (gap, share) in (1..most).zip(shares(nodes)) {
        taken += f64::from(gap) * share;
        if taken >= cached || share == 0.0 {
            return gap;
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alone(capacity: u64, supply: &[u64], left: usize) -> Vec<u64> {
        let none = &*vec![0; supply.len()];
        quota(&Boundaries { capacity, supply, kept: none, expected: none, steady: none, left })
    }

    #[test]
    fn the_nearest_next_uses_stay() {
        assert_eq!(alone(10, &[4, 4, 4], 9), [4, 4, 2]);
        assert_eq!(alone(3, &[4, 4, 4], 9), [3, 0, 0]);
        assert_eq!(alone(10, &[4, 4, 4], 2), [4, 4, 0], "the job ends before the third");
        assert_eq!(alone(10, &[4, 4, 4], 0), [0, 0, 0]);
    }

    #[test]
    fn what_lies_there_already_stays_before_what_ends_with_it() {
        let (supply, kept, none) = ([4, 4], [0, 5], [0, 0]);
        let boundaries = Boundaries {
            capacity: 10,
            supply: &supply,
            kept: &kept,
            expected: &none,
            steady: &none,
            left: 2,
        };
        assert_eq!(quota(&boundaries), [4, 1]);
    }

    #[test]
    fn room_that_nearer_uses_will_need_is_not_given_away() {
        // The second boundary will be filled by samples with their next use right after it.
        let boundaries = Boundaries {
            capacity: 10,
            supply: &[2, 8],
            kept: &[0, 0],
            expected: &[10, 0],
            steady: &[0, 0],
            left: 2,
        };
        assert_eq!(quota(&boundaries), [2, 0]);
    }

    #[test]
    fn a_long_run_keeps_as_much_in_every_epoch() {
        let expected = [100, 60, 30, 20];
        let steady = steady(150, &expected);
        assert_eq!(steady, [100, 25, 0, 0]);
        let mut kept = vec![0; 4];
        for epoch in 0..6 {
            let boundaries = Boundaries {
                capacity: 150,
                supply: &expected,
                kept: &kept,
                expected: &expected,
                steady: &steady,
                left: 90,
            };
            let chosen = quota(&boundaries);
            if epoch > 0 {
                assert_eq!(chosen, [100, 25, 0, 0], "epoch {epoch}");
            }
            kept.iter_mut().zip(&chosen).for_each(|(kept, chosen)| *kept += chosen);
            kept.remove(0);
            kept.push(0);
        }
    }

    #[test]
    fn nothing_is_kept_free_for_uses_after_the_end() {
        let expected = [10, 10, 10];
        let boundaries = Boundaries {
            capacity: 25,
            supply: &[5, 5, 5],
            kept: &[0, 0, 0],
            expected: &expected,
            steady: &steady(25, &expected),
            left: 2,
        };
        assert_eq!(quota(&boundaries), [5, 5, 0]);
    }

    #[test]
    fn the_last_gap_is_that_of_the_closed_form() {
        assert_eq!(last_gap(0.3, 1, 99), 1);
        // q = 1/3: 1/9 + 2 * 2/27 = 0.259 < 0.296 < 0.259 + 3 * 4/81.
        assert_eq!(last_gap(0.296, 3, 99), 3);
        assert_eq!(last_gap(0.9, 1024, 90), 90);
    }

    /// The best result of any choice of whole units, by trying all.
    fn best(capacity: u64, supplies: &[[u64; 3]; 3]) -> u64 {
        let mut best = 0;
        let choices: u64 = supplies.iter().flatten().map(|supply| supply + 1).product();
        for mut choice in 0..choices {
            let mut load = [0_u64; 3];
            let mut count = 0;
            for (start, supply) in supplies.iter().enumerate() {
                for (gap, supply) in supply.iter().enumerate() {
                    let taken = choice % (supply + 1);
                    choice /= supply + 1;
                    let end = start + gap + 1;
                    let reaches = end <= 3;
                    if reaches {
                        load[start..end].iter_mut().for_each(|load| *load += taken);
                        count += taken;
                    } else if taken > 0 {
                        load[0] = u64::MAX;
                    }
                }
            }
            if load.iter().all(|load| *load <= capacity) {
                best = best.max(count);
            }
        }
        best
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Three epochs whose reads are known exactly one after the other, and the last is expected
        /// exactly when the one before is decided.
        #[test]
        fn a_run_of_equal_epochs_keeps_as_much_as_any_choice(
            capacity in 0_u64..6, supply in prop::array::uniform3(0_u64..3),
        ) {
            let mut kept = vec![0_u64; 3];
            let mut total = 0;
            for start in 0..3 {
                let left = 3 - start;
                let boundaries = Boundaries {
                    capacity,
                    supply: &supply,
                    kept: &kept,
                    expected: &supply,
                    steady: &[0; 3],
                    left,
                };
                let chosen = quota(&boundaries);
                total += chosen.iter().sum::<u64>();
                kept.iter_mut().zip(&chosen).for_each(|(kept, chosen)| *kept += chosen);
                prop_assert!(kept.iter().sum::<u64>() <= capacity);
                kept.remove(0);
                kept.push(0);
            }
            prop_assert_eq!(total, best(capacity, &[supply; 3]));
        }
    }
}
